// The scheduler as pure host logic: no model, no tensors.
#include "kuiper/engine/scheduler.h"

#include <gtest/gtest.h>

#include <limits>

namespace kuiper {
namespace {

std::unique_ptr<Sequence> MakeSequence(int64_t id, int prompt, int max_new = 8, int first = 0) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  for (int i = 0; i < prompt; ++i) seq->tokens.push_back(first + i);
  seq->num_prompt = prompt;
  seq->max_new_tokens = max_new;
  return seq;
}

// What a model would do: one token per sampling entry.
std::vector<int32_t> FakeTokens(const StepPlan& plan) {
  std::vector<int32_t> tokens;
  for (const auto& entry : plan.entries) {
    if (entry.samples) tokens.push_back(1000 + static_cast<int32_t>(entry.seq->id));
  }
  return tokens;
}

struct Fixture {
  explicit Fixture(int pages, int page_size, Scheduler::Limits limits, bool reuse_pages = false)
      : pool(pages + 1, page_size),
        reuse(reuse_pages ? MakePageReuse(pool, int64_t{pages} * page_size) : nullptr),
        scheduler(limits, pool, reuse.get()) {}

  StepPlan Step() {
    Scheduler::Step step = scheduler.Schedule();
    EXPECT_TRUE(step.out_of_pages.empty());
    scheduler.Commit(step.plan, FakeTokens(step.plan));
    return step.plan;
  }

  BlockPool pool;
  std::unique_ptr<KvReuse> reuse;
  Scheduler scheduler;
};

std::vector<std::pair<int64_t, int>> Shape(const StepPlan& plan) {
  std::vector<std::pair<int64_t, int>> shape;
  for (const auto& entry : plan.entries) shape.emplace_back(entry.seq->id, entry.num_tokens);
  return shape;
}

using Shapes = std::vector<std::pair<int64_t, int>>;

TEST(SchedulerTest, LongPromptRunsInChunksAndOnlyTheLastSamples) {
  Fixture f(16, 4, {.max_seqs = 2, .max_step_tokens = 10, .max_context = 64});
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 23)).ok());
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 10}}));
  EXPECT_EQ(f.scheduler.Find(1)->num_generated(), 0);
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 10}}));
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 3}}));
  EXPECT_EQ(f.scheduler.Find(1)->num_generated(), 1);
  const StepPlan decode = f.Step();
  EXPECT_EQ(Shape(decode), (Shapes{{1, 1}}));
  EXPECT_TRUE(decode.decode_only);
}

TEST(SchedulerTest, DecodesComeFirstAndPromptsFillTheBudget) {
  Fixture f(64, 4, {.max_seqs = 3, .max_step_tokens = 8, .max_context = 64});
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 3)).ok());
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 20)).ok());
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(3, 2)).ok());
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 3}, {2, 5}}));
  const StepPlan mixed = f.Step();
  EXPECT_EQ(Shape(mixed), (Shapes{{1, 1}, {2, 7}}));
  EXPECT_FALSE(mixed.decode_only);
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 1}, {2, 7}}));
  // The end of prompt 2 leaves room for prompt 3: first come, first served.
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 1}, {2, 1}, {3, 2}}));
}

// Under OnFull::kStop and kSlide, where running out of pages shows in the answer.
TEST(SchedulerTest, AdmissionPromisesPagesForTheWholeAnswer) {
  // 8 pages of 4. Each sequence: 5 prompt + 8 new tokens - 1 never fed back = 12 tokens = 3 pages.
  Fixture f(8, 4,
            {.max_seqs = 4, .max_step_tokens = 64, .max_context = 64, .on_full = OnFull::kStop});
  for (int id = 1; id <= 3; ++id) ASSERT_TRUE(f.scheduler.Add(MakeSequence(id, 5)).ok());
  f.Step();
  EXPECT_EQ(f.scheduler.num_running(), 2);  // 2 * 3 pages promised, 2 left
  EXPECT_EQ(f.scheduler.num_waiting(), 1);
  for (int i = 0; i < 7; ++i) f.Step();  // both grow to their last page without running out
  EXPECT_EQ(f.scheduler.num_running(), 2);
  EXPECT_EQ(f.scheduler.Find(1)->num_generated(), 8);
  f.scheduler.Finish(1);
  f.Step();
  EXPECT_EQ(f.scheduler.num_running(), 2);
  EXPECT_NE(f.scheduler.Find(3), nullptr);
}

TEST(SchedulerTest, UnlimitedAnswerIsPromisedTheWholeContext) {
  Fixture f(8, 4,
            {.max_seqs = 4, .max_step_tokens = 64, .max_context = 29, .on_full = OnFull::kStop});
  constexpr int kUnlimited = std::numeric_limits<int>::max();
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 5, kUnlimited)).ok());  // 28 tokens: 7 pages
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 5, kUnlimited)).ok());
  f.Step();
  EXPECT_EQ(f.scheduler.num_running(), 1);
}

// A prompt of whole pages that are all cached computes the last one again. The cached copy of that
// page counted as evictable when others were admitted, and must stay so when the answer grows on.
TEST(SchedulerTest, CachedCopyOfAPageDoesNotBreakPromises) {
  Fixture f(8, 4,
            {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64, .on_full = OnFull::kStop},
            true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 8, 1)).ok());
  f.Step();
  f.scheduler.Finish(1);
  ASSERT_EQ(f.reuse->num_evictable(), 2);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 8, 9)).ok());        // 16 tokens: 4 pages
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(3, 10, 7, 500)).ok());  // 16 tokens: 4 pages
  f.Step();
  ASSERT_EQ(f.scheduler.num_running(), 2);
  for (int i = 0; i < 5; ++i) f.Step();  // expects each time that the pages suffice
  EXPECT_EQ(f.scheduler.Find(2)->pages.size(), 4u);
}

TEST(SchedulerTest, LoneSequenceMayOutgrowThePoolAndIsReported) {
  Fixture f(2, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64});
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 6, 50)).ok());
  for (int i = 0; i < 3; ++i) f.Step();  // 6 + 2 tokens are computed: both pages are full
  const Scheduler::Step step = f.scheduler.Schedule();
  ASSERT_EQ(step.out_of_pages.size(), 1u);
  EXPECT_EQ(step.out_of_pages[0]->id, 1);
  EXPECT_EQ(step.out_of_pages[0]->num_computed, 8);
  EXPECT_TRUE(step.plan.entries.empty());
  f.scheduler.Finish(1);
  EXPECT_EQ(f.pool.num_free(), 2);
}

TEST(SchedulerTest, RefusesWhatCanNeverFit) {
  Fixture f(4, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 20});
  EXPECT_EQ(f.scheduler.Add(MakeSequence(1, 20)).code(), StatusCode::kContextExceeded);
  EXPECT_EQ(f.scheduler.Add(MakeSequence(2, 17)).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(f.scheduler.Add(MakeSequence(3, 16)).ok());
}

TEST(SchedulerTest, FullyCachedPromptStillComputesItsLastToken) {
  Fixture f(16, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, true);
  for (const int prompt : {8, 9, 7}) {
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, prompt, 8, 100 * prompt)).ok());
      const StepPlan plan = f.Step();
      const int cached = round == 0 ? 0 : (prompt - 1) / 4 * 4;
      EXPECT_EQ(f.scheduler.Find(1)->num_cached, cached) << prompt;
      EXPECT_EQ(Shape(plan), (Shapes{{1, prompt - cached}})) << prompt;
      EXPECT_TRUE(plan.entries[0].samples);
      f.scheduler.Finish(1);
    }
  }
}

TEST(SchedulerTest, ReuseIncludesGeneratedTokensButNotTheLast) {
  Fixture f(16, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 6)).ok());
  for (int i = 0; i < 4; ++i) f.Step();  // computed: 6 + 3 tokens, the 4th is only known
  std::vector<int32_t> next_turn = f.scheduler.Find(1)->tokens;
  f.scheduler.Finish(1);
  auto seq = MakeSequence(2, 0);
  next_turn.insert(next_turn.end(), {7, 7, 7});
  seq->tokens = next_turn;
  seq->num_prompt = seq->num_tokens();
  ASSERT_TRUE(f.scheduler.Add(std::move(seq)).ok());
  f.Step();
  EXPECT_EQ(f.scheduler.Find(2)->num_cached, 8);
}

TEST(SchedulerTest, FailedEntryStaysWhereItWasAndIsNotReused) {
  Fixture f(16, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 8)).ok());
  const Scheduler::Step step = f.scheduler.Schedule();
  f.scheduler.Commit(step.plan, {-1});
  EXPECT_EQ(f.scheduler.Find(1)->num_computed, 0);
  EXPECT_EQ(f.scheduler.Find(1)->num_generated(), 0);
  f.scheduler.Finish(1, false);
  EXPECT_EQ(f.pool.num_free(), 16);
  EXPECT_EQ(f.reuse->num_evictable(), 0);
}

TEST(RowReuseTest, TakesOverTheRowWithTheLongestCommonPrefix) {
  BlockPool pool(4, 32);  // 3 rows
  const auto reuse = MakeRowReuse(pool);
  Scheduler scheduler({.max_seqs = 3, .max_step_tokens = 64, .max_context = 32}, pool, reuse.get());
  auto run = [&](int64_t id, std::vector<int32_t> prompt) {
    auto seq = MakeSequence(id, 0);
    seq->tokens = std::move(prompt);
    seq->num_prompt = seq->num_tokens();
    EXPECT_TRUE(scheduler.Add(std::move(seq)).ok());
    const Scheduler::Step step = scheduler.Schedule();
    scheduler.Commit(step.plan, FakeTokens(step.plan));
    return scheduler.Finish(id);
  };
  const int32_t row_a = run(1, {1, 2, 3, 4})->pages[0];
  const int32_t row_b = run(2, {5, 6, 7, 8})->pages[0];
  EXPECT_NE(row_a, row_b);
  const auto hit = run(3, {1, 2, 3, 9, 9});
  EXPECT_EQ(hit->num_cached, 3);
  EXPECT_EQ(hit->pages[0], row_a);
  // Row a now holds 1 2 3 9 9; nothing of 4 is left to be found.
  EXPECT_EQ(run(4, {1, 2, 3, 4, 5})->num_cached, 3);
  // All rows are kept; a stranger gets the one that was used longest ago.
  run(5, {20, 21});
  EXPECT_EQ(run(6, {30, 31})->num_cached, 0);
  EXPECT_EQ(run(7, {5, 6, 7, 8, 1})->num_cached, 0);
}

TEST(RowReuseTest, LeavesTheRowOfAnotherConversationAloneWhileOthersAreFree) {
  BlockPool pool(3, 32);  // 2 rows
  const auto reuse = MakeRowReuse(pool);
  const std::vector<int32_t> first = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> other = {1, 20, 30, 40, 50, 60, 70, 80};
  std::vector<int32_t> row;
  ASSERT_TRUE(pool.Allocate(1, &row));
  PrefixCache::Cursor cursor;
  reuse->Finished(first, row, &cursor);
  pool.Release(row[0]);
  EXPECT_EQ(reuse->Acquire(other, 7).num_tokens, 0);
  std::vector<int32_t> second_row;
  ASSERT_TRUE(pool.Allocate(1, &second_row));  // no row is free: one has to be given up anyway
  const PrefixCache::Match match = reuse->Acquire(other, 7);
  EXPECT_EQ(match.num_tokens, 1);
  EXPECT_EQ(match.pages, row);
  pool.Release(row[0]);
  pool.Release(second_row[0]);
  EXPECT_EQ(pool.num_free(), 2);
}

}  // namespace
}  // namespace kuiper
