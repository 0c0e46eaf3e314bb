// Sequences that rest between their tokens, as the scheduler sees them.
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
  // The sequences of a step; each that samples rests then.
  std::vector<int64_t> Step() {
    step = scheduler.Schedule();
    EXPECT_TRUE(step.out_of_pages.empty());
    std::vector<int64_t> ids;
    std::vector<int32_t> sampled;
    for (const StepPlan::Entry& entry : step.plan.entries) {
      ids.push_back(entry.seq->id);
      if (entry.samples) sampled.push_back(kUndecidedToken);
    }
    scheduler.Commit(step.plan, sampled);
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
  EXPECT_EQ(f.step.in_the_way, nullptr) << "nobody waits";
  EXPECT_EQ(f.pool.num_used(), 2);
  f.scheduler.Append(1, 42);
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_TRUE(f.step.plan.decode_only);
  EXPECT_EQ(seq.tokens.back(), 42);
  EXPECT_EQ(seq.num_computed, 9);
}

TEST(RestTest, OneThatIsPutBackIsComputedAgainNeverSwapped) {
  for (const Preemption how : {Preemption::kRecompute, Preemption::kSwap}) {
    Fixture f(16);
    f.Add(1, 8);
    f.Step();
    f.scheduler.Preempt(1, how);
    EXPECT_EQ(f.host_pages.num_used(), 0);
    EXPECT_EQ(f.Step(), Ids{1});
    EXPECT_EQ(f.scheduler.Find(1)->num_computed, 8);
    f.scheduler.Preempt(1, how);
    f.scheduler.Append(1, 42);
    int num_steps = 0;
    for (; f.scheduler.Find(1)->num_computed < 9; ++num_steps) ASSERT_EQ(f.Step(), Ids{1});
    EXPECT_EQ(num_steps, 2) << "the prompt, then the token";
  }
}

TEST(RestTest, TheLastOneIsInTheWayOnlyWhenNobodyElseCanGoOn) {
  Fixture f(8);
  f.Add(1, 8);
  f.Add(2, 8);
  f.Add(3, 8);
  EXPECT_EQ(f.Step(), (Ids{1, 2}));
  EXPECT_EQ(f.step.in_the_way, nullptr);
  f.scheduler.Append(1, 42);
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_EQ(f.step.in_the_way, nullptr);
  EXPECT_EQ(f.Step(), Ids{});
  ASSERT_NE(f.step.in_the_way, nullptr);
  EXPECT_EQ(f.step.in_the_way->id, 2);
  f.scheduler.Finish(2);
  EXPECT_EQ(f.Step(), Ids{3});
}

}  // namespace
}  // namespace kuiper
