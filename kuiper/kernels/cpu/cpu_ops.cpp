#include "kuiper/kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>

#include "kuiper/kernels/cpu/kernels.h"
#include "kuiper/kernels/cpu/memory.h"

namespace kuiper::cpu {
namespace {

class RecordedOps : public CapturedGraph {
 public:
  explicit RecordedOps(std::vector<std::function<void()>> ops) : ops_(std::move(ops)) {}
  void Replay() override {
    for (const auto& op : ops_) op();
  }

 private:
  std::vector<std::function<void()>> ops_;
};

void Copy(Tensor dst, Tensor src) {
  KU_CHECK(dst.bytes() == src.bytes() && dst.is_dense() && src.is_dense());
  if (dst.numel() > 0) std::memcpy(dst.data, src.data, dst.bytes());
}

}  // namespace

CpuOps::CpuOps(const OpsOptions& options)
    : pool_(options.num_threads), linear_(pool_), attention_(options.attention) {}

std::string CpuOps::Description() const {
  const int threads = pool_.size();
  return "cpu (" + CpuLinear::KernelName() + ", " + std::to_string(threads) +
         (threads == 1 ? " thread)" : " threads)");
}

DType CpuOps::ActivationType(DType) const {
  return DType::kF32;
}

StatusOr<Buffer> CpuOps::Allocate(size_t bytes) {
  return AllocatePages(bytes);
}

StatusOr<Buffer> CpuOps::AllocatePinned(size_t bytes) {
  return AllocatePages(bytes);
}

size_t CpuOps::FreeBytes() const {
  return FreeMemory();
}

size_t CpuOps::ScratchStride(const OpsLimits& limits) const {
  constexpr size_t kLine = 64;
  const size_t bytes = std::max(AttentionScratchBytes(attention_, limits.max_context),
                                SampleScratchBytes(limits.vocab));
  return (bytes + kLine - 1) / kLine * kLine;
}

size_t CpuOps::ScratchBytes(const OpsLimits& limits) const {
  return ScratchStride(limits) * pool_.size() +
         linear_.ScratchBytes(limits.max_tokens, limits.max_features);
}

Status CpuOps::Reserve(const OpsLimits& limits) {
  KU_CHECK(recording_ == nullptr, "Reserve inside a step");
  limits_.max_tokens = std::max(limits_.max_tokens, limits.max_tokens);
  limits_.max_seqs = std::max(limits_.max_seqs, limits.max_seqs);
  limits_.max_features = std::max(limits_.max_features, limits.max_features);
  limits_.max_context = std::max(limits_.max_context, limits.max_context);
  limits_.vocab = std::max(limits_.vocab, limits.vocab);
  KU_RETURN_IF_ERROR(linear_.Reserve(limits_.max_tokens, limits_.max_features));
  const size_t stride = ScratchStride(limits_);
  if (stride > scratch_stride_) {
    KU_ASSIGN_OR_RETURN(scratch_, AllocatePages(stride * pool_.size()));
    scratch_stride_ = stride;
  }
  return OkStatus();
}

void CpuOps::Upload(Tensor dst, Tensor src) {
  KU_CHECK(recording_ == nullptr, "a recorded step consists of ops only");
  Copy(dst, src);
}

void CpuOps::Download(Tensor dst, Tensor src) {
  KU_CHECK(recording_ == nullptr, "a recorded step consists of ops only");
  Copy(dst, src);
}

StatusOr<std::unique_ptr<CapturedGraph>> CpuOps::Capture(const std::function<void()>& body) {
  KU_CHECK(recording_ == nullptr, "Capture inside Capture");
  std::vector<std::function<void()>> ops;
  recording_ = &ops;
  body();
  recording_ = nullptr;
  return std::unique_ptr<CapturedGraph>(new RecordedOps(std::move(ops)));
}

void CpuOps::DoEmbed(Tensor out, Tensor table, Tensor ids, Tensor sampled) {
  Run([=, this] { cpu::Embed(pool_, out, table, ids, sampled); });
}

void CpuOps::DoFillRandom(Tensor out, uint64_t seed) {
  Run([=, this] { cpu::FillRandom(pool_, out, seed); });
}

void CpuOps::DoGatherRows(Tensor out, Tensor x, Tensor rows) {
  Run([=, this] { cpu::GatherRows(pool_, out, x, rows); });
}

void CpuOps::DoRmsNorm(Tensor out, Tensor x, Tensor weight, float eps) {
  Run([=, this] { cpu::RmsNorm(pool_, out, x, weight, eps); });
}

void CpuOps::DoApply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue, int) {
  KU_CHECK(x.rows() <= limits_.max_tokens && w.in <= limits_.max_features,
           "more than was reserved");
  Run([=, this] { linear_.Apply(out, x, w, epilogue); });
}

void CpuOps::DoQkNormRopeStore(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm,
                               float eps, const RopeTable& rope, Tensor positions, const KvView& kv,
                               Tensor slots) {
  KU_CHECK(rope.cos_sin.shape[1] <= kMaxHeadDim, "head_dim is too large");
  Run([=, this] {
    cpu::QkNormRopeStore(pool_, q, k, v, q_norm, k_norm, eps, rope, positions, kv, slots);
  });
}

void CpuOps::DoStoreKv(const KvView& kv, Tensor k, Tensor v, Tensor slots) {
  Run([=, this] { cpu::StoreKv(pool_, kv, k, v, slots); });
}

void CpuOps::DoCopyPages(const KvView& kv, Tensor copies) {
  Run([=, this] { cpu::CopyPages(pool_, kv, copies); });
}

void CpuOps::DoAttention(Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta, float scale,
                         const AttnOptions& options) {
  KU_CHECK(kv.s.head_dim <= kMaxHeadDim, "head_dim is too large");
  KU_CHECK(meta.max_kv_len <= limits_.max_context, "more than was reserved");
  Run([=, this] {
    cpu::Attention(pool_, attention_, scratch_.data(), scratch_stride_, limits_.max_context, out, q,
                   kv, meta, scale, options);
  });
}

void CpuOps::DoSample(Tensor tokens, Tensor logits, const SampleArgs& args) {
  KU_CHECK(args.vocab_limit <= limits_.vocab, "more than was reserved");
  Run([=, this] { cpu::Sample(pool_, scratch_.data(), scratch_stride_, tokens, logits, args); });
}

}  // namespace kuiper::cpu
