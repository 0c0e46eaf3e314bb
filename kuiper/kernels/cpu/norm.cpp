// RmsNorm, in FP32 throughout: x * (1 / sqrt(mean(x^2) + eps)) * weight, and LayerNorm, which first
// subtracts the mean. Parallel over rows and bound by memory: RmsNorm moves each row twice,
// LayerNorm three times (from L1 except for the first time).
#include <cmath>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/norm.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

void RmsNormRow(float* out, const float* x, Tensor weight, int n, float eps) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const VF scale = hn::Set(DF(), 1.0f / std::sqrt(mean + eps));
  VisitFloat(weight.dtype, [&](auto zero) HWY_ATTR {
    const auto* w = static_cast<const decltype(zero)*>(weight.data);
    MapElements(out, n,
                [&](auto load) HWY_ATTR { return hn::Mul(hn::Mul(load(x), scale), load(w)); });
  });
}

// Computes the variance from out = x - mean, so that a large mean does not hide it.
void LayerNormRow(float* out, const float* x, Tensor weight, Tensor bias, int n, float eps) {
  const DF d;
  const VF mean = hn::Set(d, SumOf(x, n) / static_cast<float>(n));
  MapElements(out, n, [&](auto load) HWY_ATTR { return hn::Sub(load(x), mean); });
  const float variance = SumOfSquares(out, n) / static_cast<float>(n);
  const VF scale = hn::Set(d, 1.0f / std::sqrt(variance + eps));
  const float* centered = out;
  VisitFloat(weight.dtype, [&](auto zero) HWY_ATTR {
    const auto* w = static_cast<const decltype(zero)*>(weight.data);
    MapElements(out, n, [&](auto load) HWY_ATTR {
      return hn::Mul(hn::Mul(load(centered), scale), load(w));
    });
  });
  VisitFloat(bias.dtype, [&](auto zero) HWY_ATTR {
    const auto* b = static_cast<const decltype(zero)*>(bias.data);
    MapElements(out, n, [&](auto load) HWY_ATTR { return hn::Add(load(centered), load(b)); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);

void Run(const Resources& resources, const RmsNormArgs& args) {
  const auto norm = HWY_DYNAMIC_DISPATCH(RmsNormRow);
  const int n = static_cast<int>(args.x.shape[1]);
  ForEachItem(resources.pool, args.x.rows(), args.x.numel(), [&](int64_t t, int) {
    norm(args.out.row<float>(t), args.x.row<float>(t), args.weight, n, args.eps);
  });
}

void Run(const Resources& resources, const LayerNormArgs& args) {
  const auto norm = HWY_DYNAMIC_DISPATCH(LayerNormRow);
  const int n = static_cast<int>(args.x.shape[1]);
  ForEachItem(resources.pool, args.x.rows(), args.x.numel(), [&](int64_t t, int) {
    norm(args.out.row<float>(t), args.x.row<float>(t), args.weight, args.bias, n, args.eps);
  });
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
