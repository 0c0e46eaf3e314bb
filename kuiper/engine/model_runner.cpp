#include "kuiper/engine/model_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "kuiper/engine/override_span.h"

namespace kuiper {
namespace {

BatchBuilder::Limits BatchLimits(const ModelRunner::Config& config) {
  return {.max_tokens = config.max_step_tokens,
          .max_seqs = config.max_seqs,
          .max_outputs = config.max_outputs,
          .num_axes = config.num_axes,
          .max_pages = (config.max_context + config.kv.page_size - 1) / config.kv.page_size,
          .page_size = config.kv.page_size,
          .max_kv_len = config.max_context,
          .cascade = config.cascade};
}

// A plan whose entries have `length` tokens, sample one, and use page 1. They are decode steps if
// `length` is 1.
StepPlan WarmUpPlan(int num_entries, int length, int page_size, int num_axes) {
  StepPlan plan;
  plan.num_axes = num_axes;
  for (int i = 0; i < num_entries; ++i) {
    plan.Open(-1 - i, 0).decodes = length == 1;
    plan.tokens.resize(plan.tokens.size() + length, TokenRef::Known(0));
    plan.pages.resize(plan.pages.size() + (length + page_size - 1) / page_size, 1);
    plan.samples.push_back({.row = length - 1, .params = {.temperature = 1.f, .top_p = 0.9f}});
    plan.Close();
  }
  for (int i = 0; i < num_axes * num_entries; ++i)
    AppendPositions({}, 0, length, 0, &plan.positions);
  return plan;
}

// Bytes of one row of logits, or of the residual stream.
size_t HostRowBytes(const DecoderConfig& model) {
  return std::max(model.vocab, model.hidden) * sizeof(float);
}

}  // namespace

MemorySize ModelRunner::ArraySize(const DecoderConfig& model, const Config& config) {
  const MemorySize batch = BatchBuilder::SizeOf(BatchLimits(config));
  const MemorySize sampler = Sampler::SizeOf(config.max_samples, config.max_context, model.vocab);
  return {.device = batch.device + sampler.device,
          .host = batch.host + sampler.host + HostRowBytes(model)};
}

OpsLimits ModelRunner::LimitsOf(const DecoderConfig& model, const Config& config) {
  OpsLimits limits{.max_tokens = config.max_step_tokens,
                   .max_seqs = std::max(config.max_seqs, config.max_samples),
                   .max_features = std::max({model.hidden, model.q_size(), model.intermediate}),
                   .max_context = config.max_context,
                   .vocab = model.vocab,
                   .cascade = config.cascade,
                   .quantized = config.quantized};
  limits.Include(config.others);
  return limits;
}

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(Ops& ops, const Decoder& decoder,
                                                           const Config& config,
                                                           FindRows find_rows) {
  const DecoderConfig& model = decoder.config();
  std::unique_ptr<ModelRunner> runner(new ModelRunner(ops, decoder, config, std::move(find_rows)));
  KU_RETURN_IF_ERROR(ops.Reserve(LimitsOf(model, config)));
  KU_RETURN_IF_ERROR(decoder.Prepare());
  KU_ASSIGN_OR_RETURN(runner->kv_, config.paged ? MakePagedKvCache(ops.device(), config.kv)
                                                : MakeContiguousKvCache(ops.device(), config.kv));
  KU_RETURN_IF_ERROR(runner->kv_->EnsurePages(1));  // the null page
  KU_ASSIGN_OR_RETURN(runner->act_,
                      MakeActivations(ops, model, config.max_step_tokens, config.max_outputs));
  KU_ASSIGN_OR_RETURN(runner->builder_, BatchBuilder::Create(ops.device(), BatchLimits(config)));
  KU_ASSIGN_OR_RETURN(runner->sampler_, Sampler::Create(ops, config.max_samples, config.max_context,
                                                        model.vocab, config.vocab_limit));
  KU_ASSIGN_OR_RETURN(runner->host_row_, ops.device().AllocatePinned(HostRowBytes(model)));
  return runner;
}

Status ModelRunner::WarmUp() {
  constexpr int kPromptTokens = 64;  // rows of the largest attention block
  KU_RETURN_IF_ERROR(kv_->EnsurePages(2));
  const auto run = [&](int num_entries, int length) {
    Take(Launch(WarmUpPlan(num_entries, length, config_.kv.page_size, config_.num_axes)));
  };
  run(1, std::min({kPromptTokens, config_.max_step_tokens, config_.max_context}));
  const int most = std::min(config_.max_seqs, config_.max_samples);
  for (int seqs = 1; seqs < 2 * most; seqs *= 2) {
    run(std::min(seqs, most), 1);
    if (config_.use_graph) run(std::min(seqs, most), 1);  // captured
  }
  builder_->ForgetTables();
  return OkStatus();
}

// Runs consecutive copies with one call of the op as long as they are independent. They may depend
// on each other: a page released within a schedule can become the target of a later copy.
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
    ops_.Run(CopyPagesArgs{.kv = kv_->View(0, batch.block_tables),
                           .copies = batch.copies.Rows(begin, end)});
  }
}

int ModelRunner::NextFlight() {
  const int flight = next_flight_;
  next_flight_ = (next_flight_ + 1) % kMaxStepsInFlight;
  // Uploads of the earlier step read the host arenas that will be filled next.
  if (marks_[flight].has_value()) ops_.device().WaitFor(*marks_[flight]);
  marks_[flight].reset();
  return flight;
}

PlanLimits ModelRunner::Limits() const {
  const DecoderConfig& model = decoder_.config();
  return {
      .max_tokens = config_.max_step_tokens,
      .max_seqs = config_.max_seqs,
      .max_samples = config_.max_samples,
      .max_outputs = config_.max_outputs,
      .max_penalties = Sampler::MaxPenalties(config_.max_samples, config_.max_context, model.vocab),
      .max_biases = Sampler::MaxBiases(config_.max_samples, model.vocab),
      .num_axes = config_.num_axes,
      .max_context = config_.max_context,
      .num_pages = config_.kv.num_pages,
      .vocab = model.vocab,
      .layers = model.layers};
}

StatusOr<std::vector<RowOverride>> ModelRunner::OverridesOf(const StepPlan& plan) const {
  const int64_t hidden = decoder_.config().hidden, layers = decoder_.config().layers;
  std::vector<RowOverride> overrides;
  for (const StepPlan::Entry& entry : plan.entries) {
    for (const StepPlan::EmbeddingOverride& patch : Part(plan.overrides, entry.overrides)) {
      const Tensor rows = find_rows_ ? find_rows_(patch.source) : Tensor();
      const int64_t end = int64_t{patch.first_row} + patch.rows.size();
      if (rows.empty() || rows.rows() < end || rows.shape[1] % hidden != 0 ||
          rows.shape[1] / hidden > 1 + layers) {
        return Status(StatusCode::kInvalidArgument,
                      "step plan: source " + std::to_string(patch.source) + " of a patch has no " +
                          std::to_string(end) + " rows");
      }
      overrides.push_back({entry.tokens.begin + patch.rows.begin, rows.Rows(patch.first_row, end)});
    }
  }
  return overrides;
}

Status ModelRunner::Check(const StepPlan& plan) const {
  KU_RETURN_IF_ERROR(CheckPlan(plan, Limits()));
  KU_RETURN_IF_ERROR(OverridesOf(plan).status());
  return builder_->CheckTables(plan);
}

int ModelRunner::Launch(const StepPlan& plan, const HiddenVisitor& visit) {
  const Status fits = CheckPlan(plan, Limits());
  KU_CHECK(fits.ok(), fits.message());
  KU_CHECK(plan.hidden_rows.empty() || visit, "hidden rows need a visitor");
  const int flight = NextFlight();
  // The number of axes is part of a captured graph.
  const bool replays = config_.use_graph && plan.decode_only() && plan.num_axes == config_.num_axes;
  Batch batch = builder_->Build(plan, replays ? graph_.PadTo(plan) : 0, flight);
  batch.sampled = sampler_->device_tokens();
  batch.overrides = OverridesOf(plan).value();
  CopyPages(plan, batch);
  LayerProbe probe;
  if (!plan.hidden_rows.empty()) {
    probe = [&](int layer, Tensor residual) { VisitHidden(plan, layer, residual, visit); };
  }
  auto step = [&](const Batch& b) { decoder_.Forward(b, *kv_, act_, probe); };
  graph_.Run(batch, replays, step);
  sampler_->Sample(act_.logits, plan, flight);
  marks_[flight] = ops_.device().Mark();
  return flight;
}

StepResult ModelRunner::Take(int flight) {
  KU_CHECK(marks_[flight].has_value(), "the step was taken before");
  ops_.device().WaitFor(*marks_[flight]);
  marks_[flight].reset();
  return sampler_->Result(flight);
}

const float* ModelRunner::HostLogits(int row) {
  const int64_t vocab = decoder_.config().vocab;
  const Tensor host = host_row_.As(DType::kF32, {1, vocab});
  ops_.device().Download(host, act_.logits.Rows(row, row + 1));
  ops_.device().Sync();
  return host.ptr<float>();
}

void ModelRunner::VisitHidden(const StepPlan& plan, int layer, Tensor residual,
                              const HiddenVisitor& visit) {
  if (!std::binary_search(plan.hidden_layers.begin(), plan.hidden_layers.end(), layer)) return;
  const int64_t hidden = residual.shape[1];
  const Tensor host = host_row_.As(DType::kF32, {1, hidden});
  for (const StepPlan::Entry& entry : plan.entries) {
    for (const int32_t of_entry : Part(plan.hidden_rows, entry.hidden_rows)) {
      const int row = entry.tokens.begin + of_entry;
      ops_.device().Download(host, residual.Rows(row, row + 1));
      ops_.device().Sync();
      visit(layer, row, {host.ptr<float>(), static_cast<size_t>(hidden)});
    }
  }
}

std::optional<int> ModelRunner::FirstNonFiniteLayer(StepPlan plan) {
  KU_CHECK(plan.copies.empty(), "pages were copied when the plan was taken");
  plan.hidden_layers.resize(decoder_.config().layers);
  std::iota(plan.hidden_layers.begin(), plan.hidden_layers.end(), 0);
  plan.hidden_rows.clear();
  for (StepPlan::Entry& entry : plan.entries) {
    entry.hidden_rows.begin = static_cast<int32_t>(plan.hidden_rows.size());
    for (int row = 0; row < entry.num_tokens(); ++row) plan.hidden_rows.push_back(row);
    entry.hidden_rows.end = static_cast<int32_t>(plan.hidden_rows.size());
  }
  std::optional<int> first;
  Launch(plan, [&](int layer, int, std::span<const float> values) {
    const auto is_finite = [](float x) { return std::isfinite(x); };
    if (!first.has_value() && !std::all_of(values.begin(), values.end(), is_finite)) first = layer;
  });
  return first;
}

}  // namespace kuiper
