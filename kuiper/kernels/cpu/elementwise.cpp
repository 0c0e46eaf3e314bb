// Embed, GatherRows, PatchRows and AddWeightedRows are parallel over rows; each moves its inputs
// and outputs once and is bound by memory. FillRandom is parallel over pieces and runs only when a
// model is loaded. SiluMulRow and the GELUs end a linear layer: their data are in cache, and exp
// dominates their time. erf is the C library's, element by element: a whole image needs only a few
// million.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kuiper/kernels/common/random_weight.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// out [n] f32 = the n values at `row`, which have any float type.
void WidenRow(float* out, const void* row, DType dtype, int64_t n) {
  VisitFloat(dtype, [&](auto zero) HWY_ATTR {
    const auto* in = static_cast<const decltype(zero)*>(row);
    MapElements(out, n, [&](auto load) HWY_ATTR { return load(in); });
  });
}

// out [n] f32 += the n values at `row`, which have any float type.
void AddRow(float* out, const void* row, DType dtype, int64_t n) {
  const float* sum = out;
  VisitFloat(dtype, [&](auto zero) HWY_ATTR {
    const auto* in = static_cast<const decltype(zero)*>(row);
    MapElements(out, n, [&](auto load) HWY_ATTR { return hn::Add(load(sum), load(in)); });
  });
}

// gate[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + e^-g).
void SiluMulRowImpl(float* gate, const float* up, int64_t n) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  // e^88 is finite and 1 + e^88 makes the quotient vanish; NaN survives in the numerator.
  const VF limit = hn::Set(d, 88.0f);
  const float* in = gate;
  MapElements(gate, n, [&](auto load) HWY_ATTR {
    const VF g = load(in);
    const VF e = ExpF32(d, hn::Min(hn::Neg(g), limit));
    return hn::Mul(hn::Div(g, hn::Add(one, e)), load(up));
  });
}

// y[i] = y[i] sigmoid(2 sqrt(2 / pi) (y[i] + 0.044715 y[i]^3)), which equals the formula with tanh.
void GeluTanhRow(float* y, int64_t n) {
  const DF d;
  const VF one = hn::Set(d, 1.0f), cubic = hn::Set(d, 0.044715f);
  const VF factor = hn::Set(d, -1.59576912f);  // -2 sqrt(2 / pi)
  const VF limit = hn::Set(d, 88.0f);          // as above
  const float* in = y;
  MapElements(y, n, [&](auto load) HWY_ATTR {
    const VF v = load(in);
    const VF inner = hn::Add(v, hn::Mul(cubic, hn::Mul(hn::Mul(v, v), v)));
    const VF e = ExpF32(d, hn::Min(hn::Mul(factor, inner), limit));
    return hn::Div(v, hn::Add(one, e));
  });
}

// out[i] += sum over j of weights[j] * table[rows[j]][i], for i in [0, n).
void AddWeightedRow(float* out, const Tensor& table, const int32_t* rows, const float* weights,
                    int count, int64_t n) {
  const DF d;
  const float* in = out;
  VisitFloat(table.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    MapElements(out, n, [&](auto load) HWY_ATTR {
      VF sum = hn::Zero(d);
      for (int j = 0; j < count; ++j) {
        sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[j]), load(table.row<T>(rows[j]))));
      }
      return hn::Add(load(in), sum);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(WidenRow);
HWY_EXPORT(AddRow);
HWY_EXPORT(SiluMulRowImpl);
HWY_EXPORT(GeluTanhRow);
HWY_EXPORT(AddWeightedRow);

void Run(const Resources& resources, const EmbedArgs& args) {
  const auto widen = HWY_DYNAMIC_DISPATCH(WidenRow);
  const auto* ids = static_cast<const TokenRef*>(args.ids.data);
  const Tensor &out = args.out, &table = args.table;
  const int64_t num_sampled = args.sampled.empty() ? 0 : args.sampled.numel();
  const int64_t row_bytes = table.stride[0] * static_cast<int64_t>(DTypeBytes(table.dtype));
  ForEachItem(resources.pool, out.rows(), out.numel(), [&](int64_t t, int) {
    KU_CHECK(ids[t].is_known() || ids[t].row() < num_sampled, "token row outside the sampled ones");
    const int32_t id = ids[t].is_known() ? ids[t].id() : args.sampled.ptr<int32_t>()[ids[t].row()];
    if (id == kNotFiniteToken) {
      std::fill_n(out.row<float>(t), out.shape[1], std::numeric_limits<float>::quiet_NaN());
      return;
    }
    KU_CHECK(id >= 0 && id < table.rows(), "token id outside the embedding");
    if (!args.is_table_prepacked) {
      widen(out.row<float>(t), static_cast<const char*>(table.data) + id * row_bytes, table.dtype,
            out.shape[1]);
      return;
    }
    alignas(64) uint8_t stored[CpuLinear::kMaxFoldBytes];
    const int width = static_cast<int>(out.shape[1]);
    const int fold = resources.linear.FoldElements(table.dtype);
    for (int begin = 0; begin < width; begin += fold) {
      const int n = std::min(width - begin, fold);
      resources.linear.ReadPrepacked(table, id, begin, n, stored);
      widen(out.row<float>(t) + begin, stored, table.dtype, n);
    }
  });
}

void Run(const Resources& resources, const FillRandomArgs& args) {
  const Tensor& out = args.out;
  constexpr int64_t kPiece = 1 << 16;
  static_assert(kPiece % kRandomGroup == 0);
  const int64_t count = out.numel();
  VisitFloat(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    ForEachItem(resources.pool, (count + kPiece - 1) / kPiece, count, [&](int64_t piece, int) {
      const int64_t end = std::min(count, (piece + 1) * kPiece);
      for (int64_t begin = piece * kPiece; begin < end; begin += kRandomGroup) {
        const uint64_t random = SplitMix64(args.seed, static_cast<uint64_t>(begin / kRandomGroup));
        const int n = static_cast<int>(std::min<int64_t>(kRandomGroup, end - begin));
        T* values = out.ptr<T>() + begin;
        for (int i = 0; i < n; ++i) values[i] = FromFloat<T>(RandomWeight(random, i));
      }
    });
  });
}

void Run(const Resources& resources, const GatherRowsArgs& args) {
  const Tensor &out = args.out, &x = args.x;
  const int32_t* row = args.rows.ptr<int32_t>();
  ForEachItem(resources.pool, out.rows(), out.numel(), [&](int64_t r, int) {
    KU_CHECK(row[r] >= 0 && row[r] < x.rows(), "row outside the input");
    std::memcpy(out.row<float>(r), x.row<float>(row[r]), out.shape[1] * sizeof(float));
  });
}

void Run(const Resources& resources, const PatchRowsArgs& args) {
  const auto patch = args.add ? HWY_DYNAMIC_DISPATCH(AddRow) : HWY_DYNAMIC_DISPATCH(WidenRow);
  const Tensor &out = args.out, &x = args.x;
  const int64_t row_bytes = x.stride[0] * static_cast<int64_t>(DTypeBytes(x.dtype));
  ForEachItem(resources.pool, out.rows(), out.numel(), [&](int64_t r, int) {
    patch(out.row<float>(r), static_cast<const char*>(x.data) + r * row_bytes, x.dtype,
          out.shape[1]);
  });
}

void Run(const Resources& resources, const AddWeightedRowsArgs& args) {
  const auto add = HWY_DYNAMIC_DISPATCH(AddWeightedRow);
  const Tensor& out = args.out;
  const int count = static_cast<int>(args.rows.shape[1]);
  ForEachItem(resources.pool, out.rows(), out.numel() * count, [&](int64_t t, int) {
    const int32_t* rows = args.rows.row<int32_t>(t);
    for (int j = 0; j < count; ++j) {
      KU_CHECK(rows[j] >= 0 && rows[j] < args.table.rows(), "row outside the table");
    }
    add(out.row<float>(t), args.table, rows, args.weights.row<float>(t), count, out.shape[1]);
  });
}

void SiluMulRow(float* gate, const float* up, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SiluMulRowImpl)(gate, up, n);
}

void GeluRow(Epilogue epilogue, float* y, int64_t n) {
  if (epilogue == Epilogue::kGeluTanh) return HWY_DYNAMIC_DISPATCH(GeluTanhRow)(y, n);
  constexpr float kSqrtHalf = 0.707106781f;
  for (int64_t i = 0; i < n; ++i) y[i] = 0.5f * y[i] * (1.0f + std::erf(y[i] * kSqrtHalf));
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
