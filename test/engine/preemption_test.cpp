// The scheduler's behaviour when pages, max_seqs or the context run out: host logic, no model.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "kuiper/engine/scheduler.h"
#include "test/engine/scheduler_test_util.h"

namespace kuiper {
namespace {

std::unique_ptr<Sequence> MakeSequence(int64_t id, int prompt, int max_new = 1000,
                                       int priority = 0) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  for (int i = 0; i < prompt; ++i) seq->tokens.push_back(static_cast<int32_t>(1000 * id + i));
  seq->num_prompt = prompt;
  seq->max_new_tokens = max_new;
  seq->priority = priority;
  return seq;
}

using Ids = std::vector<int64_t>;

struct Fixture {
  Fixture(int pages, Scheduler::Limits limits, bool reuse_pages = false, int num_host_pages = 0)
      : pool(pages + 1, 4),
        host_pages(num_host_pages + 1, 4),
        reuse(reuse_pages ? MakePageReuse(pool, 0) : nullptr),
        scheduler(limits, pool, reuse.get(), num_host_pages > 0 ? &host_pages : nullptr) {}

  void Add(std::unique_ptr<Sequence> seq) { ASSERT_TRUE(scheduler.Add(std::move(seq)).ok()); }
  Scheduler::Step Step() {
    Scheduler::Step step = scheduler.Schedule();
    scheduler.Launched(step.plan);
    scheduler.Commit(step.plan, test::Outcomes(step.plan, [this](const auto& entry) {
                       return static_cast<int32_t>(5000 + Get(entry.sequence).num_generated());
                     }));
    return step;
  }
  // Ids in the plan of one step.
  Ids StepIds() {
    Ids ids;
    for (const auto& entry : Step().plan.entries) ids.push_back(entry.sequence);
    return ids;
  }
  const Sequence& Get(int64_t id) { return *scheduler.Find(id); }

  BlockPool pool;
  BlockPool host_pages;
  std::unique_ptr<KvReuse> reuse;
  Scheduler scheduler;
};

Scheduler::Limits Limits() {
  return {.max_seqs = 4, .max_step_tokens = 64, .max_context = 256};
}

TEST(PreemptionTest, AdmitsWhatFitsNowAndPutsTheLastOneBackWhenThePoolIsFull) {
  Fixture f(8, Limits());
  f.Add(MakeSequence(1, 8));
  f.Add(MakeSequence(2, 8));
  EXPECT_EQ(f.StepIds(), (Ids{1, 2}));  // 1000 tokens each: full reservations would admit one
  // Both grow from 8 to 16 tokens; one of the two then needs a ninth page.
  for (int i = 0; i < 8; ++i) EXPECT_EQ(f.StepIds(), (Ids{1, 2})) << i;
  EXPECT_EQ(f.StepIds(), (Ids{1}));
  EXPECT_EQ(f.scheduler.stats().preempted_recompute, 1);
  EXPECT_EQ(f.Get(2).num_computed, 0);
  EXPECT_TRUE(f.Get(2).pages.empty());
  EXPECT_EQ(f.Get(2).num_generated(), 9);  // the generated tokens are kept
  EXPECT_EQ(f.scheduler.num_waiting(), 1);
}

TEST(PreemptionTest, PreemptedSequenceIsComputedAgainNotTakenForADecodeStep) {
  Fixture f(8, Limits());
  f.Add(MakeSequence(1, 8));
  f.Add(MakeSequence(2, 8));
  for (int i = 0; i < 10; ++i) f.Step();
  ASSERT_EQ(f.scheduler.num_waiting(), 1);
  f.scheduler.Finish(1);
  const Scheduler::Step step = f.Step();
  ASSERT_EQ(step.plan.entries.size(), 1u);
  EXPECT_EQ(step.plan.entries[0].num_tokens(), 8);
  EXPECT_TRUE(step.plan.samples.empty() && !step.plan.entries[0].decodes);
  // Generated tokens are recomputed separately, as rows of decode steps.
  const Scheduler::Step again = f.Step();
  ASSERT_EQ(again.plan.entries.size(), 1u);
  EXPECT_EQ(again.plan.entries[0].num_tokens(), 9);
  EXPECT_TRUE(again.plan.samples.size() == 1 && again.plan.entries[0].decodes);
  EXPECT_FALSE(again.plan.decode_only());
  EXPECT_EQ(f.Get(2).num_generated(), 10);
  EXPECT_TRUE(f.Step().plan.decode_only());
}

TEST(PreemptionTest, PreemptedSequenceFindsItsOwnPagesAgain) {
  Fixture f(8, Limits(), true);
  f.Add(MakeSequence(1, 8));
  f.Add(MakeSequence(2, 8));
  for (int i = 0; i < 10; ++i) f.Step();
  ASSERT_EQ(f.Get(2).num_preempted, 1);
  f.scheduler.Finish(1);
  const Scheduler::Step step = f.Step();
  ASSERT_EQ(step.plan.entries.size(), 1u);
  EXPECT_EQ(step.plan.entries[0].num_tokens(), 17 - 12);  // one page went to sequence 1
  EXPECT_EQ(f.Get(2).num_cached, 0);                      // no prompt token was reused
}

TEST(PreemptionTest, SwappedSequenceComesBackWhereItWas) {
  Scheduler::Limits limits = Limits();
  limits.preemption = Preemption::kSwap;
  Fixture f(8, limits, false, 8);
  f.Add(MakeSequence(1, 8));
  f.Add(MakeSequence(2, 8));
  for (int i = 0; i < 9; ++i) f.Step();
  const std::vector<int32_t> before = f.Get(2).pages;
  const Scheduler::Step full = f.Step();
  ASSERT_EQ(full.moves.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(full.moves[i].to_host);
    EXPECT_EQ(full.moves[i].device_page, before[i]);
  }
  EXPECT_EQ(f.Get(2).num_computed, 16);
  EXPECT_EQ(f.pool.num_used(), 5);
  EXPECT_EQ(f.host_pages.num_used(), 4);
  f.scheduler.Finish(1);
  const Scheduler::Step back = f.Step();
  ASSERT_EQ(back.moves.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(back.moves[i].to_host);
    EXPECT_EQ(back.moves[i].host_page, full.moves[i].host_page);
    EXPECT_EQ(back.moves[i].device_page, f.Get(2).pages[i]);
  }
  EXPECT_TRUE(back.plan.decode_only());
  EXPECT_EQ(f.host_pages.num_used(), 0);
}

TEST(PreemptionTest, FullSwapSpaceFallsBackToRecompute) {
  Scheduler::Limits limits = Limits();
  limits.preemption = Preemption::kSwap;
  Fixture f(8, limits, false, 3);
  f.Add(MakeSequence(1, 8));
  f.Add(MakeSequence(2, 8));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(f.Step().moves.empty());
  EXPECT_EQ(f.scheduler.stats().preempted_recompute, 1);
  EXPECT_EQ(f.scheduler.stats().preempted_swap, 0);
}

TEST(PreemptionTest, AutoTakesWhatCostsLess) {
  for (const bool moving_is_cheap : {false, true}) {
    Scheduler::Limits limits = Limits();
    limits.preemption = Preemption::kAuto;
    Fixture f(8, limits, false, 8);
    // 16 computed tokens in 4 pages: 16 ms to compute, 8 moves.
    f.scheduler.set_costs({.token_ms = 1, .page_ms = moving_is_cheap ? 1.9 : 2.1});
    f.Add(MakeSequence(1, 8));
    f.Add(MakeSequence(2, 8));
    for (int i = 0; i < 10; ++i) f.Step();
    EXPECT_EQ(f.scheduler.stats().preempted_swap, moving_is_cheap ? 1 : 0);
    EXPECT_EQ(f.scheduler.stats().preempted_recompute, moving_is_cheap ? 0 : 1);
  }
}

TEST(PreemptionTest, LastRunningSequenceIsNeverPreempted) {
  Fixture f(3, Limits());
  f.Add(MakeSequence(1, 8));
  f.Add(MakeSequence(2, 8));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(f.StepIds(), (Ids{1})) << i;
  const Scheduler::Step step = f.scheduler.Schedule();
  ASSERT_EQ(step.out_of_pages.size(), 1u);
  EXPECT_EQ(step.out_of_pages[0]->id, 1);
  EXPECT_EQ(f.scheduler.stats().preempted_recompute, 0);
  f.scheduler.Finish(1);
  EXPECT_EQ(f.StepIds(), (Ids{2}));
}

TEST(PreemptionTest, AbortReleasesWaitingRunningAndSwappedSequences) {
  Scheduler::Limits limits = Limits();
  limits.max_seqs = 2;
  Fixture f(8, limits, true, 8);
  for (int id = 1; id <= 3; ++id) f.Add(MakeSequence(id, 6));
  f.Step();
  f.scheduler.Preempt(2, Preemption::kSwap);
  EXPECT_EQ(f.host_pages.num_used(), 2);
  for (int id = 1; id <= 3; ++id) EXPECT_EQ(f.scheduler.Finish(id)->id, id);
  EXPECT_EQ(f.scheduler.Finish(1), nullptr);
  EXPECT_FALSE(f.scheduler.HasWork());
  EXPECT_EQ(f.host_pages.num_used(), 0);
  f.reuse->Clear();
  EXPECT_EQ(f.pool.num_used(), 0);
}

TEST(PreemptionTest, UrgentRequestTakesTheSeatOfALessUrgentOne) {
  Scheduler::Limits limits = Limits();
  limits.max_seqs = 2;
  Fixture f(64, limits);
  f.Add(MakeSequence(1, 5));
  f.Add(MakeSequence(2, 5));
  f.Step();
  f.Add(MakeSequence(3, 5, 1000, 1));
  f.Add(MakeSequence(4, 5));
  EXPECT_EQ(f.StepIds(), (Ids{1, 3}));
  EXPECT_EQ(f.StepIds(), (Ids{3, 1}));
  f.scheduler.Finish(3);
  EXPECT_EQ(f.StepIds(), (Ids{1, 2}));  // back at its rank, before 4
}

// An endless stream of more urgent requests overtakes only requests within the head start.
TEST(PreemptionTest, NobodyStarvesBehindMoreUrgentRequests) {
  Scheduler::Limits limits = Limits();
  limits.max_seqs = 1;
  Fixture f(8, limits);
  f.Add(MakeSequence(1, 5));
  int64_t next = 2;
  int served = 0;
  for (; served < 2 * Scheduler::kArrivalsPerPriority; ++served) {
    while (f.scheduler.num_waiting() < 3) f.Add(MakeSequence(next++, 5, 1, 1));
    const Ids ids = f.StepIds();
    ASSERT_EQ(ids.size(), 1u);
    if (ids[0] == 1) break;
    f.scheduler.Finish(ids[0]);
  }
  EXPECT_LE(served, Scheduler::kArrivalsPerPriority);
  EXPECT_GE(served, Scheduler::kArrivalsPerPriority - 4);
}

TEST(PreemptionTest, LargeRequestIsNotOvertakenBySmallOnesThatWouldFit) {
  Fixture f(8, Limits());
  f.Add(MakeSequence(1, 20, 8));
  f.Step();
  f.Add(MakeSequence(2, 24, 4));
  f.Add(MakeSequence(3, 2, 2));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(f.StepIds(), (Ids{1}));
  f.scheduler.Finish(1);
  EXPECT_EQ(f.StepIds(), (Ids{2, 3}));
}

TEST(PreemptionTest, LatencyPolicyPrefillsASecondPromptInSmallChunksBesideADecode) {
  Scheduler::Limits limits = Limits();
  limits.policy = SchedulingPolicy::kLatency;
  Fixture f(64, limits);
  f.Add(MakeSequence(1, 40));
  const Scheduler::Step first = f.Step();
  EXPECT_EQ(first.plan.num_tokens(), 40);  // alone: a whole step
  f.Add(MakeSequence(2, 40));
  f.Add(MakeSequence(3, 40));
  StepPlan mixed;
  for (const int chunk : {16, 16, 8}) {
    const Scheduler::Step step = f.Step();
    if (chunk == 16) mixed = step.plan;
    ASSERT_EQ(step.plan.entries.size(), 2u);
    EXPECT_EQ(step.plan.entries[0].sequence, 1);
    EXPECT_EQ(step.plan.entries[0].num_tokens(), 1);
    EXPECT_EQ(step.plan.entries[1].sequence, 2);
    EXPECT_EQ(step.plan.entries[1].num_tokens(), chunk);
  }
  EXPECT_EQ(f.StepIds(), (Ids{1, 2}));
  f.scheduler.Finish(2);
  f.scheduler.Observe(mixed, 2 * limits.latency_target_ms);
  const Scheduler::Step slower = f.Step();
  ASSERT_EQ(slower.plan.entries.size(), 2u);
  EXPECT_EQ(slower.plan.entries[1].sequence, 3);
  EXPECT_EQ(slower.plan.entries[1].num_tokens(), 8);
}

// A pass over the weights takes 64 rows, of whichever sequences.
TEST(PreemptionTest, LatencyPolicyFillsThePassOfADevice) {
  Scheduler::Limits limits = Limits();
  limits.policy = SchedulingPolicy::kLatency;
  limits.max_step_tokens = 512;
  limits.max_context = 512;
  limits.pass_rows = 64;
  Fixture f(64, limits);
  f.Add(MakeSequence(1, 4, 100));
  f.Step();
  f.Add(MakeSequence(2, 200));
  for (const int chunk : {63, 63, 63, 11}) {
    const Scheduler::Step step = f.Step();
    ASSERT_EQ(step.plan.entries.size(), 2u);
    EXPECT_EQ(step.plan.entries[1].num_tokens(), chunk);
  }
}

TEST(PreemptionTest, FullContextSlidesToTheFirstTokensAndTheNewestHalf) {
  Scheduler::Limits limits = Limits();
  limits.on_full = OnFull::kSlide;
  limits.max_context = 24;
  Fixture f(16, limits);
  f.Add(MakeSequence(1, 10));
  std::vector<int32_t> text;  // as if nothing slid
  for (int i = 0; i < 15; ++i) {
    f.Step();
    text = f.Get(1).tokens;
  }
  ASSERT_EQ(text.size(), 25u);               // one more than fits
  EXPECT_EQ(f.Step().plan.num_tokens(), 4);  // the remaining prompt
  EXPECT_EQ(f.Step().plan.num_tokens(), 10);
  std::vector<int32_t> expected(text.begin(), text.begin() + 4);
  expected.insert(expected.end(), text.end() - 10, text.end());
  expected.push_back(5016);
  EXPECT_EQ(f.Get(1).tokens, expected);
  EXPECT_EQ(f.Get(1).num_generated(), 16);
  EXPECT_EQ(f.Get(1).num_prompt, 4);
  EXPECT_EQ(f.Get(1).num_dropped, 11);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(f.StepIds(), (Ids{1})) << i;
  EXPECT_LE(f.Get(1).pages.size(), 6u);
}

// Ids that only occurred in dropped text are not penalised any more, and each id is counted once.
TEST(PreemptionTest, PenaltiesLookAtTheTextThatIsLeft) {
  Scheduler::Limits limits = Limits();
  limits.on_full = OnFull::kSlide;
  limits.max_context = 24;
  Fixture f(16, limits);
  auto added = MakeSequence(1, 10);
  added->sampling.presence_penalty = 1;
  f.Add(std::move(added));
  int slides = 0, sampled = 0;
  for (int i = 0; i < 60; ++i) {
    const int before = f.Get(1).num_dropped;
    const Scheduler::Step step = f.scheduler.Schedule();
    const Sequence& seq = f.Get(1);
    slides += seq.num_dropped > before;
    if (!step.plan.samples.empty()) {
      std::map<int32_t, int> expected, counted;  // id -> how often it was generated
      for (int pos = 0; pos < seq.num_known(); ++pos) {
        expected[seq.tokens[pos]] += pos >= seq.num_prompt;
      }
      for (const TokenCount& penalty : step.plan.penalties) {
        EXPECT_TRUE(counted.emplace(penalty.token, penalty.count).second) << penalty.token;
      }
      EXPECT_EQ(counted, expected) << "step " << i;
      ++sampled;
    }
    f.scheduler.Commit(step.plan, test::Outcomes(step.plan, [i](const auto&) { return i % 7; }));
  }
  EXPECT_GT(slides, 2);
  EXPECT_GT(sampled, 30);
}

// A pool smaller than the context: sequences also slide, and never at the expense of another.
TEST(PreemptionTest, SlidingSequencesKeepToTheirShareOfThePool) {
  Scheduler::Limits limits = Limits();
  limits.on_full = OnFull::kSlide;
  Fixture f(5, limits);
  f.Add(MakeSequence(1, 10));
  f.Add(MakeSequence(2, 3, 4));
  for (int i = 0; i < 60; ++i) ASSERT_EQ(f.StepIds(), (Ids{1})) << i;
  EXPECT_GT(f.scheduler.stats().slides, 3);
  f.scheduler.Finish(1);
  EXPECT_EQ(f.StepIds(), (Ids{2}));
}

// Two sequences share the two pages of their prompt. The first to slide releases its references,
// which frees no page, and needs two more pages.
TEST(PreemptionTest, SlidingOffSharedPagesPreemptsTheLastInLine) {
  Scheduler::Limits limits = Limits();
  limits.on_full = OnFull::kSlide;
  limits.max_context = 12;
  Fixture f(4, limits, true);
  f.Add(MakeSequence(1, 9));
  for (int i = 0; i < 3; ++i) f.Step();  // two tokens ahead, so they do not slide together
  auto same = MakeSequence(2, 9);
  same->tokens = f.Get(1).tokens;
  same->tokens.resize(9);
  f.Add(std::move(same));
  EXPECT_EQ(f.StepIds(), (Ids{1, 2}));
  EXPECT_EQ(f.pool.ref_count(f.Get(2).pages[1]), 3) << "both, and the tree";
  for (int i = 0; i < 60; ++i) {
    const Scheduler::Step step = f.Step();
    ASSERT_TRUE(step.out_of_pages.empty()) << i;
    ASSERT_TRUE(std::any_of(step.plan.entries.begin(), step.plan.entries.end(),
                            [](const auto& entry) { return entry.sequence == 1; }))
        << i;
  }
  EXPECT_GT(f.scheduler.stats().preempted_recompute, 0);
  EXPECT_GT(f.scheduler.stats().slides, 3);
}

}  // namespace
}  // namespace kuiper
