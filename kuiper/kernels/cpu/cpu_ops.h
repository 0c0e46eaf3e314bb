// The CPU backend: Ops on host memory with one thread pool. Activations are FP32; weights and KV
// cache are FP32, FP16 or BF16 and used as they are. Made by MakeOps only.
#pragma once

#include <memory>
#include <string>

#include "kuiper/kernels/cpu/cpu_device.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/cpu_linear.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/ops.h"

namespace kuiper::cpu {

class CpuOps final : public Ops {
 public:
  static StatusOr<std::unique_ptr<Ops>> Make(const OpsOptions& options);
  // The instruction sets of this build's kernels, as CompiledTargets() (cpu_target.h) names them.
  static std::string CompiledFor();

  DType ActivationType(DType) const override { return DType::kF32; }
  AttentionKind AttentionFor(DType, KvFormat, int) const override {
    return resources_.attention == AttentionKind::kMha ? AttentionKind::kMha
                                                       : AttentionKind::kFlash1;
  }
  Status Reserve(const OpsLimits& limits) override;
  size_t ScratchBytes(const OpsLimits& limits) const override;
  void Prepack(Linear* linear) override { linear_.Prepack(linear); }
  Status Prepare(const Linear&, Epilogue, DType, int64_t) override { return OkStatus(); }

 private:
  explicit CpuOps(const OpsOptions& options);

#define KU_COMPUTE_OP(Name)                                   \
  void Compute(const Name##Args& args) override {             \
    device_.Do([this, args] { cpu::Run(resources_, args); }); \
  }
  KU_FOR_EACH_OP(KU_COMPUTE_OP)
#undef KU_COMPUTE_OP

  // Bytes of scratch_ per thread.
  size_t ScratchStride(const OpsLimits& limits) const;

  ThreadPool pool_;
  CpuLinear linear_;
  CpuDevice device_;
  Buffer scratch_;  // one slice per thread, shared by attention and sampling
  Resources resources_;
};

}  // namespace kuiper::cpu
