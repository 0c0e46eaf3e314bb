// The scheduler as pure host logic: no model, no tensors.
#include "kuiper/engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "test/engine/scheduler_test_util.h"

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

// A fake model: one token per sampling entry.
std::vector<Scheduler::Outcome> FakeTokens(const StepPlan& plan) {
  return test::Outcomes(
      plan, [](const auto& entry) { return 1000 + static_cast<int32_t>(entry.sequence); });
}

struct Fixture {
  explicit Fixture(int pages, int page_size, Scheduler::Limits limits, bool reuse_pages = false)
      : pool(pages + 1, page_size),
        reuse(reuse_pages ? MakePageReuse(pool, int64_t{pages} * page_size) : nullptr),
        scheduler(limits, pool, reuse.get()) {}

  StepPlan Step() {
    Scheduler::Step step = scheduler.Schedule();
    EXPECT_TRUE(step.out_of_pages.empty());
    scheduler.Launched(step.plan);
    scheduler.Commit(step.plan, FakeTokens(step.plan));
    return step.plan;
  }

  BlockPool pool;
  std::unique_ptr<KvReuse> reuse;
  Scheduler scheduler;
};

std::vector<std::pair<int64_t, int>> Shape(const StepPlan& plan) {
  std::vector<std::pair<int64_t, int>> shape;
  for (const auto& entry : plan.entries) shape.emplace_back(entry.sequence, entry.num_tokens());
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
  EXPECT_TRUE(decode.decode_only());
}

TEST(SchedulerTest, LastTokenOfAPromptIsNoDecode) {
  Fixture f(64, 4, {.max_seqs = 2, .max_step_tokens = 8, .max_context = 64});
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 3)).ok());
  f.Step();
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 8)).ok());  // seven tokens, then one
  f.Step();
  const StepPlan last = f.Step();
  ASSERT_EQ(Shape(last), (Shapes{{1, 1}, {2, 1}}));
  EXPECT_TRUE(last.entries[0].decodes);
  EXPECT_TRUE(last.entries[1].samples.size() == 1 && !last.entries[1].decodes);
  EXPECT_FALSE(last.decode_only());
  const StepPlan decode = f.Step();
  EXPECT_TRUE(decode.entries[0].decodes && decode.entries[1].decodes && decode.decode_only());
}

TEST(SchedulerTest, DecodesComeFirstAndPromptsFillTheBudget) {
  Fixture f(64, 4, {.max_seqs = 3, .max_step_tokens = 8, .max_context = 64});
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 3)).ok());
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 20)).ok());
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(3, 2)).ok());
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 3}, {2, 5}}));
  const StepPlan mixed = f.Step();
  EXPECT_EQ(Shape(mixed), (Shapes{{1, 1}, {2, 7}}));
  EXPECT_FALSE(mixed.decode_only());
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 1}, {2, 7}}));
  // The end of prompt 2 leaves room for prompt 3: first come, first served.
  EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 1}, {2, 1}, {3, 2}}));
}

// OnFull::kStop and kSlide, where running out of pages would change the answer.
TEST(SchedulerTest, AdmissionPromisesPagesForTheWholeAnswer) {
  // 8 pages of 4. Each sequence: 5 prompt + 8 new tokens - 1 never fed back = 12 tokens = 3 pages.
  Fixture f(8, 4,
            {.max_seqs = 4, .max_step_tokens = 64, .max_context = 64, .on_full = OnFull::kStop});
  for (int id = 1; id <= 3; ++id) ASSERT_TRUE(f.scheduler.Add(MakeSequence(id, 5)).ok());
  f.Step();
  EXPECT_EQ(f.scheduler.num_running(), 2);  // 2 * 3 pages reserved, 2 left
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

// If all pages of a prompt are cached, its last one is computed again. The cached copy of that page
// counted as evictable when others were admitted, and must stay so as the answer grows.
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
      EXPECT_EQ(plan.entries[0].samples.size(), 1);
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
  f.scheduler.Commit(step.plan, std::vector<Scheduler::Outcome>{Scheduler::Failed()});
  EXPECT_EQ(f.scheduler.Find(1)->num_computed, 0);
  EXPECT_EQ(f.scheduler.Find(1)->num_generated(), 0);
  f.scheduler.Finish(1, false);
  EXPECT_EQ(f.pool.num_free(), 16);
  EXPECT_EQ(f.reuse->num_evictable(), 0);
}

// The step that counts as computed is the first one of the prompt, or a later chunk.
TEST(SchedulerTest, WhoEndsBeforeItsStepIsLaunchedLeavesNothingOfIt) {
  for (const int prompt : {7, 8, 9, 12, 23}) {
    Fixture f(16, 4, {.max_seqs = 2, .max_step_tokens = 10, .max_context = 64}, true);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, prompt)).ok());
    for (int first = 0; first < prompt; first += 10) {
      if (first + 10 < prompt) f.Step();
    }
    const int committed = f.scheduler.Find(1)->num_computed;
    f.scheduler.Schedule();
    f.scheduler.Finish(1);
    EXPECT_EQ(f.pool.num_used(), committed / 4);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, prompt)).ok());
    f.Step();
    EXPECT_EQ(f.scheduler.Find(2)->num_cached, std::min(committed / 4 * 4, prompt - 1));
  }
}

// A prompt counts with its tokens and pages after the match.
TEST(SchedulerTest, TokensToComputeAreCountedAfterTheMatch) {
  Fixture f(16, 4, {.max_seqs = 3, .max_step_tokens = 16, .max_context = 64}, true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 13)).ok());
  f.Step();
  f.scheduler.Finish(1);  // leaves 12 tokens in 3 pages
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 20)).ok());
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(3, 9, 8, 500)).ok());
  const StepPlan plan = f.Step();
  EXPECT_EQ(Shape(plan), (Shapes{{2, 8}, {3, 8}}));
  EXPECT_EQ(plan.entries[0].begin, 12);
  EXPECT_EQ(plan.entries[0].samples.size(), 1);
  EXPECT_EQ(f.scheduler.Find(2)->pages.size(), 5u);
}

// Pages that a match takes into use can no longer be evicted for reservations of others.
TEST(SchedulerTest, MatchedPagesAreNotCountedAsAvailable) {
  Fixture f(8, 4,
            {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64, .on_full = OnFull::kStop},
            true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 16, 1)).ok());
  f.Step();
  f.scheduler.Finish(1);
  ASSERT_EQ(f.reuse->num_evictable(), 4);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 8, 9, 500)).ok());  // 16 tokens: 4 pages
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(3, 17, 4)).ok());      // 20 tokens: 4 pages and a fifth
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(f.Step().entries.size(), 1u) << i;  // the 4 free ones are reserved
  }
  EXPECT_EQ(f.scheduler.Finish(2)->num_generated(), 9);
  f.Step();
  EXPECT_EQ(f.scheduler.Find(3)->num_cached, 16);
}

TEST(SchedulerTest, PromptOfTheWholePoolRunsAndALargerOneHarmsNobody) {
  Fixture f(4, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64}, true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 12, 1)).ok());
  f.Step();
  f.scheduler.Finish(1);  // three of the four pages are cached
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 16, 1, 500)).ok());
  const Status refused = f.scheduler.Add(MakeSequence(3, 17, 1, 900));
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("17 tokens but the KV cache holds 16"), std::string::npos)
      << refused.message();
  EXPECT_EQ(f.scheduler.Find(3), nullptr);
  EXPECT_EQ(Shape(f.Step()), (Shapes{{2, 16}}));
  EXPECT_EQ(f.scheduler.Finish(2)->num_generated(), 1);
  EXPECT_FALSE(f.scheduler.HasWork());
}

// If ids do not identify the tokens, keys distinguish sequences with the same ids.
TEST(SchedulerTest, PagesAreFoundByKeysNotByIds) {
  Fixture f(16, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, true);
  const auto cached = [&f](int64_t id, std::vector<uint64_t> keys) {
    auto seq = MakeSequence(id, 13);
    seq->keys = std::move(keys);
    EXPECT_TRUE(f.scheduler.Add(std::move(seq)).ok());
    f.Step();
    return f.scheduler.Finish(id)->num_cached;
  };
  std::vector<uint64_t> keys(9, uint64_t{1} << 40);  // keys of an image; the text after it has ids
  EXPECT_EQ(cached(1, {}), 0);
  EXPECT_EQ(cached(2, {}), 12);
  EXPECT_EQ(cached(3, keys), 0);
  EXPECT_EQ(cached(4, keys), 12);
  keys[5] += 1;
  EXPECT_EQ(cached(5, keys), 4) << "another image from the second page on";
  EXPECT_EQ(cached(6, {0, 1, 2, 3}), 12) << "an id is its own key";
}

// A cached page that is reused keeps its content and stays in the tree: while it is used,
// afterwards, and when its user is preempted.
TEST(SchedulerTest, CachedPageIsNotResetWhenItIsUsedAgain) {
  Fixture f(16, 4, {.max_seqs = 3, .max_step_tokens = 64, .max_context = 64}, true);
  ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 12)).ok());
  f.Step();
  std::vector<int32_t> pages = f.scheduler.Find(1)->pages;
  f.scheduler.Finish(1);
  for (int64_t id = 2; id <= 7; ++id) {
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(id, 13)).ok());
    const StepPlan plan = f.Step();
    const Sequence& seq = *f.scheduler.Find(id);
    EXPECT_EQ(plan.entries.back().begin, 12) << id;
    EXPECT_EQ(seq.num_cached, 12) << id;
    EXPECT_TRUE(std::equal(pages.begin(), pages.end(), seq.pages.begin())) << id;
    if (id == 3) f.scheduler.Finish(2);
    if (id == 4) {
      f.scheduler.Preempt(4, Preemption::kRecompute);
      f.scheduler.Finish(4);
      f.scheduler.Finish(3);
    }
    if (id >= 5) f.scheduler.Finish(id);
  }
}

// A page that was evicted and allocated to another sequence is not found under its old tokens.
TEST(SchedulerTest, EvictedPageIsNotFoundUnderItsOldTokens) {
  for (const bool reusable : {false, true}) {
    Fixture f(4, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, true);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 9, 1)).ok());
    f.Step();
    f.scheduler.Finish(1);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 16, 1, 500)).ok());
    f.Step();
    f.scheduler.Finish(2, reusable);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(3, 9, 1)).ok());
    EXPECT_EQ(Shape(f.Step()), (Shapes{{3, 9}}));
    EXPECT_EQ(f.scheduler.Finish(3)->num_cached, 0);
  }
}

TEST(SchedulerTest, SequencesThatDivergeShareTheFullPagesBeforeThat) {
  for (const int shared : {1, 3, 4, 5, 13}) {
    Fixture f(32, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64}, true);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 20, 20)).ok());
    f.Step();
    auto other = MakeSequence(2, 20, 20);
    for (int i = shared; i < 20; ++i) other->tokens[i] += 500;
    ASSERT_TRUE(f.scheduler.Add(std::move(other)).ok());
    const int common = shared / 4;
    for (int step = 0; step < 10; ++step) {
      for (const auto& entry : f.Step().entries) {
        EXPECT_TRUE(entry.sequence == 1 || entry.begin >= 4 * common) << shared;
      }
      const std::vector<int32_t>& a = f.scheduler.Find(1)->pages;
      const std::vector<int32_t>& b = f.scheduler.Find(2)->pages;
      for (int i = 0; i < static_cast<int>(b.size()); ++i) {
        const bool is_shared = std::find(a.begin(), a.end(), b[i]) != a.end();
        EXPECT_EQ(is_shared, i < common) << shared << ", step " << step << ", page " << i;
        EXPECT_TRUE(!is_shared || a[i] == b[i]);
      }
    }
  }
}

// In one step, or the second while the first is at a later chunk: both use the copy that entered
// the tree first.
TEST(SchedulerTest, SequencesThatComputeTheSamePrefixAtOnceEndUpWithOneCopy) {
  for (const int budget : {64, 14}) {
    Fixture f(16, 4, {.max_seqs = 2, .max_step_tokens = budget, .max_context = 64}, true);
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(1, 11)).ok());
    ASSERT_TRUE(f.scheduler.Add(MakeSequence(2, 11)).ok());
    EXPECT_EQ(Shape(f.Step()), (Shapes{{1, 11}, {2, std::min(11, budget - 11)}}));
    f.Step();
    const std::vector<int32_t> a = f.scheduler.Find(1)->pages;
    const std::vector<int32_t> b = f.scheduler.Find(2)->pages;
    ASSERT_EQ(b.size(), 3u);
    EXPECT_EQ(a[0], b[0]);
    EXPECT_EQ(a[1], b[1]);
    EXPECT_NE(a[2], b[2]) << "a page that both still write";
    EXPECT_EQ(f.pool.ref_count(a[0]), 3);
    EXPECT_EQ(f.pool.num_used(), 4) << "the copies went back to the pool";
    EXPECT_EQ(f.scheduler.Find(2)->num_cached, 0);
    f.scheduler.Finish(1);
    EXPECT_EQ(f.scheduler.Find(2)->pages, b);
    EXPECT_EQ(f.pool.ref_count(b[0]), 2);
  }
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
    scheduler.Launched(step.plan);
    scheduler.Commit(step.plan, FakeTokens(step.plan));
    return scheduler.Finish(id);
  };
  const int32_t row_a = run(1, {1, 2, 3, 4})->pages[0];
  const int32_t row_b = run(2, {5, 6, 7, 8})->pages[0];
  EXPECT_NE(row_a, row_b);
  const auto hit = run(3, {1, 2, 3, 9, 9});
  EXPECT_EQ(hit->num_cached, 3);
  EXPECT_EQ(hit->pages[0], row_a);
  // Row a now holds 1 2 3 9 9; the old 4 must not be found.
  EXPECT_EQ(run(4, {1, 2, 3, 4, 5})->num_cached, 3);
  // All rows are kept; an unrelated prompt gets the least recently used one.
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
  KvReuse::Cursor cursor;
  ASSERT_TRUE(reuse->Finished(test::Keys(first), row, &cursor, {}));
  pool.Release(row[0]);
  EXPECT_EQ(reuse->Acquire(test::Keys(other), 7).num_tokens, 0);
  std::vector<int32_t> second_row;
  ASSERT_TRUE(pool.Allocate(1, &second_row));  // no row is free: one must be evicted anyway
  const KvReuse::Match match = reuse->Acquire(test::Keys(other), 7);
  EXPECT_EQ(match.num_tokens, 1);
  EXPECT_EQ(match.pages, row);
  pool.Release(row[0]);
  pool.Release(second_row[0]);
  EXPECT_EQ(pool.num_free(), 2);
}

}  // namespace
}  // namespace kuiper
