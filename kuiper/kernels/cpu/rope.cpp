// QkNormRopeStore and StoreKv. Parallel over tokens; each touches its rows once and is bound by
// memory.
#include <cmath>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/rope.cpp"
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

// out [head_dim] = the rotated head x, RMS-normalised first unless weight is empty; out may be x.
// weight [head_dim] or empty; cosine and sine [head_dim / 2]. (a, b) -> (a cos - b sin,
// b cos + a sin), each product rounded.
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

// Processes token t of the batch; `cosine` and `sine` [head_dim / 2] are of its angles.
void RopeToken(const QkNormRopeStoreArgs& args, int64_t t, const float* cosine, const float* sine) {
  const KvView& kv = args.store.kv;
  const int head_dim = kv.head_dim();
  float* q = args.q.row<float>(t);
  for (float* end = q + args.q.shape[1]; q < end; q += head_dim) {
    NormRotateHead(q, q, head_dim, args.q_norm, args.eps, cosine, sine);
  }
  VisitKv(kv, [&](const auto& view) HWY_ATTR {
    const float *k = args.store.k.row<float>(t), *v = args.store.v.row<float>(t);
    float key[kMaxHeadDim];
    for (int g = 0; g < kv.kv_heads; ++g, k += head_dim, v += head_dim) {
      NormRotateHead(key, k, head_dim, args.k_norm, args.eps, cosine, sine);
      const auto row = view.Slot(args.store.slots.ptr<int32_t>()[t], g);
      StoreHead(row, key, head_dim);
      StoreHead(view.ValueOf(row), v, head_dim);
    }
  });
}

void StoreKvToken(const StoreKvArgs& args, int64_t t) {
  const KvView& kv = args.kv;
  const int head_dim = kv.head_dim();
  VisitFloat(args.k.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    VisitKv(kv, [&](const auto& view) HWY_ATTR {
      for (int g = 0; g < kv.kv_heads; ++g) {
        const auto row = view.Slot(args.slots.ptr<int32_t>()[t], g);
        StoreHead(row, args.k.row<T>(t) + g * head_dim, head_dim);
        StoreHead(view.ValueOf(row), args.v.row<T>(t) + g * head_dim, head_dim);
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

void Run(const Resources& resources, const QkNormRopeStoreArgs& args) {
  const auto rope_token = HWY_DYNAMIC_DISPATCH(RopeToken);
  const Tensor& cos_sin = args.rope.cos_sin;
  KU_CHECK(cos_sin.shape[1] <= kMaxHeadDim, "head_dim is too large");
  const int half = static_cast<int>(cos_sin.shape[1]) / 2;
  const int32_t* axis_of_pair = args.rope.axis_of_pair.ptr<int32_t>();
  const int64_t elements = args.q.numel() + args.store.k.numel() + args.store.v.numel();
  ForEachItem(resources.pool, args.q.rows(), elements, [&](int64_t t, int) {
    float cosine[kMaxHeadDim / 2], sine[kMaxHeadDim / 2];
    for (int i = 0; i < half; ++i) {
      const int32_t pos = args.positions.row<int32_t>(axis_of_pair[i])[t];
      KU_CHECK(pos >= 0 && pos < cos_sin.rows(), "position outside the RoPE table");
      const float* row = cos_sin.row<float>(pos);
      cosine[i] = row[i];
      sine[i] = row[half + i];
    }
    rope_token(args, t, cosine, sine);
  });
}

void Run(const Resources& resources, const StoreKvArgs& args) {
  const auto store = HWY_DYNAMIC_DISPATCH(StoreKvToken);
  ForEachItem(resources.pool, args.k.rows(), args.k.numel() + args.v.numel(),
              [&](int64_t t, int) { store(args, t); });
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
