// The memory of a vision encoder: what a pass computes with on the device, and pinned host memory
// from which its patches and numbers are uploaded. Allocated once; every pass uses the first rows.
//
// N patches of a pass, P rows of a panel: layers whose rows are wide run panel by panel.
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
  Tensor x;         // [P, H], what a norm gives
  Tensor qkv;       // [N, 3H]
  Tensor attn;      // [N, H]
  Tensor wide;      // [P * max(intermediate, patch_values, H)]: patches, or within an MLP or merger
  RopeTable rope;
  // Of a pass, which Upload fills.
  Tensor positions;   // [2, N] i32: rows, then columns
  Tensor corners;     // [N, kCorners] i32
  Tensor weights;     // [N, kCorners] f32
  Tensor slots;       // [N] i32
  Tensor cu_seqlens;  // [frames + 1] i32
  Tensor kv_lens;     // [frames] i32
  Tensor cache_rows;  // [frames] i32

  // Bytes of arena and staging.
  static MemorySize Bytes(const VisionTowerConfig& config, DType activation_type, int max_patches);
  static int PanelRows(const VisionTowerConfig& config, int max_patches);
  static StatusOr<VisionWorkspace> Make(ComputeDevice& device, const VisionTowerConfig& config,
                                        DType activation_type, int max_patches);
  // Makes the pass one of `frames` frames of h * w patches.
  void UploadLayout(ComputeDevice& device, const VisionTowerConfig& config, int frames, int h,
                    int w);
  // -> [rows, patch_values] in `wide`: these patches.
  Tensor UploadPatches(ComputeDevice& device, std::span<const float> values, int64_t rows);
  // The first rows * columns elements of `wide` as a matrix.
  Tensor Wide(int64_t rows, int64_t columns) const;

 private:
  // Staging may be written again behind it.
  int64_t uploaded_ = 0;
  bool is_uploading_ = false;

  char* Staging(ComputeDevice& device);
};

}  // namespace kuiper
