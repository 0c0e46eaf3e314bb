// How the scheduler holds embedding sources: pure host logic.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "kuiper/engine/scheduler.h"
#include "test/engine/scheduler_test_util.h"

namespace kuiper {
namespace {

constexpr int kRows = 6;  // rows of each source

// The embeddings of tokens [begin, begin + 6) come from `source`.
std::unique_ptr<Sequence> MakeSequence(int64_t id, int prompt, int64_t source, int begin) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  for (int i = 0; i < prompt; ++i) seq->tokens.push_back(i);
  seq->num_prompt = prompt;
  seq->max_new_tokens = 20;
  seq->keys.assign(seq->tokens.begin(), seq->tokens.begin() + begin);
  for (int i = 0; i < kRows; ++i) seq->keys.push_back(1000 * source + i);
  seq->overrides = {{.begin = begin, .position = begin, .rows = 2, .columns = 3, .source = source}};
  return seq;
}

struct Fixture {
  explicit Fixture(int max_step_tokens, int64_t max_rows = kRows, int pages = 32)
      : pool(pages + 1, 4),
        reuse(MakePageReuse(pool, 1000)),
        sources(max_rows),
        scheduler(
            {.max_seqs = 3, .max_step_tokens = max_step_tokens, .max_context = 64, .num_axes = 3},
            pool, reuse.get(), nullptr, &sources) {
    for (int64_t source = 1; source <= 3; ++source) sources.Add(source, kRows);
  }
  void Add(std::unique_ptr<Sequence> seq) { ASSERT_TRUE(scheduler.Add(std::move(seq)).ok()); }
  // Returns the sequences of the next step. Checks that every source it uses is held.
  std::vector<int64_t> Step() {
    Scheduler::Step step = scheduler.Schedule();
    EXPECT_TRUE(CheckPlan(step.plan).ok()) << CheckPlan(step.plan).message();
    std::vector<int64_t> ids;
    for (const StepPlan::Entry& entry : step.plan.entries) ids.push_back(entry.sequence);
    for (const StepPlan::EmbeddingOverride& patch : step.plan.overrides) {
      EXPECT_TRUE(sources.is_held(patch.source)) << patch.source;
    }
    scheduler.Launched(step.plan);
    num_patched_rows = 0;
    for (const StepPlan::EmbeddingOverride& patch : step.plan.overrides)
      num_patched_rows += patch.rows.size();
    scheduler.Commit(step.plan, test::Outcomes(step.plan, [](const auto&) { return 7; }));
    return ids;
  }
  int num_held() const { return sources.is_held(1) + sources.is_held(2) + sources.is_held(3); }

  BlockPool pool;
  std::unique_ptr<KvReuse> reuse;
  EncoderCache sources;
  Scheduler scheduler;
  int num_patched_rows = 0;  // in the last step
};

using Ids = std::vector<int64_t>;

TEST(SourcesTest, ARequestWaitsForThePlaceOfOthers) {
  Fixture f(4);
  f.Add(MakeSequence(1, 10, 1, 2));
  f.Add(MakeSequence(2, 8, 2, 1));
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_EQ(f.num_patched_rows, 2) << "the chunk ends within the picture";
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_EQ(f.num_patched_rows, 4);
  EXPECT_FALSE(f.sources.is_held(1)) << "all of its rows are computed";
  EXPECT_EQ(f.Step(), (Ids{1, 2})) << "the refused sequence is tried again";
  EXPECT_EQ(f.sources.TakeEvicted(), Ids{1});
  while (f.scheduler.Find(2)->num_generated() < 2) f.Step();
  EXPECT_EQ(f.num_held(), 0);
}

TEST(SourcesTest, WhoIsPutBackGivesItsPlaceUpAndGetsItAgain) {
  Fixture f(4);
  f.Add(MakeSequence(1, 10, 1, 2));
  f.Add(MakeSequence(2, 8, 2, 1));
  EXPECT_EQ(f.Step(), Ids{1});
  EXPECT_TRUE(f.sources.is_held(1));
  f.scheduler.Preempt(1, Preemption::kRecompute);
  EXPECT_EQ(f.num_held(), 0);
  EXPECT_EQ(f.Step(), Ids{1}) << "it is first in line";
  EXPECT_EQ(f.num_patched_rows, 4) << "its first page was kept";
  for (int step = 0; step < 8; ++step) f.Step();
  EXPECT_GT(f.scheduler.Find(1)->num_generated(), 1);
  EXPECT_GT(f.scheduler.Find(2)->num_generated(), 1);
  f.scheduler.Finish(1);
  f.scheduler.Finish(2);
  EXPECT_EQ(f.num_held(), 0);
}

TEST(SourcesTest, WhoEndsWithinItsPictureGivesItsPlaceUp) {
  Fixture f(4);
  f.Add(MakeSequence(1, 10, 1, 2));
  f.Step();
  EXPECT_TRUE(f.sources.is_held(1));
  f.scheduler.Finish(1);
  EXPECT_EQ(f.num_held(), 0);
}

TEST(SourcesTest, AFullPlaceKeepsNobodyFromTextAndFromTheSamePicture) {
  Fixture f(4);
  f.Add(MakeSequence(1, 10, 1, 2));
  f.Add(MakeSequence(2, 10, 1, 2));
  f.Step();
  f.Step();
  EXPECT_EQ(f.Step(), (Ids{1, 2})) << "of the other's pages, and with its source";
  EXPECT_EQ(f.num_held(), 0);
}

TEST(SourcesTest, APictureThatIsOnCachedPagesNeedsNoSource) {
  Fixture f(64);
  f.Add(MakeSequence(1, 13, 1, 2));
  f.Step();
  f.scheduler.Finish(1);
  f.Add(MakeSequence(2, 13, 1, 2));
  Scheduler::Step step = f.scheduler.Schedule();
  EXPECT_EQ(f.scheduler.Find(2)->num_cached, 12);
  EXPECT_TRUE(step.plan.overrides.empty());
  EXPECT_EQ(f.num_held(), 0);
  // Another picture of the same size shares no page with the first; a picture that is only partly
  // cached is needed.
  Fixture g(64);
  g.Add(MakeSequence(1, 13, 1, 5));
  g.Step();
  g.scheduler.Finish(1);
  g.Add(MakeSequence(2, 13, 2, 5));
  g.Step();
  EXPECT_EQ(g.scheduler.Find(2)->num_cached, 4);
  EXPECT_EQ(g.num_patched_rows, 6);
  g.scheduler.Finish(2);
  g.Add(MakeSequence(3, 10, 1, 5));
  g.Step();
  EXPECT_EQ(g.scheduler.Find(3)->num_cached, 8);
  EXPECT_EQ(g.num_patched_rows, 2) << "the picture's last rows, of which the prompt has five";
}

TEST(SourcesTest, AForkThatComputesARowOfThePictureHoldsItOrWaits) {
  for (const bool is_full : {false, true}) {
    Fixture f(64);
    f.Add(MakeSequence(1, 8, 1, 2));  // the picture is the end of the prompt
    f.Step();
    EXPECT_EQ(f.num_held(), 0);
    if (is_full) {
      EXPECT_TRUE(f.sources.Hold(Ids{2}));
    }
    ASSERT_TRUE(f.scheduler.Fork(1, MakeSequence(2, 8, 1, 2)).ok());
    EXPECT_EQ(f.sources.is_held(1), !is_full);
    EXPECT_EQ(f.Step(), is_full ? Ids{1} : (Ids{1, 2}));
    if (is_full) {
      f.sources.Release(Ids{2});
      f.scheduler.Finish(1);
      EXPECT_EQ(f.Step(), Ids{2});
    }
    EXPECT_EQ(f.num_patched_rows, is_full ? 4 : 1);
    EXPECT_EQ(f.num_held(), 0);
  }
}

}  // namespace
}  // namespace kuiper
