// Forked sequences as the scheduler sees them. A model of the storage remembers what each slot was
// written for, so a copy that is missing, late or of the wrong tokens shows as a wrong value.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kuiper/engine/scheduler.h"

namespace kuiper {
namespace {

// Stands for the keys and values of the last of `count` tokens, which depend on all before it.
uint64_t KeyOf(const std::vector<int32_t>& tokens, int count) {
  uint64_t hash = 14695981039346656037u;
  for (int i = 0; i < count; ++i) hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 1099511628211u;
  return hash;
}

enum class Reuse { kNone, kPages, kRows };

struct Fixture {
  Fixture(int num_pages, int page_size, Scheduler::Limits limits, Reuse kind = Reuse::kNone)
      : pool(num_pages + 1, page_size),
        reuse(kind == Reuse::kPages  ? MakePageReuse(pool, int64_t{num_pages} * page_size)
              : kind == Reuse::kRows ? MakeRowReuse(pool)
                                     : nullptr),
        host_pages(num_pages + 1, page_size),
        scheduler(limits, pool, reuse.get(), &host_pages),
        storage(num_pages + 1, std::vector<uint64_t>(page_size)),
        host_storage(storage) {}

  static std::unique_ptr<Sequence> Make(int64_t id, std::vector<int32_t> tokens, int max_new = 8) {
    auto seq = std::make_unique<Sequence>();
    seq->id = id;
    seq->tokens = std::move(tokens);
    seq->num_prompt = seq->num_tokens();
    seq->max_new_tokens = max_new;
    return seq;
  }

  // The token a step samples for this sequence tells it and its length apart.
  static int32_t TokenAt(const Sequence& seq, int index) {
    return static_cast<int32_t>(1000 * seq.id) + index;
  }
  // The sequence's tokens as the device knows them.
  static std::vector<int32_t> TokensOf(const Sequence& seq) {
    std::vector<int32_t> tokens = seq.tokens;
    for (int i = seq.num_known(); i < seq.num_tokens(); ++i) tokens[i] = TokenAt(seq, i);
    return tokens;
  }

  // Schedules a step and carries it out on the storage.
  void Launch() {
    Scheduler::Step step = scheduler.Schedule(!in_flight.empty());
    EXPECT_TRUE(step.out_of_pages.empty());
    for (const PageMove& move : step.moves) {
      std::vector<uint64_t>& device = storage[move.device_page];
      std::vector<uint64_t>& host = host_storage[move.host_page];
      move.to_host ? host = device : device = host;
    }
    for (const StepPlan::PageCopy& copy : step.plan.copies) {
      EXPECT_EQ(pool.ref_count(copy.to), 1);
      std::copy_n(storage[copy.from].begin(), copy.num_tokens, storage[copy.to].begin());
    }
    must_settle = step.must_settle;
    std::set<int32_t> written;
    for (const StepPlan::Entry& entry : step.plan.entries) {
      const Sequence& seq = *entry.seq;
      const std::vector<int32_t> tokens = TokensOf(seq);
      std::set<int32_t> own;
      for (int pos = 0; pos < entry.end(); ++pos) {
        const int32_t page = seq.pages.at(pos / pool.page_size());
        uint64_t& slot = storage[page][pos % pool.page_size()];
        if (pos < entry.begin) {
          EXPECT_EQ(slot, KeyOf(tokens, pos + 1)) << "sequence " << seq.id << ", " << pos;
        } else {
          EXPECT_EQ(pool.ref_count(page), 1) << "a shared page would be written";
          own.insert(page);
          slot = KeyOf(tokens, pos + 1);
        }
      }
      for (int32_t page : own) EXPECT_TRUE(written.insert(page).second) << "written by two";
    }
    in_flight.push_back(std::move(step.plan));
  }

  StepPlan CommitOldest() {
    StepPlan plan = std::move(in_flight.front());
    in_flight.erase(in_flight.begin());
    std::vector<int32_t> tokens;
    for (const StepPlan::Entry& entry : plan.entries) {
      if (!entry.samples) continue;
      tokens.push_back(entry.seq != nullptr ? TokenAt(*entry.seq, entry.end()) : 0);
    }
    scheduler.Commit(plan, tokens);
    return plan;
  }

  StepPlan Step() {
    Launch();
    return CommitOldest();
  }

  void Finish(int64_t id) {
    for (StepPlan& plan : in_flight) {
      for (StepPlan::Entry& entry : plan.entries) {
        if (entry.seq != nullptr && entry.seq->id == id) entry.seq = nullptr;
      }
    }
    ASSERT_NE(scheduler.Finish(id), nullptr);
  }

  BlockPool pool;
  std::unique_ptr<KvReuse> reuse;
  BlockPool host_pages;
  Scheduler scheduler;
  std::vector<std::vector<uint64_t>> storage, host_storage;  // [page][offset]
  std::vector<StepPlan> in_flight;                           // oldest first
  bool must_settle = false;
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
    // Two of the last page's holders write to it in the next step: the parent, unless the page is
    // full, and the children, for which the last prompt token is computed again.
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

// A beam: the child goes on from all that its parent computed, with another last token.
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
    EXPECT_TRUE(plan.decode_only);
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
  EXPECT_EQ(seat.Step().entries.at(0).num_tokens, 6) << "computed from the start";

  // Two pages are there, each asks for one more, and one of them for a copy.
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

TEST(ForkTest, ContextAndPoolLimitsHoldForChildren) {
  Fixture f(4, 4, {.max_seqs = 2, .max_step_tokens = 64, .max_context = 12});
  EXPECT_EQ(f.scheduler.Fork(1, Fixture::Make(2, Tokens(12))).code(), StatusCode::kContextExceeded);
  EXPECT_FALSE(f.scheduler.HasWork());
}

// Contiguous storage: a page is a whole cache row.
TEST(ForkTest, ForkedRowIsCopiedUpToItsLastToken) {
  Fixture f(3, 32, {.max_seqs = 3, .max_step_tokens = 64, .max_context = 32}, Reuse::kRows);
  ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
  f.Step();
  for (int id : {2, 3}) ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(id, Tokens(6))).ok());
  const StepPlan plan = f.Step();
  ASSERT_EQ(plan.copies.size(), 2u);
  EXPECT_EQ(plan.copies[0].num_tokens, 6);  // the parent goes first
  EXPECT_EQ(plan.copies[1].num_tokens, 5);
  EXPECT_EQ(f.pool.num_used(), 3);
}

// A row that a fork goes on with is not another prompt's to take over.
TEST(ForkTest, SharedRowIsNotKeptForReuse) {
  Fixture f(3, 32, {.max_seqs = 3, .max_step_tokens = 64, .max_context = 32}, Reuse::kRows);
  ASSERT_TRUE(f.scheduler.Add(Fixture::Make(1, Tokens(6))).ok());
  f.Step();
  ASSERT_TRUE(f.scheduler.Fork(1, Fixture::Make(2, Tokens(6))).ok());
  f.Finish(1);
  EXPECT_EQ(f.reuse->num_evictable(), 0);
  EXPECT_TRUE(f.Step().copies.empty());
  f.Finish(2);
  EXPECT_EQ(f.reuse->num_evictable(), 1);
}

// Random requests, forks at any point of a sequence, aborts, and steps that run ahead.
class RandomLoad {
 public:
  RandomLoad(Fixture& fixture, uint32_t seed) : f_(fixture), rng_(seed) {}
  ~RandomLoad() {
    for (const auto& [id, unused] : wanted_) f_.Finish(id);
  }

  void Step() {
    if (wanted_.size() < 9 && rng_() % 4 == 0) Add();
    if (!wanted_.empty() && wanted_.size() < 12 && rng_() % 3 == 0) Fork();
    if (!wanted_.empty() && rng_() % 30 == 0) {
      const auto victim = Any();
      f_.Finish(victim->first);
      wanted_.erase(victim);
    }
    f_.Launch();
    copies += static_cast<int>(f_.in_flight.back().copies.size());
    const size_t ahead = f_.must_settle ? 0 : rng_() % 2;
    while (f_.in_flight.size() > ahead) f_.CommitOldest();
    for (auto it = wanted_.begin(); it != wanted_.end();) {
      const Sequence& seq = *f_.scheduler.Find(it->first);
      if (seq.num_known() - seq.num_prompt < it->second) {
        ++it;
        continue;
      }
      f_.Finish(it->first);
      it = wanted_.erase(it);
      ++finished;
    }
    f_.pool.CheckInvariants();
  }

  int finished = 0, forked = 0, copies = 0;

 private:
  std::map<int64_t, int>::iterator Any() {
    return std::next(wanted_.begin(), rng_() % wanted_.size());
  }

  void Add() {
    const int max_new = 1 + static_cast<int>(rng_() % 20);
    const int prompt = 1 + static_cast<int>(rng_() % 40);
    const int first = static_cast<int>(rng_() % 3) * 100;
    EXPECT_TRUE(f_.scheduler.Add(Fixture::Make(next_id_, Tokens(prompt, first), max_new)).ok());
    wanted_[next_id_++] = max_new;
  }

  void Fork() {
    const int64_t parent = Any()->first;
    const Sequence& seq = *f_.scheduler.Find(parent);
    auto child = Fixture::Make(next_id_, seq.tokens);
    child->tokens.resize(seq.num_known());
    child->num_prompt = seq.num_prompt;
    if (rng_() % 2 == 0) child->tokens.resize(seq.num_prompt);      // a sample
    if (rng_() % 2 == 0) child->tokens.back() = 5000 + rng_() % 9;  // a beam
    child->max_new_tokens = child->num_generated() + 1 + static_cast<int>(rng_() % 20);
    if (child->num_prompt + child->max_new_tokens > 64) return;
    wanted_[next_id_++] = child->max_new_tokens;
    EXPECT_TRUE(f_.scheduler.Fork(parent, std::move(child)).ok());
    ++forked;
  }

  Fixture& f_;
  std::mt19937 rng_;
  std::map<int64_t, int> wanted_;  // id -> tokens to generate
  int64_t next_id_ = 1;
};

// Every slot a step reads holds what its own tokens wrote, no shared page is written, no page is
// lost, everything finishes, preempted or not.
TEST(ForkTest, SoakReadsOnlyWhatEachSequenceWrote) {
  int64_t preempted_recompute = 0, preempted_swap = 0, copies = 0;
  for (const auto& [page_size, num_pages, reuse, preemption] :
       {std::tuple(1, 80, Reuse::kNone, Preemption::kRecompute),
        std::tuple(1, 80, Reuse::kPages, Preemption::kSwap),
        std::tuple(4, 20, Reuse::kNone, Preemption::kSwap),
        std::tuple(4, 20, Reuse::kPages, Preemption::kRecompute),
        std::tuple(4, 24, Reuse::kPages, Preemption::kSwap),
        std::tuple(64, 4, Reuse::kNone, Preemption::kSwap),
        std::tuple(64, 4, Reuse::kRows, Preemption::kRecompute)}) {
    Fixture f(num_pages, page_size,
              {.max_seqs = 6, .max_step_tokens = 16, .max_context = 64, .preemption = preemption},
              reuse);
    {
      RandomLoad load(f, page_size + static_cast<int>(reuse));
      for (int step = 0; step < 2000 && !::testing::Test::HasFailure(); ++step) load.Step();
      EXPECT_GT(load.finished, 40);
      EXPECT_GT(load.forked, 100);
      EXPECT_TRUE(page_size > 1 || load.copies == 0);
      copies += load.copies;
    }
    preempted_recompute += f.scheduler.stats().preempted_recompute;
    preempted_swap += f.scheduler.stats().preempted_swap;
    if (f.reuse != nullptr) f.reuse->Clear();
    EXPECT_EQ(f.pool.num_free(), num_pages);
    EXPECT_EQ(f.host_pages.num_free(), num_pages);
  }
  EXPECT_GT(copies, 200);
  EXPECT_GT(preempted_recompute, 50);
  EXPECT_GT(preempted_swap, 50);
}

}  // namespace
}  // namespace kuiper
