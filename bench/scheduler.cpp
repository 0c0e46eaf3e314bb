// Measures the cost of scheduling on the host: no model, no tensors.
#include "kuiper/engine/scheduler.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/scenarios.h"
#include "kuiper/base/clock.h"
#include "kuiper/engine/batch_builder.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"
#include "kuiper/ops/ops.h"

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

Status BenchScheduler(const std::vector<int>& batches, int steps, Report* report) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeOps(Device{}, {.num_threads = 1}));
  for (const int batch : batches) {
    const int pages = batch * ((kPromptTokens + steps) / kPageSize + 2);
    BlockPool pool(pages + 1, kPageSize);
    const auto reuse = MakePageReuse(pool, 0);
    Scheduler scheduler({.max_seqs = batch,
                         .max_step_tokens = std::max(batch, 8192),
                         .max_context = kPromptTokens + steps + 1,
                         .group_decodes = true},
                        pool, reuse.get());
    for (int id = 0; id < batch; ++id) {
      KU_RETURN_IF_ERROR(scheduler.Add(MakeSequence(id, steps + 1)));
    }
    KU_ASSIGN_OR_RETURN(
        const std::unique_ptr<BatchBuilder> builder,
        BatchBuilder::Create(ops->device(), {.max_tokens = std::max(batch, 8192),
                                             .max_seqs = batch,
                                             .max_outputs = batch,
                                             .max_pages = (kPromptTokens + steps) / kPageSize + 2,
                                             .page_size = kPageSize,
                                             .max_kv_len = kPromptTokens + steps + 1,
                                             .cascade = true}));
    std::vector<double> times, builds;
    while (static_cast<int>(times.size()) < steps) {
      const Clock::time_point begin = Clock::now();
      Scheduler::Step step = scheduler.Schedule();
      const Clock::time_point scheduled = Clock::now();
      std::vector<Scheduler::Outcome> tokens;
      for (const StepPlan::Entry& entry : step.plan.entries) {
        if (entry.samples.empty()) continue;
        tokens.push_back(Scheduler::Token{static_cast<int32_t>(entry.sequence)});
      }
      const Clock::time_point begin_build = Clock::now();
      builder->Build(step.plan);
      const Clock::time_point sampled = Clock::now();
      scheduler.Commit(step.plan, tokens);
      const std::chrono::duration<double, std::micro> host =
          (scheduled - begin) + (Clock::now() - sampled);
      if (step.plan.decode_only()) {
        times.push_back(host.count());
        builds.push_back(std::chrono::duration<double, std::micro>(sampled - begin_build).count());
      }
      scheduler.Recycle(std::move(step.plan));
    }
    std::sort(times.begin(), times.end());
    report->Add(Line()
                    .Key("sequences", batch)
                    .Cost("us", SpreadOf(times))
                    .Figure("p99_us", times[times.size() * 99 / 100])
                    .Figure("build_us", Median(builds)));
  }
  return OkStatus();
}

}  // namespace kuiper::tools
