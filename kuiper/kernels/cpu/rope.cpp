// QkNormRopeStore and StoreKv. Parallel over tokens; each touches its rows once, bound by memory.
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

#ifndef KUIPER_KERNELS_CPU_ROPE_CPP_
#define KUIPER_KERNELS_CPU_ROPE_CPP_
namespace kuiper::cpu {
// What is the same for all tokens of a call.
struct RopeTokenArgs {
  Tensor q_norm, k_norm;
  float eps;
  int q_heads;
  KvView kv;
};
}  // namespace kuiper::cpu
#endif  // once for all instruction sets

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// out [head_dim] = one rotated head, which may be x itself; weight [head_dim] or empty; cosine and
// sine [head_dim / 2]. (a, b) -> (a cos - b sin, b cos + a sin), each product rounded.
void NormRotateHead(float* out, const float* x, int head_dim, Tensor weight, float eps,
                    const float* cosine, const float* sine) {
  const DF d;
  const int half = head_dim / 2;
  if (!weight.empty()) {
    const float mean = SumOfSquares(x, head_dim) / static_cast<float>(head_dim);
    const VF scale = hn::Set(d, 1.0f / std::sqrt(mean + eps));
    VisitFloat(weight.dtype, [&](auto zero) HWY_ATTR {
      const auto* w = static_cast<const decltype(zero)*>(weight.data);
      MapElements(out, head_dim,
                  [&](auto load) HWY_ATTR { return hn::Mul(hn::Mul(load(x), scale), load(w)); });
    });
    x = out;
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
      hn::StoreU(first, d, out + i);
      hn::StoreU(second, d, out + half + i);
    } else {
      StorePartial(first, d, out + i, count);
      StorePartial(second, d, out + half + i, count);
    }
  }
}

// out [head_dim] = x, of any two float types.
template <typename Out, typename In>
HWY_INLINE void StoreHead(Out* out, const In* x, int head_dim) {
  MapElements(out, head_dim, [&](auto load) HWY_ATTR { return load(x); });
}

void RopeToken(const RopeTokenArgs& a, float* q, const float* k, const float* v, int32_t slot,
               const float* cosine, const float* sine) {
  const int head_dim = a.kv.s.head_dim;
  for (int h = 0; h < a.q_heads; ++h, q += head_dim) {
    NormRotateHead(q, q, head_dim, a.q_norm, a.eps, cosine, sine);
  }
  VisitKv(a.kv, [&](const auto& view) HWY_ATTR {
    float key[kMaxHeadDim];
    for (int g = 0; g < a.kv.kv_heads; ++g, k += head_dim, v += head_dim) {
      NormRotateHead(key, k, head_dim, a.k_norm, a.eps, cosine, sine);
      auto* row = view.Slot(slot, g);
      StoreHead(row, key, head_dim);
      StoreHead(row + view.s.v_offset, v, head_dim);
    }
  });
}

void StoreKvToken(const KvView& kv, int32_t slot, Tensor k, Tensor v, int64_t token) {
  const int head_dim = kv.s.head_dim;
  VisitFloat(k.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    VisitKv(kv, [&](const auto& view) HWY_ATTR {
      for (int g = 0; g < kv.kv_heads; ++g) {
        auto* row = view.Slot(slot, g);
        StoreHead(row, k.row<T>(token) + g * head_dim, head_dim);
        StoreHead(row + view.s.v_offset, v.row<T>(token) + g * head_dim, head_dim);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(RopeToken);
HWY_EXPORT(StoreKvToken);

void QkNormRopeStore(ThreadPool& pool, Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm,
                     float eps, const RopeTable& rope, Tensor positions, const KvView& kv,
                     Tensor slots) {
  const auto rope_token = HWY_DYNAMIC_DISPATCH(RopeToken);
  const int half = kv.s.head_dim / 2;
  const RopeTokenArgs args{q_norm, k_norm, eps, static_cast<int>(q.shape[1]) / kv.s.head_dim, kv};
  const int32_t* axis_of_pair = rope.axis_of_pair.ptr<int32_t>();
  const int32_t* slot = slots.ptr<int32_t>();
  ForEachItem(pool, q.rows(), q.numel() + k.numel() + v.numel(), [&](int64_t t, int) {
    float cosine[kMaxHeadDim / 2], sine[kMaxHeadDim / 2];
    for (int i = 0; i < half; ++i) {
      const int32_t pos = positions.row<int32_t>(axis_of_pair[i])[t];
      KU_CHECK(pos >= 0 && pos < rope.cos_sin.rows(), "position outside the RoPE table");
      const float* row = rope.cos_sin.row<float>(pos);
      cosine[i] = row[i];
      sine[i] = row[half + i];
    }
    rope_token(args, q.row<float>(t), k.row<float>(t), v.row<float>(t), slot[t], cosine, sine);
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
