// A linear layer as the kernels see it: y = x W^T + b. Weights that share their input (q, k, v;
// gate, up) are parts of one Linear whose outputs are concatenated. Checkpoints can thus be used in
// the mapped file, without concatenating the matrices.
#pragma once

#include "kuiper/base/host_device.h"
#include "kuiper/base/tensor.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper {

struct Linear {
  static constexpr int kMaxParts = 3;
  struct Part {
    WeightMatrix weight;  // [out_i, in]; all parts have the same format
    Tensor bias;          // [out_i] or empty; any float type
  };

  int in = 0;
  int out = 0;  // sum of the parts' out
  int num_parts = 0;
  Part parts[kMaxParts];

  WeightFormat format() const { return parts[0].weight.format; }
};

// How the sums y = x W^T + b [T, w.out] are written.
enum class Epilogue {
  kStore,     // out [T, w.out] = y
  kAdd,       // out [T, w.out] += y
  kSwiGlu,    // out [T, w.out / 2] = silu(gate) * up, for the parts gate and up of the same size
  kGeluTanh,  // out [T, w.out] = y / (1 + exp(-2 sqrt(2 / pi) (y + 0.044715 y^3)))
  kGeluErf,   // out [T, w.out] = y (1 + erf(y / sqrt(2))) / 2
};

KU_HOST_DEVICE constexpr bool IsGelu(Epilogue epilogue) {
  return epilogue == Epilogue::kGeluTanh || epilogue == Epilogue::kGeluErf;
}

inline int OutputColumns(const Linear& w, Epilogue epilogue) {
  return epilogue == Epilogue::kSwiGlu ? w.out / 2 : w.out;
}

}  // namespace kuiper
