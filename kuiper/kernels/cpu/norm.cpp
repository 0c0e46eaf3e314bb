// RmsNorm, in FP32 throughout: x * (1 / sqrt(mean(x^2) + eps)) * weight. Parallel
// over rows; moves each row twice (the second time from L1), bound by memory.
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

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(RmsNormRow);

void Run(const Resources& resources, const RmsNormArgs& args) {
  const auto norm = HWY_DYNAMIC_DISPATCH(RmsNormRow);
  const int n = static_cast<int>(args.x.shape[1]);
  ForEachItem(resources.pool, args.x.rows(), args.x.numel(), [&](int64_t t, int) {
    norm(args.out.row<float>(t), args.x.row<float>(t), args.weight, n, args.eps);
  });
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
