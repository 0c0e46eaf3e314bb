#include "kuiper/engine/model_runner.h"

#include <algorithm>
#include <cmath>

namespace kuiper {
namespace {

bool AllFinite(const Tensor& row) {
  for (int64_t i = 0; i < row.numel(); ++i) {
    float x = 0;
    switch (row.dtype) {
      case DType::kF16:
        x = ToFloat(row.ptr<Half>()[i]);
        break;
      case DType::kBF16:
        x = ToFloat(row.ptr<BFloat16>()[i]);
        break;
      default:
        x = row.ptr<float>()[i];
    }
    if (!std::isfinite(x)) return false;
  }
  return true;
}

BatchBuilder::Limits BatchLimits(const ModelRunner::Config& config) {
  return {.max_tokens = config.max_step_tokens,
          .max_seqs = config.max_seqs,
          .max_outputs = config.max_outputs,
          .max_pages = (config.max_context + config.kv.page_size - 1) / config.kv.page_size,
          .page_size = config.kv.page_size,
          .max_kv_len = config.max_context,
          .cascade = config.cascade};
}

// One row of logits, or of the residual stream.
size_t HostRowBytes(const DecoderConfig& model) {
  return std::max(model.vocab, model.hidden) * sizeof(float);
}

}  // namespace

MemorySize ModelRunner::ArraySize(const DecoderConfig& model, const Config& config) {
  const MemorySize batch = BatchBuilder::SizeOf(BatchLimits(config));
  const MemorySize sampler = Sampler::SizeOf(config.max_seqs, config.max_context, model.vocab);
  return {.device = batch.device + sampler.device,
          .host = batch.host + sampler.host + HostRowBytes(model)};
}

OpsLimits ModelRunner::LimitsOf(const DecoderConfig& model, int max_step_tokens, int max_outputs,
                                int max_context, bool cascade) {
  return {.max_tokens = max_step_tokens,
          .max_seqs = max_outputs,
          .max_features = std::max({model.hidden, model.q_size(), model.intermediate}),
          .max_context = max_context,
          .vocab = model.vocab,
          .cascade = cascade};
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(Ops& ops, const Decoder& decoder,
                                                           const Config& config) {
  const DecoderConfig& model = decoder.config();
  std::unique_ptr<ModelRunner> runner(new ModelRunner(ops, decoder, config));
  KU_RETURN_IF_ERROR(ops.Reserve(LimitsOf(model, config.max_step_tokens, config.max_outputs,
                                          config.max_context, config.cascade)));
  KU_RETURN_IF_ERROR(decoder.Prepare());
  KU_ASSIGN_OR_RETURN(runner->kv_, config.paged ? MakePagedKvCache(ops, config.kv)
                                                : MakeContiguousKvCache(ops, config.kv));
  KU_RETURN_IF_ERROR(runner->kv_->EnsurePages(1));  // the null page
  KU_ASSIGN_OR_RETURN(runner->act_,
                      MakeActivations(ops, model, config.max_step_tokens, config.max_outputs));
  KU_ASSIGN_OR_RETURN(runner->builder_, BatchBuilder::Create(ops, BatchLimits(config)));
  KU_ASSIGN_OR_RETURN(runner->sampler_, Sampler::Create(ops, config.max_seqs, config.max_context,
                                                        model.vocab, config.vocab_limit));
  KU_ASSIGN_OR_RETURN(runner->host_row_, ops.AllocatePinned(HostRowBytes(model)));
  return runner;
}

// One call of the op for as many copies as do not depend on each other: a page that is released
// within a schedule can become the target of a later copy.
void ModelRunner::CopyPages(const StepPlan& plan, const Batch& batch) {
  const std::vector<StepPlan::PageCopy>& copies = plan.copies;
  for (size_t begin = 0, end = 0; begin < copies.size(); begin = end) {
    const auto conflicts = [&](const StepPlan::PageCopy& earlier) {
      const StepPlan::PageCopy& next = copies[end];
      return next.to == earlier.from || next.to == earlier.to || next.from == earlier.to;
    };
    do {
      ++end;
    } while (end < copies.size() &&
             std::none_of(copies.begin() + begin, copies.begin() + end, conflicts));
    ops_.CopyPages(kv_->View(0, batch.block_tables), batch.copies.Rows(begin, end));
  }
}

int ModelRunner::NextSlot() {
  const int slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % kMaxStepsInFlight;
  // Its uploads read the host arenas that are about to be filled.
  if (marks_[slot].has_value()) ops_.WaitFor(*marks_[slot]);
  marks_[slot].reset();
  return slot;
}

int ModelRunner::Launch(const StepPlan& plan) {
  const int slot = NextSlot();
  Batch batch = builder_->Build(plan, config_.use_graph ? graph_.PadTo(plan) : 0, slot);
  batch.sampled = sampler_->device_tokens();
  CopyPages(plan, batch);
  auto step = [this](const Batch& b) { decoder_.Forward(b, *kv_, act_); };
  graph_.Run(batch, config_.use_graph && plan.decode_only, step);
  sampler_->Sample(act_.logits, plan, slot);
  marks_[slot] = ops_.Mark();
  return slot;
}

std::vector<int32_t> ModelRunner::Take(int slot) {
  KU_CHECK(marks_[slot].has_value(), "the step was taken before");
  ops_.WaitFor(*marks_[slot]);
  marks_[slot].reset();
  return sampler_->Tokens(slot);
}

const float* ModelRunner::HostLogits(int output) {
  const int64_t vocab = decoder_.config().vocab;
  const Tensor host = host_row_.As(DType::kF32, {1, vocab});
  ops_.Download(host, act_.logits.Rows(output, output + 1));
  ops_.Sync();
  return host.ptr<float>();
}

std::optional<int> ModelRunner::FirstNonFiniteLayer(const StepPlan& plan) {
  std::optional<int> first;
  const Batch batch = builder_->Build(plan, 0, NextSlot());
  decoder_.Forward(batch, *kv_, act_, [&](int layer, Tensor residual) {
    if (first.has_value()) return;
    const Tensor host = host_row_.As(residual.dtype, {1, residual.shape[1]});
    for (int64_t r = 0; r < residual.rows() && !first.has_value(); ++r) {
      ops_.Download(host, residual.Rows(r, r + 1));
      ops_.Sync();
      if (!AllFinite(host)) first = layer;
    }
  });
  ops_.Sync();
  return first;
}

}  // namespace kuiper
