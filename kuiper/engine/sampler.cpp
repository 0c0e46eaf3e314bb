#include "kuiper/engine/sampler.h"

#include <algorithm>

namespace kuiper {
namespace {

// The arrays of SampleArgs side by side in one arena: R rows, N penalty entries.
struct SampleArena {
  static size_t Bytes(int64_t num_rows, int64_t num_penalties) {
    return num_rows * sizeof(SampleRow) + 2 * num_penalties * sizeof(int32_t);
  }

  SampleArena(const Buffer& buffer, int64_t num_rows, int64_t num_penalties) {
    const int64_t row_bytes = num_rows * static_cast<int64_t>(sizeof(SampleRow));
    rows = buffer.As(DType::kU8, {row_bytes});
    penalty_tokens = buffer.As(DType::kI32, {num_penalties}, row_bytes);
    penalty_counts =
        buffer.As(DType::kI32, {num_penalties}, row_bytes + num_penalties * sizeof(int32_t));
  }

  Tensor rows, penalty_tokens, penalty_counts;
};

}  // namespace

int64_t Sampler::MaxPenalties(int max_samples, int max_context, int vocab) {
  return int64_t{max_samples} * std::min(max_context, vocab);
}

MemorySize Sampler::SizeOf(int max_samples, int max_context, int vocab) {
  const size_t bytes =
      SampleArena::Bytes(max_samples, MaxPenalties(max_samples, max_context, vocab)) +
      max_samples * sizeof(int32_t);
  return {.device = bytes, .host = kMaxStepsInFlight * bytes};
}

StatusOr<std::unique_ptr<Sampler>> Sampler::Create(Ops& ops, int max_samples, int max_context,
                                                   int vocab, int vocab_limit) {
  const int64_t penalties = MaxPenalties(max_samples, max_context, vocab);
  std::unique_ptr<Sampler> sampler(new Sampler(ops, max_samples, penalties, vocab_limit));
  const size_t bytes = SampleArena::Bytes(max_samples, penalties);
  for (HostMemory& host : sampler->host_) {
    KU_ASSIGN_OR_RETURN(host.arena, ops.device().AllocatePinned(bytes));
    KU_ASSIGN_OR_RETURN(host.tokens, ops.device().AllocatePinned(max_samples * sizeof(int32_t)));
  }
  KU_ASSIGN_OR_RETURN(sampler->arrays_, ops.device().Allocate(bytes));
  KU_ASSIGN_OR_RETURN(sampler->device_tokens_,
                      ops.device().Allocate(max_samples * sizeof(int32_t)));
  return sampler;
}

void Sampler::Sample(Tensor logits, const StepPlan& plan, int flight) {
  const int64_t count = static_cast<int64_t>(plan.samples.size());
  const int64_t num_penalties = static_cast<int64_t>(plan.penalties.size());
  KU_CHECK(count <= max_samples_ && num_penalties <= max_penalties_ && count <= logits.rows());
  HostMemory& memory = host_[flight];
  memory.num_tokens = count;
  if (count == 0) return;

  const SampleArena host(memory.arena, count, num_penalties);
  for (int64_t r = 0; r < count; ++r) {
    const StepPlan::Sample& sample = plan.samples[r];
    static_cast<SampleRow*>(host.rows.data)[r] = {sample.params, sample.index,
                                                  sample.penalties.begin, sample.penalties.size()};
  }
  for (int64_t i = 0; i < num_penalties; ++i) {
    host.penalty_tokens.ptr<int32_t>()[i] = plan.penalties[i].token;
    host.penalty_counts.ptr<int32_t>()[i] = plan.penalties[i].count;
  }

  const int64_t bytes = static_cast<int64_t>(SampleArena::Bytes(count, num_penalties));
  ops_.device().Upload(arrays_.As(DType::kU8, {bytes}), memory.arena.As(DType::kU8, {bytes}));
  const SampleArena device(arrays_, count, num_penalties);
  const Tensor tokens = device_tokens_.As(DType::kI32, {count});
  ops_.Run(SampleArgs{.tokens = tokens,
                      .logits = logits.Rows(0, count),
                      .rows = device.rows,
                      .penalty_tokens = device.penalty_tokens,
                      .penalty_counts = device.penalty_counts,
                      .vocab_limit = vocab_limit_});
  ops_.device().Download(memory.tokens.As(DType::kI32, {count}), tokens);
}

StepResult Sampler::Result(int flight) const {
  const HostMemory& memory = host_[flight];
  const auto* ids = static_cast<const int32_t*>(memory.tokens.data());
  StepResult result;
  for (int64_t r = 0; r < memory.num_tokens; ++r) {
    result.tokens.push_back(ids[r] == kNotFiniteToken ? std::nullopt : std::optional(ids[r]));
  }
  return result;
}

}  // namespace kuiper
