// The CPU backend: Ops on host memory with one thread pool. Activations are FP32; weights and KV
// cache are FP32, FP16 or BF16 and used as they are. Made by MakeOps only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/kernels/cpu/cpu_linear.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/ops.h"

namespace kuiper::cpu {

class CpuOps : public Ops {
 public:
  explicit CpuOps(const OpsOptions& options);

  Device device() const override { return {}; }
  std::string Description() const override;
  DType ActivationType(DType weights) const override;
  StatusOr<Buffer> Allocate(size_t bytes) override;
  StatusOr<Buffer> AllocatePinned(size_t bytes) override;
  size_t FreeBytes() const override;
  bool unified_memory() const override { return true; }
  Status Reserve(const OpsLimits& limits) override;
  Status Prepare(const Linear&, Epilogue, DType) override { return OkStatus(); }
  size_t ScratchBytes(const OpsLimits& limits) const override;
  void Upload(Tensor dst, Tensor src) override;
  void Download(Tensor dst, Tensor src) override;
  void Sync() override {}
  int64_t Mark() override { return 0; }  // ops are done when they return
  void WaitFor(int64_t) override {}
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
  // Every op goes through here: `op` holds copies of its arguments, so that a recording freezes
  // host scalars and reads memory again, as a CUDA graph does.
  template <typename F>
  void Run(F op) {
    if (recording_ != nullptr) recording_->push_back(op);
    op();
  }

  // Bytes of scratch_ per thread.
  size_t ScratchStride(const OpsLimits& limits) const;

  ThreadPool pool_;
  CpuLinear linear_;
  AttentionKind attention_;
  OpsLimits limits_;
  Buffer scratch_;  // one slice per thread, shared by attention and sampling
  size_t scratch_stride_ = 0;
  std::vector<std::function<void()>>* recording_ = nullptr;
};

}  // namespace kuiper::cpu
