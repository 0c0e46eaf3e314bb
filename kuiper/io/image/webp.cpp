// Decodes WebP with libwebp. A still image, or the first frame of an animation, is decoded piece by
// piece, so that decoding can be stopped. All frames are decoded by the library's animation
// decoder. Both give Pillow's result, which uses the latter.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct DeleteDecoder {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};
struct DeleteIncremental {
  void operator()(WebPIDecoder* decoder) const { WebPIDelete(decoder); }
};
struct ReleaseFrame {
  void operator()(WebPIterator* frame) const { WebPDemuxReleaseIterator(frame); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DeleteDemuxer>;
using Decoder = std::unique_ptr<WebPAnimDecoder, DeleteDecoder>;

WebPData DataOf(const ImageFile& file) {
  return {.bytes = reinterpret_cast<const uint8_t*>(file.bytes.data()), .size = file.bytes.size()};
}

StatusOr<Demuxer> OpenDemuxer(const ImageFile& file) {
  const WebPData data = DataOf(file);
  Demuxer demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return file.Undecodable("WebP", "its parts do not fit together");
  return demuxer;
}

Status NoMemory(const ImageFile& file) {
  return Status(StatusCode::kResourceExhausted, "no memory to decode " + file.name,
                "use a smaller picture");
}

// Returns the chunk's content, "" if there is none.
std::string Chunk(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator chunk;
  std::string content;
  if (WebPDemuxGetChunk(demuxer, name, 1, &chunk) != 0) {
    content.assign(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return content;
}

void ToRgb(const uint8_t* rgba, size_t num_pixels, bool has_alpha, uint8_t* rgb) {
  if (has_alpha) return LayOnWhite(rgba, num_pixels, rgb);
  for (size_t i = 0; i < num_pixels; ++i) std::copy_n(rgba + 4 * i, 3, rgb + 3 * i);
}

StatusOr<WebPBitstreamFeatures> FeaturesOf(const ImageFile& file) {
  WebPBitstreamFeatures features;
  const WebPData data = DataOf(file);
  if (WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK) {
    return file.Undecodable("WebP", "its header is damaged");
  }
  return features;
}

// Returns how many bytes the decoder gets next. Until there are rows, the decoder reads the header
// anew each time, so the pieces double. Afterwards each is a small share of the work.
size_t NextSize(size_t size, size_t whole, bool has_rows) {
  constexpr size_t kFirst = 4096, kPieces = 64;
  const size_t piece = has_rows ? std::max(kFirst, whole / kPieces) : std::max(kFirst, size);
  return size + std::min(piece, whole - size);
}

Status DecodePieces(const ImageFile& file, const WebPData& frame, WebPDecBuffer* to) {
  const std::unique_ptr<WebPIDecoder, DeleteIncremental> decoder(WebPINewDecoder(to));
  if (decoder == nullptr) return NoMemory(file);
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  int num_rows = 0;
  for (size_t size = 0; status == VP8_STATUS_SUSPENDED && size < frame.size;) {
    size = NextSize(size, frame.size, num_rows > 0);
    status = WebPIUpdate(decoder.get(), frame.bytes, size);
    int rows_before = num_rows, width = 0;
    if (WebPIDecGetRGB(decoder.get(), &num_rows, &width, nullptr, nullptr) == nullptr) num_rows = 0;
    if (!file.watch.MayContinue(int64_t{num_rows - rows_before} * width))
      return DecodingStopped(file.name);
  }
  if (status == VP8_STATUS_OUT_OF_MEMORY) return NoMemory(file);
  if (status != VP8_STATUS_OK) return file.Undecodable("WebP", "frame 0 is damaged");
  return OkStatus();
}

// Decodes the first frame over a transparent picture.
Status DecodeFirst(const ImageFile& file, const WebPIterator& frame, bool has_alpha,
                   Picture* picture) {
  if (frame.x_offset < 0 || frame.y_offset < 0 || frame.x_offset > picture->width - frame.width ||
      frame.y_offset > picture->height - frame.height) {
    return file.Undecodable("WebP", "its parts do not fit together");
  }
  const bool is_whole = frame.width == picture->width && frame.height == picture->height;
  const bool is_rgb = is_whole && !has_alpha;
  const size_t channels = is_rgb ? 3 : 4;
  const size_t stride = static_cast<size_t>(picture->width) * channels;
  std::vector<uint8_t> rgba;
  if (!is_rgb) {
    KU_ASSIGN_OR_RETURN(
        rgba, NewBytes(stride * static_cast<size_t>(picture->height), file.name, file.watch));
  }
  std::vector<uint8_t>& pixels = is_rgb ? picture->rgb : rgba;
  const size_t begin =
      static_cast<size_t>(frame.y_offset) * stride + static_cast<size_t>(frame.x_offset) * channels;
  WebPDecBuffer to;
  if (WebPInitDecBuffer(&to) == 0) return NoMemory(file);
  to.colorspace = is_rgb ? MODE_RGB : MODE_RGBA;
  to.is_external_memory = 1;
  to.u.RGBA = {.rgba = pixels.data() + begin,
               .stride = static_cast<int>(stride),
               .size = pixels.size() - begin};
  KU_RETURN_IF_ERROR(DecodePieces(file, frame.fragment, &to));
  for (int y = 0; !is_rgb && y < picture->height; ++y) {
    if (!file.watch.MayContinue()) return DecodingStopped(file.name);
    ToRgb(rgba.data() + static_cast<size_t>(y) * stride, static_cast<size_t>(picture->width),
          has_alpha, picture->row(y));
  }
  return OkStatus();
}

}  // namespace

StatusOr<PictureSize> WebpSize(const ImageFile& file) {
  KU_ASSIGN_OR_RETURN(const WebPBitstreamFeatures features, FeaturesOf(file));
  return PictureSize{.height = features.height, .width = features.width};
}

StatusOr<AnimationFacts> WebpFacts(const ImageFile& file) {
  KU_ASSIGN_OR_RETURN(const Demuxer demuxer, OpenDemuxer(file));
  AnimationFacts facts;
  WebPIterator frame;
  for (int more = WebPDemuxGetFrame(demuxer.get(), 1, &frame); more != 0;
       more = WebPDemuxNextFrame(&frame)) {
    ++facts.num_frames;
    facts.seconds += FrameSeconds(frame.duration);
  }
  WebPDemuxReleaseIterator(&frame);
  return facts;
}

Status ForEachWebpFrame(const ImageFile& file, const FrameSink& sink) {
  // The size is checked against the limits before the decoder allocates its canvases.
  const WebPData data = DataOf(file);
  KU_ASSIGN_OR_RETURN(const WebPBitstreamFeatures features, FeaturesOf(file));
  KU_ASSIGN_OR_RETURN(Picture picture, file.NewPicture(features.width, features.height));
  const Decoder decoder(WebPAnimDecoderNew(&data, nullptr));
  WebPAnimInfo info;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0 ||
      info.canvas_width != static_cast<uint32_t>(picture.width) ||
      info.canvas_height != static_cast<uint32_t>(picture.height)) {
    return file.Undecodable("WebP", "its parts do not fit together");
  }
  for (int index = 0; WebPAnimDecoderHasMoreFrames(decoder.get()) != 0; ++index) {
    uint8_t* rgba = nullptr;
    int end_milliseconds = 0;
    if (WebPAnimDecoderGetNext(decoder.get(), &rgba, &end_milliseconds) == 0) {
      return file.Undecodable("WebP", "frame " + std::to_string(index) + " is damaged");
    }
    ToRgb(rgba, picture.rgb.size() / 3, features.has_alpha != 0, picture.rgb.data());
    KU_ASSIGN_OR_RETURN(const bool more, sink(index, picture));
    if (!more) break;
  }
  return OkStatus();
}

StatusOr<StoredPicture> DecodeWebp(const ImageFile& file) {
  KU_ASSIGN_OR_RETURN(const WebPBitstreamFeatures features, FeaturesOf(file));
  StoredPicture stored;
  KU_ASSIGN_OR_RETURN(stored.picture, file.NewPicture(features.width, features.height));
  KU_ASSIGN_OR_RETURN(const Demuxer demuxer, OpenDemuxer(file));
  WebPIterator frame = {};
  const std::unique_ptr<WebPIterator, ReleaseFrame> release(&frame);
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) {
    return file.Undecodable("WebP", "it holds no picture");
  }
  KU_RETURN_IF_ERROR(DecodeFirst(file, frame, features.has_alpha != 0, &stored.picture));
  stored.exif = Chunk(demuxer.get(), "EXIF");
  stored.xmp = Chunk(demuxer.get(), "XMP ");
  return stored;
}

}  // namespace kuiper
