// Memory waste of the paged and the contiguous KV cache under the same load: the real scheduler and
// pages, with a runner that computes nothing.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <numbers>
#include <random>
#include <utility>

#include "bench/scenarios.h"
#include "kuiper/base/check.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/kv/block_pool.h"

namespace kuiper::tools {
namespace {

constexpr uint64_t kSeed = 1;
constexpr double kPromptMedian = 256, kPromptSigma = 1, kAnswerMean = 128;
constexpr int kStepTokens = 512;
// A step takes nearly as long as that of Qwen3-0.6B on the CPU of docs/benchmarks.md.
constexpr double kStepSeconds = 0.040, kTokenSeconds = 0.003;

struct Lengths {
  int prompt = 0, answer = 0;
};

struct Sample {
  double begin = 0, seconds = 0;
  int sequences = 0;  // sequences that hold memory
  int64_t tokens = 0, capacity = 0;

  double waste() const { return 1 - static_cast<double>(tokens) / static_cast<double>(capacity); }
};

// Gives the same results on every platform, unlike the distributions of <random>.
std::vector<Lengths> DrawLengths(const MemoryLoad& load) {
  std::mt19937_64 bits(kSeed);
  const auto uniform = [&] { return std::ldexp(static_cast<double>(bits() >> 11), -53); };
  std::vector<Lengths> lengths;
  for (int i = 0; i < load.requests; ++i) {
    const double radius = std::sqrt(-2 * std::log1p(-uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
    const double prompt = std::round(kPromptMedian * std::exp(kPromptSigma * normal));
    const double answer = 1 + std::floor(std::log1p(-uniform()) / std::log1p(-1 / kAnswerMean));
    Lengths l;
    l.prompt = static_cast<int>(std::clamp<double>(prompt, 1, load.max_context - 1));
    l.answer = static_cast<int>(std::min<double>(answer, load.max_context - l.prompt));
    lengths.push_back(l);
  }
  return lengths;
}

// Records the state during a step, and advances the clock to its end.
Sample Observe(Scheduler& scheduler, const BlockPool& pool, const StepPlan& plan, int requests,
               double* clock) {
  Sample sample{.begin = *clock, .seconds = kStepSeconds + kTokenSeconds * plan.num_tokens()};
  *clock += sample.seconds;
  for (int id = 0; id < requests; ++id) {
    const Sequence* seq = scheduler.Find(id);
    if (seq == nullptr || seq->pages.empty()) continue;
    ++sample.sequences;
    sample.tokens += seq->num_computed;
  }
  sample.capacity = int64_t{pool.num_used()} * pool.page_size();
  return sample;
}

std::vector<Sample> RunLoad(const std::vector<Lengths>& lengths, const MemoryLoad& load,
                            int page_size) {
  const int num_pages = load.rows * ((load.max_context + page_size - 1) / page_size);
  const int max_seqs = std::min(load.requests, num_pages);
  BlockPool pool(num_pages + 1, page_size);
  Scheduler scheduler({.max_seqs = max_seqs,
                       .max_step_tokens = std::max(kStepTokens, max_seqs),
                       .max_context = load.max_context},
                      pool, nullptr);
  for (int id = 0; id < load.requests; ++id) {
    auto seq = std::make_unique<Sequence>();
    seq->id = id;
    seq->num_prompt = lengths[id].prompt;
    seq->max_new_tokens = lengths[id].answer;
    seq->tokens.assign(seq->num_prompt, 0);
    KU_CHECK(scheduler.Add(std::move(seq)).ok(), "a prompt is shorter than the context");
  }
  std::vector<Sample> samples;
  double clock = 0;
  while (scheduler.HasWork()) {
    const Scheduler::Step step = scheduler.Schedule();
    KU_CHECK(step.out_of_pages.empty(), "each sequence fits the pool when it runs alone");
    samples.push_back(Observe(scheduler, pool, step.plan, load.requests, &clock));
    scheduler.Commit(
        step.plan, std::vector<Scheduler::Outcome>(step.plan.samples.size(), Scheduler::Token{0}));
    for (const StepPlan::Entry& entry : step.plan.entries) {
      const Sequence& seq = *scheduler.Find(entry.sequence);
      if (seq.num_generated() >= seq.max_new_tokens) scheduler.Finish(seq.id);
    }
  }
  return samples;
}

Line SummaryOf(const char* layout, int page_size, const std::vector<Sample>& samples) {
  double seconds = 0, sequences = 0, tokens = 0, capacity = 0, waste = 0;
  for (const Sample& s : samples) {
    seconds += s.seconds;
    sequences += s.seconds * s.sequences;
    tokens += s.seconds * static_cast<double>(s.tokens);
    capacity += s.seconds * static_cast<double>(s.capacity);
    waste += s.seconds * s.waste();
  }
  Line line;
  line.Key("layout", layout)
      .Key("page", page_size)
      .Figure("steps", static_cast<double>(samples.size()), 0)
      .Figure("seconds", seconds)
      .Figure("sequences", sequences / seconds)
      .Figure("tokens", tokens / seconds, 0)
      .Figure("capacity", capacity / seconds, 0)
      .Share("waste", waste / seconds, 2);
  return line;
}

void WriteSeries(const char* layout, const std::vector<Sample>& samples, std::ofstream* out) {
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    *out << layout << ',' << i << ',' << s.begin << ',' << s.sequences << ',' << s.tokens << ','
         << s.capacity << ',' << s.waste() << '\n';
  }
}

}  // namespace

Status BenchMemory(const MemoryLoad& load, const std::string& csv, Report* report) {
  std::ofstream out;
  if (!csv.empty()) {
    out.open(csv);
    if (!out) return Status(StatusCode::kInternal, "cannot write " + csv);
    out << "layout,step,seconds,sequences,tokens,capacity,waste\n";
  }
  const std::vector<Lengths> lengths = DrawLengths(load);
  int64_t prompts = 0, answers = 0;
  for (const Lengths& l : lengths) {
    prompts += l.prompt;
    answers += l.answer;
  }
  report->Print(
      "load: %d requests, prompts log-normal (median %.0f, sigma %.0f), answers geometric (mean "
      "%.0f), seed %d, context %d: %lld prompt tokens, %lld answer tokens\n"
      "memory: %lld tokens; a step takes %.0f ms and %.0f ms per token\n",
      load.requests, kPromptMedian, kPromptSigma, kAnswerMean, static_cast<int>(kSeed),
      load.max_context, static_cast<long long>(prompts), static_cast<long long>(answers),
      static_cast<long long>(load.rows) * load.max_context, kStepSeconds * 1e3,
      kTokenSeconds * 1e3);
  std::vector<std::pair<const char*, int>> layouts;
  for (const int page_size : load.page_sizes) layouts.emplace_back("paged", page_size);
  layouts.emplace_back("contiguous", load.max_context);
  for (const auto& [layout, page_size] : layouts) {
    const std::vector<Sample> samples = RunLoad(lengths, load, page_size);
    report->Add(SummaryOf(layout, page_size, samples));
    if (out.is_open()) WriteSeries(layout, samples, &out);
  }
  if (!csv.empty() && !out.flush()) {
    return Status(StatusCode::kInternal, "cannot write " + csv);
  }
  return OkStatus();
}

}  // namespace kuiper::tools
