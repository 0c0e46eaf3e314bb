// The CUDA backend: Ops on one device and one stream. Activations have the type of the weights;
// accumulation is always FP32. Every op only enqueues. Created by MakeCudaOps; compiled a second
// time for the emulated device.
#pragma once

#include <memory>

#include "kuiper/kernels/cuda/cuda_device.h"
#include "kuiper/kernels/cuda/dense_linear.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/ops/ops.h"

namespace kuiper::KU_GPU {

class CudaOps final : public Ops {
 public:
  static StatusOr<std::unique_ptr<Ops>> Make(Device id, const OpsOptions& options);
  ~CudaOps() override;

  DType ActivationType(DType weights) const override { return weights; }
  AttentionKind AttentionFor(DType weights, KvFormat kv, int head_dim) const override {
    return ChosenAttention(resources_.attention, ActivationType(weights), kv, head_dim);
  }
  Status Reserve(const OpsLimits& limits) override;
  size_t ScratchBytes(const OpsLimits& limits) const override;
  Status Prepare(const Linear& linear, Epilogue epilogue, DType out_type,
                 int64_t out_stride) override;

 private:
  CudaOps(std::unique_ptr<CudaDevice> device, const OpsOptions& options);

#define KU_COMPUTE_OP(Name)                       \
  void Compute(const Name##Args& args) override { \
    resources_.stream = device_->Enter();         \
    KU_GPU::Run(resources_, args);                \
  }
  KU_FOR_EACH_OP(KU_COMPUTE_OP)
#undef KU_COMPUTE_OP

  std::unique_ptr<CudaDevice> device_;
  Buffer scratch_;  // attention partials, rows of Sample, scratch of dense_
  Buffer tickets_;
  std::unique_ptr<DenseLinear> dense_;  // null when strict
  Resources resources_;
};

}  // namespace kuiper::KU_GPU
