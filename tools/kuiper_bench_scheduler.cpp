// What scheduling costs on the host: no model, no tensors.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kuiper/base/clock.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"
#include "tools/kuiper_bench_scenarios.h"

namespace kuiper::tools {
namespace {

constexpr int kPageSize = 16;
constexpr int kPromptTokens = 512;

std::unique_ptr<Sequence> MakeSequence(int64_t id, int new_tokens) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  for (int i = 0; i < kPromptTokens; ++i) {
    seq->tokens.push_back(i < kPromptTokens / 2 ? i : static_cast<int32_t>(1000 * id + i));
  }
  seq->num_prompt = kPromptTokens;
  seq->max_new_tokens = new_tokens;
  return seq;
}

}  // namespace

void BenchScheduler(const std::vector<int>& batches, int steps, Report* report) {
  for (const int batch : batches) {
    const int pages = batch * ((kPromptTokens + steps) / kPageSize + 2);
    BlockPool pool(pages + 1, kPageSize);
    const auto reuse = MakePageReuse(pool, 0);
    Scheduler scheduler({.max_seqs = batch,
                         .max_step_tokens = std::max(batch, 8192),
                         .max_context = kPromptTokens + steps + 1},
                        pool, reuse.get());
    for (int id = 0; id < batch; ++id) {
      if (!scheduler.Add(MakeSequence(id, steps + 1)).ok()) return;
    }
    std::vector<double> times;
    while (static_cast<int>(times.size()) < steps) {
      const Clock::time_point begin = Clock::now();
      Scheduler::Step step = scheduler.Schedule();
      const Clock::time_point scheduled = Clock::now();
      std::vector<Scheduler::Outcome> tokens;
      for (const StepPlan::Entry& entry : step.plan.entries) {
        if (entry.samples.empty()) continue;
        tokens.push_back(Scheduler::Token{static_cast<int32_t>(entry.sequence)});
      }
      const Clock::time_point sampled = Clock::now();
      scheduler.Commit(step.plan, tokens);
      const std::chrono::duration<double, std::micro> host =
          (scheduled - begin) + (Clock::now() - sampled);
      if (step.plan.decode_only()) times.push_back(host.count());
      scheduler.TakeBack(std::move(step.plan));
    }
    std::sort(times.begin(), times.end());
    report->Add(Line()
                    .Key("sequences", batch)
                    .Cost("us", SpreadOf(times))
                    .Figure("p99_us", times[times.size() * 99 / 100]));
  }
}

}  // namespace kuiper::tools
