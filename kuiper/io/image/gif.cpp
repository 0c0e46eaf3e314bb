// Decodes GIF with giflib, frame by frame. Frames are composed as in Pillow. If the first frame has
// a transparent index, transparent pixels are white; otherwise they have the palette's colour for
// that index. Disposal to the background does the same.
#include <gif_lib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/io/image/codecs.h"

namespace kuiper {
namespace {

struct Rgb {
  uint8_t r = 0, g = 0, b = 0;
};

// The colours of a frame. A missing palette, or one that only counts up, means grey values.
class Palette {
 public:
  explicit Palette(const ColorMapObject* map) {
    if (map == nullptr || map->Colors == nullptr) return;
    const std::span colors(map->Colors, static_cast<size_t>(std::clamp(map->ColorCount, 0, 256)));
    for (size_t i = 0; i < colors.size(); ++i) {
      const GifColorType& color = colors[i];
      colors_[i] = {color.Red, color.Green, color.Blue};
      is_gray_ = is_gray_ && color.Red == i && color.Green == i && color.Blue == i;
    }
    size_ = colors.size();
  }

  Rgb At(size_t index) const {
    const auto gray = static_cast<uint8_t>(index);
    if (index == white_) return Rgb{255, 255, 255};
    return is_gray_ ? Rgb{gray, gray, gray} : colors_[index];
  }
  // For backgrounds: an index without a colour means the first colour.
  Rgb AtOrFirst(size_t index) const {
    return At(!is_gray_ && index >= size_ && index != white_ ? 0 : index);
  }
  // Makes the colour of `index` white, even if the file has none for it.
  void MakeWhite(size_t index) { white_ = index; }

 private:
  bool is_gray_ = true;
  size_t size_ = 0;
  std::optional<size_t> white_;
  Rgb colors_[256];
};

// The description of one frame; its pixels follow in the file.
struct FrameHead {
  int left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  std::optional<uint8_t> transparent;  // index
  int disposal = DISPOSAL_UNSPECIFIED;
  int milliseconds = 0;
  Palette palette{nullptr};
};

class GifReader {
 public:
  explicit GifReader(const ImageFile& file) : file_(file), rest_(file.bytes) {}
  ~GifReader() { DGifCloseFile(gif_, nullptr); }
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;

  Status Open() {
    int error = 0;
    gif_ = DGifOpen(this, Read, &error);
    return gif_ != nullptr ? OkStatus() : Failed(error);
  }
  // Returns nothing after the last frame.
  StatusOr<std::optional<FrameHead>> Next();
  Status SkipPixels();
  // Returns [height, width] palette indices.
  StatusOr<std::vector<uint8_t>> ReadPixels(const FrameHead& head);

  int width() const { return gif_->SWidth; }
  int height() const { return gif_->SHeight; }
  // Index of the background's colour if there is a global palette, otherwise 0.
  size_t background() const {
    return gif_->SColorMap != nullptr ? static_cast<size_t>(gif_->SBackGroundColor) : 0;
  }

 private:
  static int Read(GifFileType* gif, GifByteType* out, int bytes) {
    auto* reader = static_cast<GifReader*>(gif->UserData);
    const size_t count = std::min(static_cast<size_t>(bytes), reader->rest_.size());
    std::memcpy(out, reader->rest_.data(), count);
    reader->rest_.remove_prefix(count);
    return static_cast<int>(count);
  }
  Status Failed(int error) const {
    const char* text = GifErrorString(error);
    return file_.Undecodable("GIF", text != nullptr ? text : "giflib gives no reason");
  }
  Status ReadExtension(FrameHead* head);

  const ImageFile& file_;
  std::string_view rest_;
  GifFileType* gif_ = nullptr;
};

Status GifReader::ReadExtension(FrameHead* head) {
  int code = 0;
  GifByteType* data = nullptr;
  if (DGifGetExtension(gif_, &code, &data) != GIF_OK) return Failed(gif_->Error);
  GraphicsControlBlock control;
  if (code == GRAPHICS_EXT_FUNC_CODE && data != nullptr &&
      DGifExtensionToGCB(data[0], data + 1, &control) == GIF_OK) {
    head->transparent.reset();
    if (control.TransparentColor != NO_TRANSPARENT_COLOR) {
      head->transparent = static_cast<uint8_t>(control.TransparentColor);
    }
    head->disposal = control.DisposalMode;
    head->milliseconds = control.DelayTime * 10;
  }
  while (data != nullptr) {
    if (DGifGetExtensionNext(gif_, &data) != GIF_OK) return Failed(gif_->Error);
  }
  return OkStatus();
}

StatusOr<std::optional<FrameHead>> GifReader::Next() {
  FrameHead head;
  while (true) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    // Many files lack the final byte.
    if (rest_.empty()) return std::optional<FrameHead>();
    if (DGifGetRecordType(gif_, &type) != GIF_OK) return Failed(gif_->Error);
    if (type == TERMINATE_RECORD_TYPE) return std::optional<FrameHead>();
    if (type == EXTENSION_RECORD_TYPE) {
      KU_RETURN_IF_ERROR(ReadExtension(&head));
    } else if (type == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(gif_) != GIF_OK) return Failed(gif_->Error);
      const GifImageDesc& image = gif_->Image;
      head.left = image.Left;
      head.top = image.Top;
      head.width = image.Width;
      head.height = image.Height;
      head.interlaced = image.Interlace;
      head.palette = Palette(image.ColorMap != nullptr ? image.ColorMap : gif_->SColorMap);
      return std::optional(head);
    }
  }
}

Status GifReader::SkipPixels() {
  int code_size = 0;
  GifByteType* block = nullptr;
  if (DGifGetCode(gif_, &code_size, &block) != GIF_OK) return Failed(gif_->Error);
  while (block != nullptr) {
    if (DGifGetCodeNext(gif_, &block) != GIF_OK) return Failed(gif_->Error);
  }
  return OkStatus();
}

StatusOr<std::vector<uint8_t>> GifReader::ReadPixels(const FrameHead& head) {
  const size_t width = static_cast<size_t>(head.width);
  KU_ASSIGN_OR_RETURN(std::vector<uint8_t> indices,
                      NewBytes(width * static_cast<size_t>(head.height), file_.name, file_.watch));
  const auto read_rows = [&](int first, int step) {
    for (int y = first; y < head.height; y += step) {
      if (!file_.watch.MayContinue(head.width)) return false;
      if (DGifGetLine(gif_, indices.data() + static_cast<size_t>(y) * width, head.width) !=
          GIF_OK) {
        return false;
      }
    }
    return true;
  };
  const bool complete =
      head.interlaced ? read_rows(0, 8) && read_rows(4, 8) && read_rows(2, 4) && read_rows(1, 2)
                      : read_rows(0, 1);
  if (!file_.watch.MayContinue()) return DecodingStopped(file_.name);
  if (!complete) return Failed(gif_->Error);
  return indices;
}

// The image as shown: all frames so far, composed.
class Canvas {
 public:
  Canvas(const ImageFile& file, size_t background) : file_(file), background_(background) {}

  // Makes the transparent index of `head` white if the canvas has transparent pixels, which depends
  // on its first frame. Otherwise that index is shown in its colour.
  void Whiten(FrameHead* head) {
    if (first_) is_transparent_ = head->transparent.has_value();
    if (is_transparent_ && head->transparent.has_value()) {
      head->palette.MakeWhite(*head->transparent);
    }
  }
  // Clears what the last frame's disposal demands, then draws `head` over the canvas.
  Status Show(const FrameHead& head, std::span<const uint8_t> indices);
  // Makes room for a frame that exceeds the picture; the first frame creates the picture.
  Status Grow(const FrameHead& head, int width, int height);
  const Picture& picture() const { return picture_; }
  Picture TakePicture() { return std::move(picture_); }

 private:
  void RememberDisposal(const FrameHead& head);
  template <typename ColorOf>
  void Fill(const FrameHead& head, const ColorOf& color_of);

  const ImageFile& file_;
  size_t background_;
  Picture picture_;
  // What replaces the last frame before the next one: a colour, or the pixels that were there.
  FrameHead last_;
  std::optional<Rgb> clear_to_;
  std::vector<uint8_t> saved_;           // [height, width, 3] of last_
  int disposal_ = DISPOSAL_UNSPECIFIED;  // a frame without a disposal keeps the previous one
  bool first_ = true;
  bool is_transparent_ = false;
};

// Stops early if the caller no longer waits. color_of(i) is the colour of pixel i of the frame
// [height, width]; nothing keeps the old pixel.
template <typename ColorOf>
void Canvas::Fill(const FrameHead& head, const ColorOf& color_of) {
  size_t i = 0;
  for (int y = 0; y < head.height && file_.watch.MayContinue(); ++y) {
    uint8_t* out = picture_.row(head.top + y) + static_cast<ptrdiff_t>(head.left) * 3;
    for (int x = 0; x < head.width; ++x, ++i, out += 3) {
      const std::optional<Rgb> color = color_of(i);
      if (!color.has_value()) continue;
      out[0] = color->r;
      out[1] = color->g;
      out[2] = color->b;
    }
  }
}

Status Canvas::Grow(const FrameHead& head, int width, int height) {
  const int needed_width = std::max(width, head.left + head.width);
  const int needed_height = std::max(height, head.top + head.height);
  if (!first_ && needed_width <= picture_.width && needed_height <= picture_.height) {
    return OkStatus();
  }
  KU_ASSIGN_OR_RETURN(Picture grown, file_.NewPicture(std::max(needed_width, picture_.width),
                                                      std::max(needed_height, picture_.height)));
  const Picture old = std::exchange(picture_, std::move(grown));
  // The area around the first frame has its transparent index; around later ones it is transparent.
  std::optional<Rgb> around = head.palette.At(head.transparent.value_or(0));
  if (!first_ && head.transparent.has_value()) around = Rgb{255, 255, 255};
  FrameHead all;
  all.width = picture_.width;
  all.height = picture_.height;
  Fill(all, [&](size_t) { return around; });
  for (int y = 0; y < old.height; ++y) std::copy_n(old.row(y), old.row_bytes(), picture_.row(y));
  return OkStatus();
}

void Canvas::RememberDisposal(const FrameHead& head) {
  last_ = head;
  if (head.disposal != DISPOSAL_UNSPECIFIED) disposal_ = head.disposal;
  clear_to_.reset();
  saved_.clear();
  const size_t clear_index = head.transparent.value_or(static_cast<uint8_t>(background_));
  if (disposal_ == DISPOSE_BACKGROUND) {
    clear_to_ = first_ ? head.palette.At(clear_index) : head.palette.AtOrFirst(clear_index);
  } else if (disposal_ > DISPOSE_BACKGROUND && first_) {
    if (head.transparent.has_value()) clear_to_ = head.palette.At(clear_index);
  } else if (disposal_ > DISPOSE_BACKGROUND) {
    for (int y = 0; y < head.height; ++y) {
      const uint8_t* row = picture_.row(head.top + y) + static_cast<ptrdiff_t>(head.left) * 3;
      saved_.insert(saved_.end(), row, row + static_cast<ptrdiff_t>(head.width) * 3);
    }
  }
}

Status Canvas::Show(const FrameHead& head, std::span<const uint8_t> indices) {
  if (clear_to_.has_value()) Fill(last_, [&](size_t) { return clear_to_; });
  if (!saved_.empty()) {
    Fill(last_, [&](size_t i) {
      return std::optional(Rgb{saved_[3 * i], saved_[3 * i + 1], saved_[3 * i + 2]});
    });
  }
  RememberDisposal(head);
  Fill(head, [&](size_t i) -> std::optional<Rgb> {
    if (!first_ && head.transparent == indices[i]) return std::nullopt;
    return head.palette.At(indices[i]);
  });
  first_ = false;
  return file_.watch.MayContinue() ? OkStatus() : DecodingStopped(file_.name);
}

// Reads the next frame and shows it. Returns false after the last one.
StatusOr<bool> ShowNext(GifReader* reader, Canvas* canvas) {
  KU_ASSIGN_OR_RETURN(std::optional<FrameHead> head, reader->Next());
  if (!head.has_value()) return false;
  canvas->Whiten(&*head);
  KU_RETURN_IF_ERROR(canvas->Grow(*head, reader->width(), reader->height()));
  KU_ASSIGN_OR_RETURN(const std::vector<uint8_t> indices, reader->ReadPixels(*head));
  KU_RETURN_IF_ERROR(canvas->Show(*head, indices));
  return true;
}

Status NoImageError(const ImageFile& file) {
  return file.Undecodable("GIF", "it holds no picture");
}

}  // namespace

// Returns the size of the canvas after it made room for the first frame.
StatusOr<PictureSize> GifSize(const ImageFile& file) {
  GifReader reader(file);
  KU_RETURN_IF_ERROR(reader.Open());
  KU_ASSIGN_OR_RETURN(const std::optional<FrameHead> head, reader.Next());
  if (!head.has_value()) return NoImageError(file);
  return PictureSize{.height = std::max(reader.height(), head->top + head->height),
                     .width = std::max(reader.width(), head->left + head->width)};
}

StatusOr<AnimationFacts> GifFacts(const ImageFile& file) {
  GifReader reader(file);
  KU_RETURN_IF_ERROR(reader.Open());
  AnimationFacts facts;
  while (true) {
    KU_ASSIGN_OR_RETURN(const std::optional<FrameHead> head, reader.Next());
    if (!head.has_value()) return facts;
    KU_RETURN_IF_ERROR(reader.SkipPixels());
    ++facts.num_frames;
    facts.seconds += FrameSeconds(head->milliseconds);
  }
}

Status ForEachGifFrame(const ImageFile& file, const FrameSink& sink) {
  GifReader reader(file);
  KU_RETURN_IF_ERROR(reader.Open());
  Canvas canvas(file, reader.background());
  for (int index = 0;; ++index) {
    KU_ASSIGN_OR_RETURN(const bool is_shown, ShowNext(&reader, &canvas));
    if (!is_shown) return OkStatus();
    KU_ASSIGN_OR_RETURN(const bool more, sink(index, canvas.picture()));
    if (!more) return OkStatus();
  }
}

StatusOr<StoredPicture> DecodeGif(const ImageFile& file) {
  GifReader reader(file);
  KU_RETURN_IF_ERROR(reader.Open());
  Canvas canvas(file, reader.background());
  KU_ASSIGN_OR_RETURN(const bool is_shown, ShowNext(&reader, &canvas));
  if (!is_shown) return NoImageError(file);
  StoredPicture stored;
  stored.picture = canvas.TakePicture();
  return stored;
}

}  // namespace kuiper
