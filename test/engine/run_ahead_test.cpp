// Steps that are scheduled before the tokens of the step before them are known.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "kuiper/engine/scheduler.h"

namespace kuiper {
namespace {

std::unique_ptr<Sequence> MakeSequence(int64_t id, int prompt, int max_new) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  for (int i = 0; i < prompt; ++i) seq->tokens.push_back(i % 7);
  seq->num_prompt = prompt;
  seq->max_new_tokens = max_new;
  return seq;
}

std::vector<int32_t> Tokens(const StepPlan& plan, int32_t token) {
  std::vector<int32_t> tokens;
  for (const auto& entry : plan.entries) {
    if (entry.samples) tokens.push_back(token);
  }
  return tokens;
}

// The sequence ended: steps in flight must not touch it any more.
void Drop(std::deque<StepPlan>& plans, const Sequence* seq) {
  for (StepPlan& plan : plans) {
    for (auto& entry : plan.entries) {
      if (entry.seq == seq) entry.seq = nullptr;
    }
  }
}

TEST(ScheduleAheadTest, DecodesTheTokenThatIsStillBeingSampled) {
  BlockPool pool(17, 4);
  Scheduler scheduler({.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, pool, nullptr);
  ASSERT_TRUE(scheduler.Add(MakeSequence(1, 4, 8)).ok());
  const StepPlan prompt = scheduler.Schedule().plan;
  const StepPlan ahead = scheduler.Schedule().plan;
  const Sequence& seq = *scheduler.Find(1);
  ASSERT_EQ(ahead.entries.size(), 1u);
  EXPECT_EQ(ahead.entries[0].begin, 4);
  EXPECT_EQ(ahead.entries[0].num_tokens, 1);
  EXPECT_TRUE(ahead.entries[0].samples && ahead.decode_only);
  EXPECT_EQ(seq.num_pending, 2);
  EXPECT_EQ(seq.tokens[4], kPendingToken);
  EXPECT_EQ(seq.pages.size(), 2u) << "the first token of a page needs the page";
  scheduler.Commit(prompt, {70});
  EXPECT_EQ(seq.num_known(), 5);
  EXPECT_EQ(seq.tokens[4], 70);
  EXPECT_EQ(seq.tokens[5], kPendingToken);
  scheduler.Commit(ahead, {71});
  EXPECT_EQ(seq.num_pending, 0);
  EXPECT_EQ(seq.tokens[5], 71);
  EXPECT_EQ(seq.num_computed, 5);
}

// The end is discovered while the next step is in flight: its token is dropped, and the cache is
// given computed tokens only, none of them unknown.
TEST(ScheduleAheadTest, SequenceThatEndedOneStepAgoLeavesKnownTokensOnly) {
  for (const int prompt : {6, 7, 8}) {  // the last known token ends before, on, and after a page
    BlockPool pool(17, 4);
    const auto reuse = MakePageReuse(pool, 64);
    Scheduler scheduler({.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, pool,
                        reuse.get());
    ASSERT_TRUE(scheduler.Add(MakeSequence(1, prompt, 8)).ok());
    std::deque<StepPlan> plans;
    plans.push_back(scheduler.Schedule().plan);
    plans.push_back(scheduler.Schedule().plan);
    scheduler.Commit(plans.front(), {70});
    plans.pop_front();
    Drop(plans, scheduler.Find(1));
    const auto ended = scheduler.Finish(1);
    EXPECT_EQ(ended->num_tokens(), prompt + 1);
    EXPECT_EQ(ended->tokens.back(), 70);
    scheduler.Commit(plans.front(), {71});
    EXPECT_EQ(pool.num_free() + reuse->num_evictable(), 16);
    std::vector<int32_t> longer = ended->tokens;
    longer.insert(longer.end(), {1, 2, 3, 4, 5});
    const auto match = reuse->Acquire(longer, static_cast<int>(longer.size()));
    EXPECT_EQ(match.num_tokens, (prompt + 1) / 4 * 4);
    for (const int32_t page : match.pages) pool.Release(page);
  }
}

TEST(ScheduleAheadTest, FailedTokenTakesTheStepAheadBackWithIt) {
  BlockPool pool(17, 4);
  Scheduler scheduler({.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, pool, nullptr);
  ASSERT_TRUE(scheduler.Add(MakeSequence(1, 4, 8)).ok());
  const StepPlan prompt = scheduler.Schedule().plan;
  scheduler.Schedule();
  scheduler.Commit(prompt, {-1});
  EXPECT_EQ(scheduler.Find(1)->num_tokens(), 4);
  EXPECT_EQ(scheduler.Find(1)->num_computed, 0);
  scheduler.Finish(1, false);
  EXPECT_EQ(pool.num_free(), 16);
}

// Random load one step ahead, with ends that nobody foresaw and aborts: pages are conserved,
// nobody writes beyond what was promised, and everybody gets the tokens of the steps in order.
TEST(ScheduleAheadTest, SoakOneStepAheadConservesPages) {
  std::mt19937 rng(11);
  constexpr int kPages = 40;
  BlockPool pool(kPages + 1, 4);
  const auto reuse = MakePageReuse(pool, 80);
  Scheduler scheduler({.max_seqs = 6, .max_step_tokens = 16, .max_context = 100}, pool,
                      reuse.get());
  std::map<int64_t, int> limit;  // id -> max_new_tokens
  std::deque<StepPlan> plans;
  int64_t next_id = 1;
  int32_t step_no = 0;
  int finished = 0, ahead = 0;
  const auto end = [&](int64_t id) {
    Drop(plans, scheduler.Find(id));
    ASSERT_NE(scheduler.Finish(id), nullptr);
    limit.erase(id);
    ++finished;
  };
  const auto schedule = [&] {
    Scheduler::Step step = scheduler.Schedule();
    ASSERT_TRUE(step.out_of_pages.empty());
    for (const auto& entry : step.plan.entries) {
      ASSERT_LE(entry.end(), static_cast<int>(entry.seq->pages.size()) * 4);
      ASSERT_LE(static_cast<int>(entry.seq->pages.size()), entry.seq->reserved_pages);
      for (int pos = entry.begin; pos < entry.end(); ++pos) {
        ASSERT_EQ(pool.ref_count(entry.seq->pages[pos / 4]), 1) << "a shared page is written";
      }
    }
    if (!step.plan.entries.empty()) plans.push_back(std::move(step.plan));
  };
  for (; step_no < 5000; ++step_no) {
    if (limit.size() < 12 && rng() % 3 == 0) {
      const int max_new = 1 + static_cast<int>(rng() % 30);
      ASSERT_TRUE(
          scheduler.Add(MakeSequence(next_id, 1 + static_cast<int>(rng() % 60), max_new)).ok());
      limit[next_id++] = max_new;
    }
    if (!limit.empty() && rng() % 50 == 0)
      end(std::next(limit.begin(), rng() % limit.size())->first);
    if (plans.empty()) schedule();
    if (plans.empty()) continue;
    bool foreseen_end = false;
    for (const auto& entry : plans.back().entries) {
      foreseen_end |= entry.seq != nullptr && entry.samples &&
                      entry.seq->num_generated() >= limit.at(entry.seq->id);
    }
    if (!foreseen_end) {
      ++ahead;
      schedule();
    }
    const StepPlan done = std::move(plans.front());
    plans.pop_front();
    scheduler.Commit(done, Tokens(done, 1000 + step_no % 3));
    for (const auto& entry : done.entries) {
      if (entry.seq == nullptr || !entry.samples) continue;
      const Sequence& seq = *entry.seq;
      ASSERT_EQ(seq.num_known(), entry.end() + 1);
      ASSERT_EQ(seq.tokens[entry.end()], 1000 + step_no % 3);
      const bool last = seq.num_known() - seq.num_prompt >= limit.at(seq.id);
      if (last || rng() % 20 == 0) end(seq.id);
    }
    pool.CheckInvariants();
  }
  EXPECT_GT(finished, 200);
  EXPECT_GT(ahead, 2000);
  while (!limit.empty()) end(limit.begin()->first);
  reuse->Clear();
  EXPECT_EQ(pool.num_free(), kPages);
}

}  // namespace
}  // namespace kuiper
