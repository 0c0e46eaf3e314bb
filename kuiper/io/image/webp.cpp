// WebP by libwebp, pictures and animations alike through its decoder of animations, as in Pillow.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct DeleteDecoder {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
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

// The chunk's content, "" when there is none.
std::string Chunk(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator chunk;
  std::string content;
  if (WebPDemuxGetChunk(demuxer, name, 1, &chunk) != 0) {
    content.assign(reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return content;
}

}  // namespace

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

Status PlayWebp(const ImageFile& file, const FrameSink& sink) {
  // The size is known, and within limits, before the decoder makes its canvases.
  WebPBitstreamFeatures features;
  const WebPData data = DataOf(file);
  if (WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK) {
    return file.Undecodable("WebP", "its header is damaged");
  }
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
    const size_t num_pixels = picture.rgb.size() / 3;
    if (features.has_alpha != 0) {
      LayOnWhite(rgba, num_pixels, picture.rgb.data());
    } else {
      for (size_t i = 0; i < num_pixels; ++i) std::copy_n(rgba + 4 * i, 3, &picture.rgb[3 * i]);
    }
    KU_ASSIGN_OR_RETURN(const bool more, sink(index, picture));
    if (!more) break;
  }
  return OkStatus();
}

StatusOr<StoredPicture> DecodeWebp(const ImageFile& file) {
  StoredPicture stored;
  KU_RETURN_IF_ERROR(PlayWebp(file, [&](int, const Picture& frame) -> StatusOr<bool> {
    stored.picture = frame;
    return false;
  }));
  if (stored.picture.rgb.empty()) return file.Undecodable("WebP", "it holds no picture");
  KU_ASSIGN_OR_RETURN(const Demuxer demuxer, OpenDemuxer(file));
  stored.exif = Chunk(demuxer.get(), "EXIF");
  stored.xmp = Chunk(demuxer.get(), "XMP ");
  return stored;
}

}  // namespace kuiper
