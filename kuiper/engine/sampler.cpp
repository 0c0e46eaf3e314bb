#include "kuiper/engine/sampler.h"

#include <algorithm>

namespace kuiper {

size_t Sampler::ArenaSize::bytes() const {
  return num_rows * sizeof(SampleRow) + num_penalties * 2 * sizeof(int32_t) +
         num_biases * (sizeof(int32_t) + sizeof(float));
}

struct Sampler::Arena {
  Arena(const Buffer& buffer, const ArenaSize& size) {
    int64_t at = 0;
    const auto take = [&](DType type, int64_t count) {
      const Tensor part = buffer.As(type, {count}, at);
      at += count * static_cast<int64_t>(DTypeBytes(type));
      return part;
    };
    rows = take(DType::kU8, size.num_rows * static_cast<int64_t>(sizeof(SampleRow)));
    penalty_tokens = take(DType::kI32, size.num_penalties);
    penalty_counts = take(DType::kI32, size.num_penalties);
    bias_tokens = take(DType::kI32, size.num_biases);
    bias_values = take(DType::kF32, size.num_biases);
  }

  void Fill(const StepPlan& plan) const {
    for (size_t r = 0; r < plan.samples.size(); ++r) {
      const StepPlan::Sample& sample = plan.samples[r];
      static_cast<SampleRow*>(rows.data)[r] = {sample.params,          sample.index,
                                               sample.penalties.begin, sample.penalties.size(),
                                               sample.biases.begin,    sample.biases.size()};
    }
    for (size_t i = 0; i < plan.penalties.size(); ++i) {
      penalty_tokens.ptr<int32_t>()[i] = plan.penalties[i].token;
      penalty_counts.ptr<int32_t>()[i] = plan.penalties[i].count;
    }
    for (size_t i = 0; i < plan.biases.size(); ++i) {
      bias_tokens.ptr<int32_t>()[i] = plan.biases[i].token;
      bias_values.ptr<float>()[i] = plan.biases[i].bias;
    }
  }

  Tensor rows, penalty_tokens, penalty_counts, bias_tokens, bias_values;
};

int64_t Sampler::MaxPenalties(int max_samples, int max_context, int vocab) {
  return int64_t{max_samples} * std::min(max_context, vocab);
}

int64_t Sampler::MaxBiases(int max_samples, int vocab) {
  return int64_t{max_samples} * std::min(kMaxBiases, vocab);
}

Sampler::ArenaSize Sampler::LargestArena(int max_samples, int max_context, int vocab) {
  return {max_samples, MaxPenalties(max_samples, max_context, vocab),
          MaxBiases(max_samples, vocab)};
}

MemorySize Sampler::SizeOf(int max_samples, int max_context, int vocab) {
  const size_t bytes =
      LargestArena(max_samples, max_context, vocab).bytes() + max_samples * sizeof(int32_t);
  return {.device = bytes, .host = kMaxStepsInFlight * bytes};
}

StatusOr<std::unique_ptr<Sampler>> Sampler::Create(Ops& ops, int max_samples, int max_context,
                                                   int vocab, int vocab_limit) {
  const ArenaSize most = LargestArena(max_samples, max_context, vocab);
  std::unique_ptr<Sampler> sampler(new Sampler(ops, most, vocab_limit));
  for (HostMemory& host : sampler->host_) {
    KU_ASSIGN_OR_RETURN(host.arena, ops.device().AllocatePinned(most.bytes()));
    KU_ASSIGN_OR_RETURN(host.tokens, ops.device().AllocatePinned(max_samples * sizeof(int32_t)));
  }
  KU_ASSIGN_OR_RETURN(sampler->arrays_, ops.device().Allocate(most.bytes()));
  KU_ASSIGN_OR_RETURN(sampler->device_tokens_,
                      ops.device().Allocate(max_samples * sizeof(int32_t)));
  return sampler;
}

void Sampler::Sample(Tensor logits, const StepPlan& plan, int flight) {
  const ArenaSize size{static_cast<int64_t>(plan.samples.size()),
                       static_cast<int64_t>(plan.penalties.size()),
                       static_cast<int64_t>(plan.biases.size())};
  const int64_t count = size.num_rows;
  KU_CHECK(count <= most_.num_rows && size.num_penalties <= most_.num_penalties &&
           size.num_biases <= most_.num_biases && count <= logits.rows());
  HostMemory& memory = host_[flight];
  memory.num_tokens = count;
  if (count == 0) return;

  Arena(memory.arena, size).Fill(plan);
  const int64_t bytes = static_cast<int64_t>(size.bytes());
  ops_.device().Upload(arrays_.As(DType::kU8, {bytes}), memory.arena.As(DType::kU8, {bytes}));
  const Arena device(arrays_, size);
  const Tensor tokens = device_tokens_.As(DType::kI32, {count});
  ops_.Run(SampleArgs{.tokens = tokens,
                      .logits = logits.Rows(0, count),
                      .rows = device.rows,
                      .penalty_tokens = device.penalty_tokens,
                      .penalty_counts = device.penalty_counts,
                      .bias_tokens = device.bias_tokens,
                      .bias_values = device.bias_values,
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
