#include "kuiper/model/vision_workspace.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/vision_layout.h"

namespace kuiper {
namespace {

constexpr int kPanelRows = 2048;

// Calls f(tensor, type, rows, columns) for each tensor of the arena; columns < 1 means a vector.
template <typename F>
void ForTensors(VisionWorkspace& s, const VisionEncoderConfig& c, DType type, int max_patches,
                const F& f) {
  const int64_t n = max_patches, panel = VisionWorkspace::PanelRows(c, max_patches);
  const int64_t frames = n / c.merge_unit();
  const int64_t widest = std::max({c.intermediate, c.patch_values(), c.hidden});
  f(s.residual, DType::kF32, n, c.hidden);
  f(s.x, type, panel, c.hidden);
  f(s.qkv, type, n, 3 * c.hidden);
  f(s.attn, type, n, c.hidden);
  f(s.wide, type, panel * widest, 0);
  // The shorter side of a frame has at least `merge` patches.
  f(s.rope.cos_sin, DType::kF32, n / c.merge, c.head_dim());
  f(s.rope.axis_of_pair, DType::kI32, c.head_dim() / 2, 0);
  f(s.positions, DType::kI32, 2, n);
  f(s.corners, DType::kI32, n, kCorners);
  f(s.weights, DType::kF32, n, kCorners);
  f(s.slots, DType::kI32, n, 0);
  f(s.cu_seqlens, DType::kI32, frames + 1, 0);
  f(s.kv_lens, DType::kI32, frames, 0);
  f(s.cache_rows, DType::kI32, frames, 0);
}

// Returns the bytes of a tensor in the arena, with padding.
size_t Padded(DType type, int64_t rows, int64_t columns) {
  constexpr size_t kAlign = 256;
  const size_t bytes = static_cast<size_t>(rows * std::max<int64_t>(columns, 1)) * DTypeBytes(type);
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Returns the bytes of a pass's layout data, stored one array after the other.
int64_t LayoutBytes(const VisionEncoderConfig& c, int64_t patches) {
  return 4 * (patches * (2 + 2 * kCorners + 1) + 3 * (patches / c.merge_unit()) + 1);
}

}  // namespace

int VisionWorkspace::PanelRows(const VisionEncoderConfig& c, int max_patches) {
  return std::min(max_patches, kPanelRows / c.merge_unit() * c.merge_unit());
}

MemorySize VisionWorkspace::Bytes(const VisionEncoderConfig& c, DType type, int max_patches) {
  MemorySize size;
  VisionWorkspace unused;
  ForTensors(unused, c, type, max_patches, [&](Tensor&, DType t, int64_t rows, int64_t columns) {
    size.device += Padded(t, rows, columns);
  });
  const int64_t patches = int64_t{PanelRows(c, max_patches)} * c.patch_values() *
                          static_cast<int64_t>(DTypeBytes(type));
  size.host = static_cast<size_t>(std::max(patches, LayoutBytes(c, max_patches)));
  return size;
}

StatusOr<VisionWorkspace> VisionWorkspace::Make(ComputeDevice& device, const VisionEncoderConfig& c,
                                                DType type, int max_patches) {
  VisionWorkspace s;
  const MemorySize bytes = Bytes(c, type, max_patches);
  KU_ASSIGN_OR_RETURN(s.arena, device.Allocate(bytes.device));
  KU_ASSIGN_OR_RETURN(s.staging, device.AllocatePinned(bytes.host));
  s.max_patches = max_patches;
  s.panel_rows = PanelRows(c, max_patches);
  size_t next = 0;
  ForTensors(s, c, type, max_patches, [&](Tensor& to, DType t, int64_t rows, int64_t columns) {
    to = columns > 0 ? s.arena.As(t, {rows, columns}, next) : s.arena.As(t, {rows}, next);
    next += Padded(t, rows, columns);
  });
  const auto upload = [&device](const Tensor& to, const void* from) {
    Tensor host = to;
    host.data = const_cast<void*>(from);
    host.device = Device();
    device.Upload(to, host);
    device.Sync();
  };
  const int sides = static_cast<int>(s.rope.cos_sin.rows());
  upload(s.rope.cos_sin, VisionCosSin(c.head_dim(), sides).data());
  upload(s.rope.axis_of_pair, VisionAxes(c.head_dim()).data());
  return s;
}

char* VisionWorkspace::Staging(ComputeDevice& device) {
  if (is_uploading_) device.WaitFor(uploaded_);
  is_uploading_ = true;
  return static_cast<char*>(staging.data());
}

void VisionWorkspace::UploadLayout(ComputeDevice& device, const VisionEncoderConfig& c, int frames,
                                   int h, int w) {
  const int64_t per_frame = int64_t{h} * w, n = frames * per_frame;
  auto* next = reinterpret_cast<int32_t*>(Staging(device));
  const auto take = [&next](int64_t count) { return std::exchange(next, next + count); };
  int32_t* const host_positions = take(2 * n);
  int32_t* const host_corners = take(n * kCorners);
  auto* const host_weights = reinterpret_cast<float*>(take(n * kCorners));
  LayOutFrame(c, h, w, {host_positions, host_positions + n, host_corners, host_weights});
  for (int frame = 1; frame < frames; ++frame) {  // repeats the first frame's data
    std::copy_n(host_positions, per_frame, host_positions + frame * per_frame);
    std::copy_n(host_positions + n, per_frame, host_positions + n + frame * per_frame);
    const int64_t corner = frame * per_frame * kCorners;
    std::copy_n(host_corners, per_frame * kCorners, host_corners + corner);
    std::copy_n(host_weights, per_frame * kCorners, host_weights + corner);
  }
  // Frame f is row f + 1 of a contiguous cache whose tokens are the rows of qkv.
  int32_t* const host_slots = take(n);
  for (int64_t i = 0; i < n; ++i) host_slots[i] = static_cast<int32_t>(per_frame + i);
  int32_t* const host_cu = take(frames + 1);
  int32_t* const host_lens = take(frames);
  int32_t* const host_rows = take(frames);
  for (int frame = 0; frame <= frames; ++frame) {
    host_cu[frame] = static_cast<int32_t>(frame * per_frame);
  }
  for (int frame = 0; frame < frames; ++frame) {
    host_lens[frame] = static_cast<int32_t>(per_frame);
    host_rows[frame] = frame + 1;
  }
  const auto upload = [&device](Tensor& to, const void* from, int64_t count) {
    to = Tensor::Dense(to.data, to.dtype, {count}, to.device);
    device.Upload(to, Tensor::Dense(const_cast<void*>(from), to.dtype, {count}));
  };
  const auto upload_matrix = [&](Tensor& to, const void* from, int64_t rows, int64_t columns) {
    upload(to, from, rows * columns);
    to = Tensor::Dense(to.data, to.dtype, {rows, columns}, to.device);
  };
  upload_matrix(positions, host_positions, 2, n);
  upload_matrix(corners, host_corners, n, kCorners);
  upload_matrix(weights, host_weights, n, kCorners);
  upload(slots, host_slots, n);
  upload(cu_seqlens, host_cu, frames + 1);
  upload(kv_lens, host_lens, frames);
  upload(cache_rows, host_rows, frames);
  uploaded_ = device.Mark();
}

Tensor VisionWorkspace::UploadPatches(ComputeDevice& device, std::span<const float> values,
                                      int64_t rows) {
  const auto count = static_cast<int64_t>(values.size());
  const Tensor to = Wide(rows, count / rows);
  char* const host = Staging(device);
  KU_CHECK(ConvertFloats(host, to.dtype, values.data(), DType::kF32, count),
           "patches are not finite numbers of FP16");
  device.Upload(to, Tensor::Dense(host, to.dtype, {rows, count / rows}));
  uploaded_ = device.Mark();
  return to;
}

Tensor VisionWorkspace::Wide(int64_t rows, int64_t columns) const {
  KU_CHECK(rows * columns <= wide.numel());
  return Tensor::Dense(wide.data, wide.dtype, {rows, columns}, wide.device);
}

}  // namespace kuiper
