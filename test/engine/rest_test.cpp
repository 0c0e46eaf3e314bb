// Sequences that are paused between their tokens, as the scheduler sees them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kuiper/engine/scheduler.h"

namespace kuiper {
namespace {

struct Fixture {
  explicit Fixture(int pages)
      : pool(pages + 1, 4),
        host_pages(pages + 1, 4),
        scheduler({.max_seqs = 4, .max_step_tokens = 64, .max_context = 64}, pool, nullptr,
                  &host_pages) {}

  void Add(int64_t id, int prompt) {
    auto seq = std::make_unique<Sequence>();
    seq->id = id;
    seq->tokens.assign(prompt, 7);
    seq->num_prompt = prompt;
    seq->max_new_tokens = 30;
    ASSERT_TRUE(scheduler.Add(std::move(seq)).ok());
  }
  // Returns the sequences of a step; those that sample are then paused.
  std::vector<int64_t> Step() {
    step = scheduler.Schedule();
    EXPECT_TRUE(step.out_of_pages.empty());
    std::vector<int64_t> ids;
    for (const StepPlan::Entry& entry : step.plan.entries) ids.push_back(entry.sequence);
    const std::vector<Scheduler::Outcome> outcomes(step.plan.samples.size(),
                                                   Scheduler::Undecided());
    scheduler.Commit(step.plan, outcomes);
    return ids;
  }

  BlockPool pool, host_pages;
  Scheduler scheduler;
  Scheduler::Step step;
};

using Ids = std::vector<int64_t>;

TEST(RestTest, HasNoPartInStepsUntilItsTokenIsKnown) {
  Fixture f(16);
  f.Add(1, 8);
  EXPECT_EQ(f.Step(), Ids{1});
  const Sequence& seq = *f.scheduler.Find(1);
  EXPECT_EQ(seq.num_tokens(), 8);
  EXPECT_EQ(seq.num_computed, 8);
  EXPECT_EQ(f.Step(), Ids{});
  EXPECT_EQ(f.pool.num_used(), 2) << "no sequence waits for them";
  f.scheduler.Append(1, 42);
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_TRUE(f.step.plan.decode_only());
  EXPECT_EQ(seq.tokens.back(), 42);
  EXPECT_EQ(seq.num_computed, 9);
}

TEST(RestTest, OneThatIsPutBackIsComputedAgainWhenItsTokenIsKnownNeverSwapped) {
  for (const Preemption how : {Preemption::kRecompute, Preemption::kSwap}) {
    Fixture f(16);
    f.Add(1, 8);
    f.Step();
    f.scheduler.Preempt(1, how);
    EXPECT_EQ(f.host_pages.num_used(), 0);
    EXPECT_EQ(f.pool.num_used(), 0);
    EXPECT_EQ(f.Step(), Ids{}) << "its logits are known";
    f.scheduler.Append(1, 42);
    int num_steps = 0;
    for (; f.scheduler.Find(1)->num_computed < 9; ++num_steps) ASSERT_EQ(f.Step(), Ids{1});
    EXPECT_EQ(num_steps, 2) << "the prompt, then the token";
  }
}

TEST(RestTest, TheLastOneGivesUpItsPagesOnlyWhenNobodyElseCanGoOn) {
  Fixture f(8);
  f.Add(1, 8);
  f.Add(2, 8);
  f.Add(3, 8);
  EXPECT_EQ(f.Step(), (Ids{1, 2}));
  f.scheduler.Append(1, 42);
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_EQ(f.scheduler.Find(2)->pages.size(), 2u);
  EXPECT_EQ(f.Step(), Ids{});
  EXPECT_EQ(f.scheduler.Find(1)->pages.size(), 3u);
  EXPECT_TRUE(f.scheduler.Find(2)->pages.empty());
  EXPECT_EQ(f.scheduler.stats().preempted_recompute, 0) << "none was preempted";
  EXPECT_EQ(f.Step(), Ids{3});
  f.scheduler.Finish(3);
  EXPECT_EQ(f.Step(), Ids{}) << "a paused sequence does not resume by itself";
  f.scheduler.Append(2, 42);
  EXPECT_EQ(f.Step(), Ids{2});
}

// However small the pool: each sequence runs, is preempted, and continues when its token is known.
TEST(RestTest, OneAfterTheOtherFitsThePool) {
  Fixture f(3);
  for (int64_t id = 1; id <= 3; ++id) f.Add(id, 8);
  for (int32_t token = 100; token < 103; ++token) {
    std::vector<int> computed(4);
    for (int i = 0; i < 20; ++i) {
      for (const int64_t id : f.Step()) computed[id] = f.scheduler.Find(id)->num_computed;
    }
    for (int64_t id = 1; id <= 3; ++id) {
      EXPECT_EQ(computed[id], 8 + token - 100) << id;
      f.scheduler.Append(id, token);
    }
  }
}

TEST(RestTest, OneWithoutPagesCanEnd) {
  Fixture f(16);
  f.Add(1, 8);
  f.Step();
  f.scheduler.Preempt(1, Preemption::kRecompute);
  EXPECT_EQ(f.scheduler.Finish(1)->num_tokens(), 8);
  EXPECT_FALSE(f.scheduler.HasWork());
}

}  // namespace
}  // namespace kuiper
