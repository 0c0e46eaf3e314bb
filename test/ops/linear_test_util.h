// Helpers for the tests of the CPU linear layer.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kuiper/kernels/cpu/linear/cpu_linear.h"

namespace kuiper::cpu {

// True for instruction sets with fused multiply-adds; the others round F32 and F16 products.
inline bool HasFma(const std::string& set) {
  return set.rfind("AVX", 0) == 0 || set == "NEON";
}
// True for instruction sets that are slow enough to be given fewer cases.
inline bool IsSlow(const std::string& set) {
  return !HasFma(set);
}

inline float Random(std::mt19937& rng, float scale) {
  return (static_cast<float>(rng() >> 8) * 0x1p-23f - 1.0f) * scale;
}

inline std::vector<float> RandomX(int rows, int k, uint32_t seed, float scale = 3.0f) {
  std::mt19937 rng(seed);
  std::vector<float> x(static_cast<size_t>(rows) * k);
  for (float& v : x) v = Random(rng, scale);
  return x;
}

class Runner {
 public:
  Runner(int threads, const std::string& set, int max_tokens, int max_features)
      : pool_(threads), linear_(pool_, set) {
    EXPECT_TRUE(linear_.Reserve(max_tokens, max_features).ok());
  }
  // Runs w on x [T, w.in], contiguous, and returns [T, w.out].
  std::vector<float> Run(const float* x, int tokens, const Linear& w) {
    std::vector<float> y(static_cast<size_t>(tokens) * w.out, NAN);
    linear_.Apply(Tensor::Dense(y.data(), DType::kF32, {tokens, w.out}),
                  Tensor::Dense(const_cast<float*>(x), DType::kF32, {tokens, w.in}), w);
    return y;
  }
  CpuLinear& linear() { return linear_; }

 private:
  ThreadPool pool_;
  CpuLinear linear_;
};

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace kuiper::cpu
