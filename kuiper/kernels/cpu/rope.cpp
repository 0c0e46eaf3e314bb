// QkNormRope and StoreKv. Parallel over tokens; each touches its rows once, bound by memory.
#include <cmath>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/rope.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/kernels.h"
#include "kuiper/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// One token: `heads` [num_heads, head_dim] in place; weight [head_dim] or empty; cosine and sine
// [head_dim / 2]. Rotation: (a, b) -> (a cos - b sin, b cos + a sin), each product rounded.
void NormRotateHeads(float* heads, int num_heads, int head_dim, Tensor weight, float eps,
                     const float* cosine, const float* sine) {
  const DF d;
  const int half = head_dim / 2;
  for (int h = 0; h < num_heads; ++h) {
    float* x = heads + static_cast<int64_t>(h) * head_dim;
    if (!weight.empty()) {
      const float mean = SumOfSquares(x, head_dim) / static_cast<float>(head_dim);
      const VF scale = hn::Set(d, 1.0f / std::sqrt(mean + eps));
      VisitFloat(weight.dtype, [&](auto zero) HWY_ATTR {
        const auto* w = static_cast<const decltype(zero)*>(weight.data);
        MapElements(x, head_dim, [&](auto load) HWY_ATTR {
          return hn::Mul(hn::Mul(load(static_cast<const float*>(x)), scale), load(w));
        });
      });
    }
    for (int i = 0; i < half; i += kLanes) {
      const int count = std::min(kLanes, half - i);
      const bool full = count == kLanes;
      const auto load = [&](const float* p)
                            HWY_ATTR { return full ? hn::LoadU(d, p) : LoadPartial(d, p, count); };
      const VF a = load(x + i), b = load(x + half + i);
      const VF c = load(cosine + i), s = load(sine + i);
      const VF first = hn::Sub(hn::Mul(a, c), hn::Mul(b, s));
      const VF second = hn::Add(hn::Mul(b, c), hn::Mul(a, s));
      if (full) {
        hn::StoreU(first, d, x + i);
        hn::StoreU(second, d, x + half + i);
      } else {
        StorePartial(first, d, x + i, count);
        StorePartial(second, d, x + half + i, count);
      }
    }
  }
}

template <class View, typename T>
HWY_INLINE void StoreToken(const View& view, int kv_heads, int32_t slot, const T* k, const T* v) {
  const int head_dim = view.s.head_dim;
  for (int g = 0; g < kv_heads; ++g, k += head_dim, v += head_dim) {
    auto* row = view.Slot(slot, g);
    MapElements(row, head_dim, [&](auto load) HWY_ATTR { return load(k); });
    MapElements(row + view.s.v_offset, head_dim, [&](auto load) HWY_ATTR { return load(v); });
  }
}

void StoreKvToken(const KvView& kv, int32_t slot, Tensor k, Tensor v, int64_t row) {
  VisitFloat(k.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    VisitKv(kv, [&](const auto& view) HWY_ATTR {
      StoreToken(view, kv.kv_heads, slot, k.row<T>(row), v.row<T>(row));
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(NormRotateHeads);
HWY_EXPORT(StoreKvToken);

void QkNormRope(ThreadPool& pool, Tensor q, Tensor k, Tensor q_norm, Tensor k_norm, float eps,
                const RopeTable& rope, Tensor positions) {
  const auto norm_rotate = HWY_DYNAMIC_DISPATCH(NormRotateHeads);
  const int head_dim = static_cast<int>(rope.cos_sin.shape[1]);
  const int half = head_dim / 2;
  const int32_t* axis_of_pair = rope.axis_of_pair.ptr<int32_t>();
  ForEachItem(pool, q.rows(), q.numel() + k.numel(), [&](int64_t t, int) {
    float cosine[kMaxHeadDim / 2], sine[kMaxHeadDim / 2];
    for (int i = 0; i < half; ++i) {
      const int32_t pos = positions.row<int32_t>(axis_of_pair[i])[t];
      KU_CHECK(pos >= 0 && pos < rope.cos_sin.rows(), "position outside the RoPE table");
      const float* row = rope.cos_sin.row<float>(pos);
      cosine[i] = row[i];
      sine[i] = row[half + i];
    }
    norm_rotate(q.row<float>(t), static_cast<int>(q.shape[1]) / head_dim, head_dim, q_norm, eps,
                cosine, sine);
    norm_rotate(k.row<float>(t), static_cast<int>(k.shape[1]) / head_dim, head_dim, k_norm, eps,
                cosine, sine);
  });
}

void StoreKv(ThreadPool& pool, const KvView& kv, Tensor k, Tensor v, Tensor slots) {
  const auto store = HWY_DYNAMIC_DISPATCH(StoreKvToken);
  const int32_t* slot = slots.ptr<int32_t>();
  ForEachItem(pool, k.rows(), k.numel() + v.numel(),
              [&](int64_t t, int) { store(kv, slot[t], k, v, t); });
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
