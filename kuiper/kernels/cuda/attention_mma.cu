// The kernels of attention_mma.cuh for keys and values of the queries' type, with head_dim 64, 72,
// 80 and 128. Also the choice among all kernels of that header. Other types and heads use
// attention.cu.
#include "kuiper/base/check.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/attention_mma.cuh"

namespace kuiper::KU_GPU {
namespace {

// Calls f(head_dim as a constant).
template <typename F>
void VisitHeadDim(int head_dim, const F& f) {
  switch (head_dim) {
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 72:
    case 80:
      return f(std::integral_constant<int, 80>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    default:
      KU_CHECK(false, "head_dim " + std::to_string(head_dim) + " is not supported");
  }
}

}  // namespace

bool CanAttentionMma(DType activations, KvFormat kv, int head_dim) {
  if (activations != DType::kF16 && activations != DType::kBF16) return false;
  if (IsMmaBytes(kv)) return head_dim == 64 || head_dim == 128;
  return kv.element_type() == activations &&
         (head_dim == 64 || head_dim == 72 || head_dim == 80 || head_dim == 128);
}

void PrepareAttentionMma() {
  for (int head_dim : {64, 80, 128}) {
    VisitHeadDim(head_dim, [](auto constant) {
      mma::AllowMma<Half, Half, constant()>();
      mma::AllowMma<BFloat16, BFloat16, constant()>();
    });
  }
  PrepareAttentionMmaBytes();
}

void AttentionMma(const Resources& resources, const AttnCall& call, const KvView& kv) {
  if (IsMmaBytes(kv.format)) return AttentionMmaBytes(resources, call, kv);
  VisitKv(kv, [&](const auto& view) {
    using View = std::remove_cv_t<std::remove_reference_t<decltype(view)>>;
    using T = typename View::Element;
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      VisitHeadDim(call.head_dim, [&](auto constant) {
        mma::LaunchMma<T, View, constant()>(resources, call, view);
      });
    }
  });
}

}  // namespace kuiper::KU_GPU
