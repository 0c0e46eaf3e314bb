// The memory of a vision encoder: device memory for the computation of a pass, and pinned host
// memory from which patches and layout are uploaded. Allocated once; every pass uses the first
// rows.
//
// Dimensions: N patches of a pass, P rows of a panel. Layers with wide rows run panel by panel.
#pragma once

#include <cstddef>
#include <span>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/model/vision_config.h"
#include "kuiper/ops/compute_device.h"
#include "kuiper/ops/op_args.h"

namespace kuiper {

struct VisionWorkspace {
  Buffer arena, staging;
  int max_patches = 0;
  int panel_rows = 0;

  Tensor residual;  // [N, H] f32
  Tensor x;         // [P, H], output of a norm
  Tensor qkv;       // [N, 3H]
  Tensor attn;      // [N, H]
  // [P * max(intermediate, patch_values, H)]: patches, or intermediate values of an MLP or merger.
  Tensor wide;
  RopeTable rope;
  // Per-pass inputs, filled by UploadLayout.
  Tensor positions;   // [2, N] i32: rows, then columns
  Tensor corners;     // [N, kCorners] i32
  Tensor weights;     // [N, kCorners] f32
  Tensor slots;       // [N] i32
  Tensor cu_seqlens;  // [frames + 1] i32
  Tensor kv_lens;     // [frames] i32
  Tensor cache_rows;  // [frames] i32

  // Returns the bytes of arena and staging memory.
  static MemorySize Bytes(const VisionEncoderConfig& config, DType activation_type,
                          int max_patches);
  static int PanelRows(const VisionEncoderConfig& config, int max_patches);
  static StatusOr<VisionWorkspace> Make(ComputeDevice& device, const VisionEncoderConfig& config,
                                        DType activation_type, int max_patches);
  // Fills the per-pass inputs for `frames` frames of h * w patches.
  void UploadLayout(ComputeDevice& device, const VisionEncoderConfig& config, int frames, int h,
                    int w);
  // Uploads these patches to `wide` and returns them as [rows, patch_values].
  Tensor UploadPatches(ComputeDevice& device, std::span<const float> values, int64_t rows);
  // Returns the first rows * columns elements of `wide` as a matrix.
  Tensor Wide(int64_t rows, int64_t columns) const;

 private:
  // Device mark after which staging may be overwritten.
  int64_t uploaded_ = 0;
  bool is_uploading_ = false;

  char* Staging(ComputeDevice& device);
};

}  // namespace kuiper
