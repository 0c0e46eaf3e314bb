// The kernels of attention_mma.cuh for keys and values in one-byte formats: INT8 with a scale per
// row and E4M3, with head_dim 64 and 128. E5M2 uses attention.cu.
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/attention_mma.cuh"

namespace kuiper::KU_GPU {
namespace {

template <typename T>
void AllowOf() {
  mma::AllowMma<T, int8_t, 64>();
  mma::AllowMma<T, int8_t, 128>();
  mma::AllowMma<T, Float8E4M3, 64>();
  mma::AllowMma<T, Float8E4M3, 128>();
}

}  // namespace

bool IsMmaBytes(KvFormat kv) {
  return kv.kind == KvFormat::Kind::kInt8 || kv.kind == KvFormat::Kind::kF8E4M3;
}

void PrepareAttentionMmaBytes() {
  AllowOf<Half>();
  AllowOf<BFloat16>();
}

void AttentionMmaBytes(const Resources& resources, const AttnCall& call, const KvView& kv) {
  VisitKv(kv, [&](const auto& view) {
    using View = std::remove_cv_t<std::remove_reference_t<decltype(view)>>;
    using Element = typename View::Element;
    if constexpr (std::is_same_v<Element, int8_t> || std::is_same_v<Element, Float8E4M3>) {
      const auto launch = [&](auto zero) {
        using T = decltype(zero);
        if (call.head_dim == 64) return mma::LaunchMma<T, View, 64>(resources, call, view);
        mma::LaunchMma<T, View, 128>(resources, call, view);
      };
      if (call.q.dtype == DType::kF16) return launch(Half{});
      launch(BFloat16{});
    }
  });
}

}  // namespace kuiper::KU_GPU
