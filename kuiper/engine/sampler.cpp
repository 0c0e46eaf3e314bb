#include "kuiper/engine/sampler.h"

#include <algorithm>

namespace kuiper {
namespace {

// The arrays of SampleArgs side by side in one arena: R rows, N penalty entries.
struct SampleArena {
  // i64 first, so that everything is aligned; then 8 arrays of R and one of R + 1 four-byte values.
  static size_t Bytes(int64_t rows, int64_t penalties) {
    return rows * 8 + (rows * 8 + rows + 1 + 2 * penalties) * 4;
  }

  SampleArena(const Buffer& buffer, int64_t rows, int64_t penalties) {
    size_t at = 0;
    auto take = [&](DType dtype, int64_t n) {
      const Tensor t = buffer.As(dtype, {n}, at);
      at += n * DTypeBytes(dtype);
      return t;
    };
    args.seed = take(DType::kI64, rows);
    args.temperature = take(DType::kF32, rows);
    args.top_k = take(DType::kI32, rows);
    args.top_p = take(DType::kF32, rows);
    args.min_p = take(DType::kF32, rows);
    args.step = take(DType::kI32, rows);
    args.repetition_penalty = take(DType::kF32, rows);
    args.presence_penalty = take(DType::kF32, rows);
    args.frequency_penalty = take(DType::kF32, rows);
    args.penalty_offsets = take(DType::kI32, rows + 1);
    args.penalty_tokens = take(DType::kI32, penalties);
    args.penalty_counts = take(DType::kI32, penalties);
  }

  SampleArgs args;
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
    KU_ASSIGN_OR_RETURN(host.arena, ops.AllocatePinned(bytes));
    KU_ASSIGN_OR_RETURN(host.tokens, ops.AllocatePinned(max_samples * sizeof(int32_t)));
  }
  KU_ASSIGN_OR_RETURN(sampler->device_, ops.Allocate(bytes));
  KU_ASSIGN_OR_RETURN(sampler->device_tokens_, ops.Allocate(max_samples * sizeof(int32_t)));
  return sampler;
}

void Sampler::Sample(Tensor logits, const StepPlan& plan, int flight) {
  const int64_t count = static_cast<int64_t>(plan.samples.size());
  const int64_t num_penalties = static_cast<int64_t>(plan.penalties.size());
  KU_CHECK(count <= max_samples_ && num_penalties <= max_penalties_ && count <= logits.rows());
  HostMemory& memory = host_[flight];
  memory.num_tokens = count;
  if (count == 0) return;

  const SampleArgs host = SampleArena(memory.arena, count, num_penalties).args;
  for (int64_t r = 0; r < count; ++r) {
    const StepPlan::Sample& sample = plan.samples[r];
    const SamplingParams& params = sample.params;
    host.seed.ptr<int64_t>()[r] = static_cast<int64_t>(params.seed);
    host.temperature.ptr<float>()[r] = params.temperature;
    host.top_k.ptr<int32_t>()[r] = params.top_k;
    host.top_p.ptr<float>()[r] = params.top_p;
    host.min_p.ptr<float>()[r] = params.min_p;
    host.step.ptr<int32_t>()[r] = sample.index;
    host.repetition_penalty.ptr<float>()[r] = params.repetition_penalty;
    host.presence_penalty.ptr<float>()[r] = params.presence_penalty;
    host.frequency_penalty.ptr<float>()[r] = params.frequency_penalty;
    host.penalty_offsets.ptr<int32_t>()[r] = sample.penalties.begin;
  }
  host.penalty_offsets.ptr<int32_t>()[count] = static_cast<int32_t>(num_penalties);
  for (int64_t i = 0; i < num_penalties; ++i) {
    host.penalty_tokens.ptr<int32_t>()[i] = plan.penalties[i].token;
    host.penalty_counts.ptr<int32_t>()[i] = plan.penalties[i].count;
  }

  const int64_t bytes = static_cast<int64_t>(SampleArena::Bytes(count, num_penalties));
  ops_.Upload(device_.As(DType::kU8, {bytes}), memory.arena.As(DType::kU8, {bytes}));
  SampleArgs args = SampleArena(device_, count, num_penalties).args;
  args.vocab_limit = vocab_limit_;
  const Tensor tokens = device_tokens_.As(DType::kI32, {count});
  ops_.Sample(tokens, logits.Rows(0, count), args);
  ops_.Download(memory.tokens.As(DType::kI32, {count}), tokens);
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
