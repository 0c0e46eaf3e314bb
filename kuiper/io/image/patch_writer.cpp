#include "kuiper/io/image/patch_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "kuiper/base/text.h"

namespace kuiper {

PatchGrid GridOf(const VisionConfig& config, int num_frames, PictureSize size) {
  const int temporal = config.temporal_patch_size;
  return {.t = (num_frames + temporal - 1) / temporal,
          .h = static_cast<int>(size.height) / config.patch_size,
          .w = static_cast<int>(size.width) / config.patch_size};
}

PatchWriter::PatchWriter(const VisionConfig& config, int num_frames, VisionInput* input,
                         const DecodingWatch& watch)
    : patch_size_(config.patch_size),
      temporal_(config.temporal_patch_size),
      merge_(config.merge_size),
      num_frames_(num_frames),
      input_(input),
      watch_(watch) {
  // As transformers' processor of Pillow images: scaled to [0, 1] in double precision, then float.
  for (size_t c = 0; c < 3; ++c) {
    for (int value = 0; value < 256; ++value) {
      const auto scaled = static_cast<float>(value * (1.0 / 255));
      values_[c][static_cast<size_t>(value)] = (scaled - config.mean[c]) / config.std[c];
    }
  }
  std::array<uint8_t, 28> header;
  const int fields[] = {patch_size_,   temporal_,     merge_,       num_frames,
                        input->grid.t, input->grid.h, input->grid.w};
  size_t at = 0;
  for (const int field : fields) {
    for (int shift = 0; shift < 32; shift += 8) header[at++] = static_cast<uint8_t>(field >> shift);
  }
  sha_.Update(header);
}

StatusOr<PatchWriter> PatchWriter::Create(const VisionConfig& config, int num_frames,
                                          PictureSize size, VisionInput* input,
                                          const DecodingWatch& watch) {
  KU_CHECK(
      num_frames > 0 && size.height % config.factor() == 0 && size.width % config.factor() == 0,
      "frames are not made of whole patches");
  input->grid = GridOf(config, num_frames, size);
  input->merge_size = config.merge_size;
  input->patch_size = config.patch_size;
  const auto num_values =
      static_cast<size_t>(input->grid.num_patches()) * static_cast<size_t>(config.patch_values());
  try {
    if (!MakeZeros(num_values, watch, &input->patches)) return DecodingStopped(input->source);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for the patches of " + input->source + ", which take " +
                      Megabytes(num_values * sizeof(float)),
                  "lower the budget of pixels");
  }
  return PatchWriter(config, num_frames, input, watch);
}

Status PatchWriter::Add(const Picture& frame) {
  KU_CHECK(frame_ < num_frames_, "more frames than announced");
  KU_CHECK(
      frame.width == input_->grid.w * patch_size_ && frame.height == input_->grid.h * patch_size_,
      "a frame has another size than announced");
  for (int y = 0; y < frame.height; ++y) {
    if (!watch_.MayContinue()) return DecodingStopped(input_->source);
    sha_.Update({frame.row(y), frame.row_bytes()});
  }
  const int group = frame_ / temporal_, place = frame_ % temporal_;
  ++frame_;
  const int end = frame_ == num_frames_ ? temporal_ : place + 1;
  for (int p = place; p < end; ++p) {
    if (!Write(frame, group, p)) return DecodingStopped(input_->source);
  }
  return OkStatus();
}

bool PatchWriter::Write(const Picture& frame, int group, int place) {
  const PatchGrid& grid = input_->grid;
  const size_t side = static_cast<size_t>(patch_size_);
  const size_t plane = static_cast<size_t>(temporal_) * side * side;  // values per colour
  const size_t group_values = input_->patches.size() / static_cast<size_t>(grid.t);
  float* group_patches = input_->patches.data() + static_cast<size_t>(group) * group_values;
  const size_t merge = static_cast<size_t>(merge_);
  const size_t blocks_per_row = static_cast<size_t>(grid.w / merge_);
  for (int y = 0; y < frame.height; ++y) {
    if (!watch_.MayContinue()) return false;
    const int patch_y = y / patch_size_;
    const size_t row = static_cast<size_t>(place) * side + static_cast<size_t>(y % patch_size_);
    const uint8_t* pixel = frame.row(y);
    for (int patch_x = 0; patch_x < grid.w; ++patch_x) {
      const size_t block = static_cast<size_t>(patch_y / merge_) * blocks_per_row +
                           static_cast<size_t>(patch_x / merge_);
      const size_t in_block =
          static_cast<size_t>(patch_y % merge_) * merge + static_cast<size_t>(patch_x % merge_);
      const size_t patch = block * merge * merge + in_block;
      float* out = group_patches + patch * 3 * plane + row * side;
      for (size_t x = 0; x < side; ++x, pixel += 3) {
        for (size_t c = 0; c < 3; ++c) out[c * plane + x] = values_[c][pixel[c]];
      }
    }
  }
  return true;
}

void PatchWriter::Finish() {
  KU_CHECK(frame_ == num_frames_, "fewer frames than announced");
  const Sha256::Digest whole = sha_.Finish();
  std::copy_n(whole.begin(), input_->digest.size(), input_->digest.begin());
}

}  // namespace kuiper
