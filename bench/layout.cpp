// Compares the paged and the contiguous layout in alternating runs: attention by itself, and whole
// decode steps through the engine's own runner. Keys and values are random, so that a context of
// any length is available at once.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <utility>

#include "bench/kv.h"
#include "bench/scenarios.h"
#include "kuiper/base/clock.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/model/model.h"

namespace kuiper::tools {
namespace {

constexpr int kStepsPerRun = 4;  // consecutive steps of one side in an alternating run

// Plans a step of all sequences; `tables` is empty if the runner already has them.
StepPlan PlanOf(const KvLoad& load, const std::vector<int32_t>& tables, int vocab, int num_kept) {
  StepPlan plan;
  const std::ptrdiff_t columns = tables.empty() ? 0 : load.pages_per_sequence();
  for (int s = 0; s < load.batch; ++s) {
    StepPlan::Entry& entry = plan.Open(s, load.context - 1);
    entry.decodes = true;
    entry.num_kept_pages = num_kept;
    plan.tokens.push_back(TokenRef::Known(s % vocab));
    plan.positions.push_back(load.context - 1);
    plan.pages.insert(plan.pages.end(), tables.begin() + s * columns,
                      tables.begin() + (s + 1) * columns);
    plan.samples.push_back({.params = {.temperature = 0}});
    plan.Close();
  }
  return plan;
}

// Decode steps of sequences with equal context; each step repeats the same one.
class DecodeSteps {
 public:
  static StatusOr<std::unique_ptr<DecodeSteps>> Make(Ops& ops, const Model& model, KvFormat format,
                                                     const KvLoad& load) {
    const DecoderConfig& d = model.decoder().config();
    std::unique_ptr<DecodeSteps> steps(new DecodeSteps);
    ModelRunner::Config config;
    config.kv = ShapeOf(d, format, load);
    config.paged = load.paged();
    config.max_context = load.context;
    config.max_seqs = config.max_step_tokens = config.max_outputs = config.max_samples = load.batch;
    config.vocab_limit = d.vocab;
    config.quantized = model.decoder().quantized();
    KU_ASSIGN_OR_RETURN(steps->runner_, ModelRunner::Create(ops, model.decoder(), config));
    KU_RETURN_IF_ERROR(steps->runner_->kv().EnsurePages(config.kv.num_pages));
    KU_RETURN_IF_ERROR(FillKv(ops, d, steps->runner_->kv()));
    const StepPlan first = PlanOf(load, BlockTables(load), d.vocab, 0);
    KU_RETURN_IF_ERROR(steps->runner_->Check(first));
    steps->runner_->Take(steps->runner_->Launch(first));
    steps->plan_ = PlanOf(load, {}, d.vocab, load.pages_per_sequence());
    return steps;
  }

  Status Run(int n) {
    for (int i = 0; i < n; ++i) runner_->Take(runner_->Launch(plan_));
    return OkStatus();
  }

 private:
  DecodeSteps() = default;

  std::unique_ptr<ModelRunner> runner_;
  StepPlan plan_;
};

using Steps = std::function<Status(int n)>;

StatusOr<double> SecondsOf(const Steps& steps) {
  const Clock::time_point begin = Clock::now();
  KU_RETURN_IF_ERROR(steps(kStepsPerRun));
  return SecondsSince(begin) / kStepsPerRun;
}

// Measures pairs of alternating runs; the side that goes first alternates. The first pair is not
// counted.
StatusOr<Line> MeasureAlternating(const char* phase, const KvLoad& load, const Workload& w,
                                  const Steps& paged, const Steps& contiguous) {
  std::vector<double> paged_ms, contiguous_ms, ratios;
  const int pairs = std::max(1, w.steps / kStepsPerRun) * w.repetitions;
  for (int i = 0; i <= pairs; ++i) {
    const bool first = i % 2 == 0;
    KU_ASSIGN_OR_RETURN(const double a, SecondsOf(first ? paged : contiguous));
    KU_ASSIGN_OR_RETURN(const double b, SecondsOf(first ? contiguous : paged));
    if (i == 0) continue;
    paged_ms.push_back(1e3 * (first ? a : b));
    contiguous_ms.push_back(1e3 * (first ? b : a));
    ratios.push_back(paged_ms.back() / contiguous_ms.back());
  }
  const Spread ratio = SpreadOf(ratios);
  Line line;
  line.Key("phase", phase)
      .Key("page", load.page_size)
      .Key("context", load.context)
      .Key("batch", load.batch)
      .Cost("paged_ms", SpreadOf(paged_ms), 3)
      .Figure("contiguous_ms", Median(contiguous_ms), 3)
      .Ratio("ratio", ratio.median)
      .Ratio("low", ratio.low)
      .Ratio("high", ratio.high)
      .Figure("pairs", ratio.count, 0);
  return line;
}

template <typename Side>
Status Compare(const char* phase, const KvLoad& load, const Workload& w, Side make,
               Report* report) {
  KvLoad row = load;
  row.page_size = 0;
  KU_ASSIGN_OR_RETURN(const auto paged, make(load));
  KU_ASSIGN_OR_RETURN(const auto contiguous, make(row));
  KU_ASSIGN_OR_RETURN(const Line line, MeasureAlternating(
                                           phase, load, w, [&](int n) { return paged->Run(n); },
                                           [&](int n) { return contiguous->Run(n); }));
  report->Add(line);
  return OkStatus();
}

}  // namespace

Status BenchLayout(OpenedModel opened, const KernelBench& bench, const WeightOptions& weights,
                   Report* report) {
  const Workload& w = bench.workload;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeOps(bench.device, bench.ops));
  LoadOptions options;
  options.max_context = w.LongestContext();
  options.weights = weights;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                      LoadModel(std::move(opened), *ops, options));
  const DecoderConfig& d = model->decoder().config();
  const KvFormat kv = bench.kv_format.value_or(KvFormat::Of(d.dtype));
  report->Set("device", ops->device().Description());
  report->Set("dtype", DTypeName(d.dtype));
  report->Set("kv_dtype", kv.name());
  report->Print("%s, %s, KV cache of %s; pages in random order\n",
                ops->device().Description().c_str(), DTypeName(d.dtype), kv.name());
  for (const int context : w.contexts) {
    for (const int batch : w.batches) {
      for (const int page_size : bench.page_sizes) {
        const KvLoad load = {
            .context = context, .batch = batch, .page_size = page_size, .shuffled = true};
        KvLoad both = load;  // both layouts are in memory at the same time
        both.batch *= 2;
        if (!FitsMemory(ops->device(), d, kv, both)) {
          std::fprintf(stderr, "note: %d x %d tokens are left out: no room for two KV caches\n",
                       batch, context);
          continue;
        }
        KU_RETURN_IF_ERROR(ops->Reserve(DecodeAttention::Limits(d, context, batch)));
        KU_RETURN_IF_ERROR(Compare(
            "attention", load, w,
            [&](const KvLoad& side) { return DecodeAttention::Make(*ops, d, d.dtype, kv, side); },
            report));
        KU_RETURN_IF_ERROR(Compare(
            "step", load, w,
            [&](const KvLoad& side) { return DecodeSteps::Make(*ops, *model, kv, side); }, report));
      }
    }
  }
  return OkStatus();
}

}  // namespace kuiper::tools
