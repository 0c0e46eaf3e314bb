// Forked sequences as the scheduler sees them. A model of the storage records what each slot was
// written for. So a copy that is missing, late or of the wrong tokens shows as a wrong value.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kuiper/engine/scheduler.h"
#include "test/engine/scheduler_test_util.h"

namespace kuiper {
namespace {

// Stands for the keys and values of the last of `count` tokens, which depend on all before it.
uint64_t KeyOf(const std::vector<int32_t>& tokens, int count) {
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < count; ++i) hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 1099511628211u;
  return hash;
}

struct Fixture {
  Fixture(int num_pages, int page_size, Scheduler::Limits limits, bool reuse_rows = false)
      : pool(num_pages + 1, page_size),
        reuse(reuse_rows ? MakeRowReuse(pool) : nullptr),
        scheduler(limits, pool, reuse.get()),
        storage(num_pages + 1, std::vector<uint64_t>(page_size)) {}

  static std::unique_ptr<Sequence> Make(int64_t id, std::vector<int32_t> tokens, int max_new = 8) {
    auto seq = std::make_unique<Sequence>();
    seq->id = id;
    seq->tokens = std::move(tokens);
    seq->num_prompt = seq->num_tokens();
    seq->max_new_tokens = max_new;
    return seq;
  }

  // Schedules a step and executes it on the storage. The token that it samples depends on the
  // sequence and its length.
  StepPlan Step() {
    Scheduler::Step step = scheduler.Schedule();
    EXPECT_TRUE(step.out_of_pages.empty());
    for (const StepPlan::PageCopy& copy : step.plan.copies) {
      EXPECT_EQ(pool.ref_count(copy.to), 1);
      std::copy_n(storage[copy.from].begin(), copy.num_tokens, storage[copy.to].begin());
    }
    for (const StepPlan::Entry& entry : step.plan.entries) {
      const Sequence& seq = *scheduler.Find(entry.sequence);
      for (int pos = 0; pos < entry.end(); ++pos) {
        const int32_t page = seq.pages.at(pos / pool.page_size());
        uint64_t& slot = storage[page][pos % pool.page_size()];
        if (pos < entry.begin) {
          EXPECT_EQ(slot, KeyOf(seq.tokens, pos + 1)) << "sequence " << seq.id << ", " << pos;
        } else {
          EXPECT_EQ(pool.ref_count(page), 1) << "a shared page would be written";
          slot = KeyOf(seq.tokens, pos + 1);
        }
      }
    }
    scheduler.Launched(step.plan);
    scheduler.Commit(step.plan, test::Outcomes(step.plan, [](const auto& entry) {
                       return static_cast<int32_t>(1000 * entry.sequence) + entry.end();
                     }));
    return step.plan;
  }

  void Finish(int64_t id) { ASSERT_NE(scheduler.Finish(id), nullptr); }

  BlockPool pool;
  std::unique_ptr<KvReuse> reuse;
  Scheduler scheduler;
  std::vector<std::vector<uint64_t>> storage;  // [page][offset]
};

std::vector<int32_t> Tokens(int count, int first = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(ForkTest, SamplesOfOnePromptShareItsFullPages) {
  constexpr int kPage = 4, kSamples = 3;
  for (const int prompt : {1, kPage - 1, kPage, kPage + 1, 3 * kPage, 3 * kPage + 1}) {
    SCOPED_TRACE("prompt " + std::to_string(prompt));
    Fixture f(40, kPage, {.max_seqs = kSamples, .max_step_tokens = 64, .max_context = 64});
    ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(prompt))).ok());
    f.Step();
    const int pages = (prompt + kPage - 1) / kPage;
    for (int id = 2; id <= kSamples; ++id) {
      ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(id, Tokens(prompt))).ok());
      EXPECT_EQ(f.scheduler.Find(id)->num_computed, prompt - 1);
    }
    EXPECT_EQ(f.pool.num_used(), pages) << "a fork takes no page";
    // Several holders of the last page write to it in the next step. These are the children, whose
    // last prompt token is computed again, and the parent unless the page is full.
    const int shared = (prompt - 1) / kPage;
    const StepPlan plan = f.Step();
    EXPECT_EQ(plan.copies.size(), (prompt - 1) % kPage == 0 ? 0u : kSamples - 1u);
    for (const StepPlan::PageCopy& copy : plan.copies) EXPECT_GE(copy.num_tokens, 1);
    EXPECT_EQ(f.pool.num_shared(), shared);
    const int parent_pages = (prompt + 1 + kPage - 1) / kPage;
    EXPECT_EQ(f.pool.num_used(), parent_pages + (kSamples - 1) * (pages - shared));
    for (int i = 0; i < 9; ++i) f.Step();
    for (int id = 1; id <= kSamples; ++id) {
      EXPECT_EQ(f.scheduler.Find(id)->tokens[prompt], 1000 * id + prompt);
      f.Finish(id);
    }
    EXPECT_EQ(f.pool.num_free(), 40);
  }
}

// A beam: the child continues after all that its parent computed, with another last token.
TEST(ForkTest, ChildGoesOnFromItsParentsLastToken) {
  constexpr int kPage = 4;
  for (const int prompt : {2, 3, 4, 11, 12}) {
    SCOPED_TRACE("prompt " + std::to_string(prompt));
    Fixture f(20, kPage, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64});
    ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(prompt))).ok());
    f.Step();
    std::vector<int32_t> other = f.scheduler.Find(1)->tokens;
    other.back() = 7;
    auto child = Fixture::Make(2, other);
    child->num_prompt = prompt;
    ASSERT_TRUE(f.scheduler.Fork(1, std::move(child)).ok());
    EXPECT_EQ(f.scheduler.Find(2)->num_computed, prompt);
    const StepPlan plan = f.Step();
    EXPECT_TRUE(plan.decode_only());
    ASSERT_EQ(plan.entries.size(), 2u);
    EXPECT_EQ(plan.copies.size(), prompt % kPage == 0 ? 0u : 1u);
    EXPECT_EQ(f.pool.num_shared(), prompt / kPage);
  }
}

TEST(ForkTest, LastHolderOfAPageWritesWithoutACopy) {
  Fixture f(20, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64});
  ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
  f.Step();
  ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(2, Tokens(6))).ok());
  f.Finish(1);
  EXPECT_EQ(f.pool.num_shared(), 0);
  EXPECT_TRUE(f.Step().copies.empty());
}

TEST(ForkTest, WithoutSeatOrPagesOrParentTheChildWaits) {
  Fixture seat(20, 4, {.max_seqs = 1, .max_step_tokens = 64, .max_context = 64});
  ASSERT_TRUE(seat.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
  seat.Step();
  ASSERT_TRUE(seat.scheduler.Fork(1, Fixture::Make(2, Tokens(6))).ok());
  EXPECT_EQ(seat.scheduler.num_waiting(), 1);
  ASSERT_TRUE(seat.scheduler.Fork(99, Fixture::Make(3, Tokens(6))).ok());
  EXPECT_EQ(seat.scheduler.num_waiting(), 2);
  seat.Finish(1);
  EXPECT_EQ(seat.Step().entries.at(0).num_tokens(), 6) << "computed from the start";

  // Two pages are in use. Each sequence needs one more, and one of them needs another for a copy.
  for (const int pages : {4, 5}) {
    Fixture f(pages, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 64});
    ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
    f.Step();
    ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(2, Tokens(6))).ok());
    EXPECT_EQ(f.scheduler.num_running(), pages - 3);
    EXPECT_EQ(f.pool.num_used(), 2);
    for (int i = 0; i < 8; ++i) f.Step();
    f.Finish(1);
    f.Finish(2);
    EXPECT_EQ(f.pool.num_free(), pages);
  }
}

TEST(ForkTest, SeatsAreKeptForForksToCome) {
  for (const int seats : {3, 30}) {  // at most three exist
    Fixture f(40, 4, {.max_seqs = 3, .max_step_tokens = 64, .max_context = 64});
    auto parent = Fixture::Make(1, Tokens(6));
    parent->num_reserved_seqs = seats;
    ASSERT_TRUE(f.scheduler.Add(std::move(parent)).ok());
    for (const int id : {2, 3}) {
      ASSERT_TRUE(f.scheduler.Add(Fixture::Make(id, Tokens(6, 10 * id))).ok());
    }
    f.Step();
    EXPECT_EQ(f.scheduler.num_running(), 1) << "sequences whose place a fork would need wait";
    for (const int id : {4, 5}) {
      ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(id, Tokens(6))).ok());
    }
    EXPECT_EQ(f.scheduler.num_running(), 3);
    f.Step();
    f.Finish(4);
    if (seats == 30) continue;  // it waits for further forks of its own
    f.Step();
    EXPECT_EQ(f.scheduler.Find(2)->num_computed, 6) << "there is room for a sequence";
    f.Finish(1);
    f.Step();
    for (const int id : {2, 3}) EXPECT_EQ(f.scheduler.Find(id)->num_preempted, 0);
  }
}

TEST(ForkTest, ContextAndPoolLimitsHoldForChildren) {
  Fixture f(4, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 12});
  EXPECT_EQ(f.scheduler.Fork(1, Fixture::Make(2, Tokens(12))).code(), StatusCode::kContextExceeded);
  EXPECT_FALSE(f.scheduler.HasWork());
}

// Contiguous storage: a page is a whole cache row.
TEST(ForkTest, ForkedRowIsCopiedUpToItsLastToken) {
  Fixture f(3, 32, {.max_seqs = 3, .max_step_tokens = 64, .max_context = 32}, true);
  ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
  f.Step();
  for (int id : {2, 3}) ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(id, Tokens(6))).ok());
  const StepPlan plan = f.Step();
  ASSERT_EQ(plan.copies.size(), 2u);
  EXPECT_EQ(plan.copies[0].num_tokens, 6);  // the parent writes first
  EXPECT_EQ(plan.copies[1].num_tokens, 5);
  EXPECT_EQ(f.pool.num_used(), 3);
}

// A prompt must not take over a row that a fork still uses.
TEST(ForkTest, SharedRowIsNotKeptForReuse) {
  Fixture f(3, 32, {.max_seqs = 3, .max_step_tokens = 64, .max_context = 32}, true);
  ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
  f.Step();
  ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(2, Tokens(6))).ok());
  f.Finish(1);
  EXPECT_EQ(f.reuse->num_evictable(), 0);
  EXPECT_TRUE(f.Step().copies.empty());
  f.Finish(2);
  EXPECT_EQ(f.reuse->num_evictable(), 1);
}

}  // namespace
}  // namespace kuiper
