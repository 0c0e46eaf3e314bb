// The CUDA backend: Ops on one device and one stream. Activations have the type of the weights,
// FP32 accumulation throughout. Every op only enqueues; Capture turns a step into a CUDA graph.
// Made by MakeCudaOps; compiled a second time for the emulated device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kuiper/kernels/cuda/dense_linear.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/ops.h"

namespace kuiper::KU_GPU {

class CudaOps : public Ops {
 public:
  static StatusOr<std::unique_ptr<Ops>> Make(Device device, const OpsOptions& options);
  ~CudaOps() override;

  Device device() const override { return device_; }
  std::string Description() const override;
  DType ActivationType(DType weights) const override { return weights; }
  StatusOr<Buffer> Allocate(size_t bytes) override;
  StatusOr<Buffer> AllocatePinned(size_t bytes) override;
  size_t FreeBytes() const override;
  bool unified_memory() const override { return integrated_; }
  Status Reserve(const OpsLimits& limits) override;
  size_t ScratchBytes(const OpsLimits& limits) const override;
  Status Prepare(const Linear& w, Epilogue epilogue, DType out_type) override;
  void Upload(Tensor dst, Tensor src) override;
  void Download(Tensor dst, Tensor src) override;
  void Sync() override;
  int64_t Mark() override;
  void WaitFor(int64_t mark) override;
  // The graph refers to this object and must not outlive it.
  StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>& body) override;

 protected:
  void DoEmbed(Tensor out, Tensor table, Tensor ids, Tensor sampled) override;
  void DoFillRandom(Tensor out, uint64_t seed) override;
  void DoGatherRows(Tensor out, Tensor x, Tensor rows) override;
  void DoRmsNorm(Tensor out, Tensor x, Tensor weight, float eps) override;
  void DoApply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue,
               int num_decode_rows) override;
  void DoQkNormRopeStore(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm, float eps,
                         const RopeTable& rope, Tensor positions, const KvView& kv,
                         Tensor slots) override;
  void DoStoreKv(const KvView& kv, Tensor k, Tensor v, Tensor slots) override;
  void DoCopyPages(const KvView& kv, Tensor copies) override;
  void DoAttention(Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta, float scale,
                   const AttnOptions& options) override;
  void DoSample(Tensor tokens, Tensor logits, const SampleArgs& args) override;

 private:
  CudaOps(Device device, const OpsOptions& options, const cudaDeviceProp& properties);

  // Makes this device current for the calling thread and returns the stream to enqueue on.
  cudaStream_t Enter() const;
  void Copy(Tensor dst, Tensor src, cudaMemcpyKind kind);

  Device device_;
  AttentionKind attention_;
  Determinism determinism_;
  std::string description_;
  int num_sms_;
  bool integrated_;
  cudaStream_t stream_ = nullptr;
  // Mark n is the event n % size. One that was marked anew stands for a later point, so waiting for
  // it is still right.
  std::array<cudaEvent_t, 4> events_{};
  int64_t num_marks_ = 0;
  bool capturing_ = false;
  OpsLimits limits_;
  Buffer scratch_;  // attention partials, then the sampler's rows, then what dense_ needs
  Buffer tickets_;
  AttentionScratch attention_scratch_;
  float* sample_scratch_ = nullptr;     // [max_seqs, vocab]
  std::unique_ptr<DenseLinear> dense_;  // null when strict
};

}  // namespace kuiper::KU_GPU
