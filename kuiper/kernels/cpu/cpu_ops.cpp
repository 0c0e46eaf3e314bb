#include "kuiper/kernels/cpu/cpu_ops.h"

#include <algorithm>

#include "kuiper/kernels/cpu/cpu_target.h"
#include "kuiper/kernels/cpu/host_memory.h"

namespace kuiper::cpu {
namespace {

std::string Describe(int threads) {
  return "cpu (" + CpuLinear::KernelName() + ", " + std::to_string(threads) +
         (threads == 1 ? " thread)" : " threads)");
}

// Some CPUs run the BF16 instruction at half the rate of plain multiply-adds. The linear layers
// have measured this: their kernel name says whether they use it.
const PairKernel* FastPairs() {
  return CpuLinear::KernelName() == "AVX3_BF16" ? Avx512Bf16PairKernel() : nullptr;
}

}  // namespace

std::string CpuOps::CompiledFor() {
  return CompiledTargets();
}

StatusOr<std::unique_ptr<Ops>> CpuOps::Make(const OpsOptions& options) {
  if (!options.cpu_target.empty()) KU_RETURN_IF_ERROR(LimitToTarget(options.cpu_target));
  return std::unique_ptr<Ops>(new CpuOps(options));
}

CpuOps::CpuOps(const OpsOptions& options)
    : Ops(device_),
      pool_(options.num_threads),
      linear_(pool_),
      device_(Describe(pool_.size())),
      resources_{.pool = pool_,
                 .linear = linear_,
                 .attention = options.attention,
                 .bf16_pair_kernel = FastPairs()} {}

size_t CpuOps::ScratchStride(const OpsLimits& limits) const {
  constexpr size_t kLine = 64;
  const size_t bytes = std::max(AttentionScratchBytes(resources_.attention, limits.max_context),
                                SampleScratchBytes(limits.vocab));
  return (bytes + kLine - 1) / kLine * kLine;
}

size_t CpuOps::ScratchBytes(const OpsLimits& limits) const {
  return ScratchStride(limits) * pool_.size() +
         linear_.ScratchBytes(limits.max_tokens, limits.max_features);
}

Status CpuOps::Reserve(const OpsLimits& limits) {
  KU_CHECK(!device_.is_recording(), "Reserve inside a step");
  resources_.limits.Include(limits);
  const OpsLimits& all = resources_.limits;
  KU_RETURN_IF_ERROR(linear_.Reserve(all.max_tokens, all.max_features));
  const size_t stride = ScratchStride(all);
  if (stride > resources_.scratch_stride) {
    KU_ASSIGN_OR_RETURN(scratch_, AllocatePages(stride * pool_.size()));
    resources_.scratch = static_cast<char*>(scratch_.data());
    resources_.scratch_stride = stride;
  }
  return OkStatus();
}

}  // namespace kuiper::cpu
