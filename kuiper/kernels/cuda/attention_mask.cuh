// Which keys a query sees and what ALiBi adds to its scores: AttnOptions as the kernels read it.
#pragma once

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/ops.h"

namespace kuiper::KU_GPU {

constexpr float kLog2E = 1.44269504f;

// Positions [begin, end) of a sequence.
struct KeyRange {
  int begin, end;
};

struct AttnMask {
  bool causal = true;
  int window = 0;                 // tokens; 0: no limit
  const float* slopes = nullptr;  // [query heads]; null: no ALiBi

  // The keys that the query at `pos` sees in a sequence of `len` tokens: never none. Neither end
  // falls when `pos` rises.
  __device__ __forceinline__ KeyRange Keys(int pos, int len) const {
    KeyRange keys{0, causal ? pos + 1 : len};
    if (window > 0) {
      if (pos - window + 1 > 0) keys.begin = pos - window + 1;
      if (window < keys.end - pos) keys.end = pos + window;
    }
    return keys;
  }
  // Of a query head, in the scale of exp2.
  __device__ __forceinline__ float Slope(int head) const { return slopes[head] * kLog2E; }
};

inline AttnMask AsMask(const AttnOptions& options) {
  return {options.causal, options.window, static_cast<const float*>(options.alibi_slopes.data)};
}

}  // namespace kuiper::KU_GPU
