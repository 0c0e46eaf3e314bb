// Random scenarios of requests that arrive, fork, end, are aborted and preempted, on a device
// without tensors. It stores a hash for each token that covers the token and all before it, like
// keys and values. The next token is a function of the hashes read. So a stale, foreign or
// unwritten page gives wrong ids. After every step each reference and each page is accounted for.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <string>

#include "kuiper/engine/scheduler.h"
#include "kuiper/kv/page_map.h"

namespace kuiper {
namespace {

constexpr int kAlphabet = 3;  // few ids: prompts and answers often begin alike

uint64_t Next(uint64_t hash, int32_t token) {
  hash = (hash ^ (static_cast<uint64_t>(token) + 1)) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

int32_t TokenAfter(uint64_t hash) {
  return static_cast<int32_t>((hash >> 33) % kAlphabet);
}

struct Scenario {
  int page_size, pages, host_pages;
  bool reuse, rows, run_ahead;
  int64_t cache_tokens;
  int longest_prompt, longest_answer;
  Scheduler::Limits limits;
};

Scenario RandomScenario(std::mt19937& rng) {
  const auto up_to = [&rng](int n) { return static_cast<int>(rng() % (n + 1)); };
  Scenario s{};
  constexpr int kPageSizes[] = {1, 4, 16, 64};
  s.page_size = kPageSizes[up_to(3)];
  s.longest_prompt = 1 + up_to(std::max(20, 2 * s.page_size + 2));
  s.longest_answer = 1 + up_to(std::max(20, 2 * s.page_size + 2));
  const int barely_one = (s.longest_prompt + s.page_size - 1) / s.page_size;
  s.pages = barely_one + up_to(2) * up_to(20);
  s.limits.max_context = s.longest_prompt + 1 + up_to(s.longest_answer);
  s.limits.max_seqs = 1 + up_to(6);
  s.limits.max_step_tokens = s.limits.max_seqs + up_to(1) * up_to(2 * s.longest_prompt);
  s.limits.policy = up_to(3) == 0 ? SchedulingPolicy::kLatency : SchedulingPolicy::kThroughput;
  constexpr OnFull kOnFull[] = {OnFull::kPreempt, OnFull::kPreempt, OnFull::kStop, OnFull::kSlide};
  s.limits.on_full = kOnFull[up_to(3)];
  s.limits.preemption = static_cast<Preemption>(up_to(2));
  s.reuse = up_to(2) > 0;
  s.rows = up_to(5) == 0;
  s.run_ahead = up_to(1) == 0;
  s.cache_tokens = up_to(1) * up_to(s.pages * s.page_size);
  s.host_pages = up_to(1) * up_to(2 * s.pages);
  if (s.rows) {
    s.page_size = s.limits.max_context;
    s.pages = s.limits.max_seqs;
    s.host_pages = 0;
  }
  return s;
}

class World {
 public:
  World(const Scenario& scenario, uint32_t seed)
      : s_(scenario),
        rng_(seed),
        pool_(s_.pages + 1, s_.page_size),
        host_pages_(s_.host_pages + 1, s_.page_size),
        told_(s_.pages),
        reuse_(!s_.reuse ? nullptr
               : s_.rows ? MakeRowReuse(pool_)
                         : MakePageReuse(pool_, s_.cache_tokens)),
        scheduler_(s_.limits, pool_, reuse_.get(), s_.host_pages > 0 ? &host_pages_ : nullptr),
        device_(static_cast<size_t>(s_.pages + 1) * s_.page_size),
        host_(static_cast<size_t>(s_.host_pages + 1) * s_.page_size) {
    if (!s_.rows) pool_.set_observer([this](const KvEvent& event) { told_.Apply(event); });
    scheduler_.set_costs({.token_ms = 1, .page_ms = 0.3 * s_.page_size});
  }

  // Returns what is wrong; empty if nothing is.
  std::string Run(int steps) {
    for (int i = 0; i < steps && error_.empty(); ++i) Step(true);
    const int most = 10000;
    for (int i = 0; i < most && error_.empty() && scheduler_.HasWork(); ++i) Step(false);
    Expect(!scheduler_.HasWork(), "not everybody comes to an end");
    if (!error_.empty()) return error_;
    if (reuse_ != nullptr) reuse_->Clear();
    Expect(pool_.num_used() == 0 && host_pages_.num_used() == 0, "a page is lost");
    CheckTold();
    return error_;
  }

  int finished = 0, aborted = 0, withdrawn = 0, out_of_pages = 0, forced = 0, ahead = 0;
  int forked = 0, copies = 0;    // forks that ran at once; page copies they caused
  int rested = 0, gave_way = 0;  // delayed tokens; paused sequences that lost pages
  const Scheduler::Stats& stats() const { return scheduler_.stats(); }
  int64_t num_told(KvEvent::Kind kind) const { return told_.num_events(kind); }
  int64_t hits() const { return reuse_ != nullptr ? reuse_->stats().hits : 0; }

 private:
  struct Live {
    std::vector<int32_t> start;  // the prompt, and the tokens a fork begins with
    int num_prompt = 0;
    int max_new = 0;
    std::vector<int32_t> tokens;   // as in the sequence, with the pending ones
    std::vector<uint64_t> hashes;  // hash of each prefix of the tokens
    int num_dropped = 0;
    int num_sampled = 0;     // tokens after the prompt, including those in `start`
    bool is_paused = false;  // paused after each of its tokens
  };
  struct InFlight {
    StepPlan plan;
    std::vector<Scheduler::Outcome> sampled;
    std::map<int64_t, int32_t> undecided;
  };

  void Expect(bool ok, const char* what) {
    if (!ok && error_.empty()) error_ = what;
  }
  int UpTo(int n) { return static_cast<int>(rng_() % (n + 1)); }
  int64_t AnyId() {
    return std::next(live_.begin(), UpTo(static_cast<int>(live_.size()) - 1))->first;
  }

  void Step(bool disturb) {
    if (disturb) {
      if (live_.size() < 10 && UpTo(3) == 0) Add();
      if (!live_.empty() && live_.size() < 12 && UpTo(5) == 0) Fork(AnyId());
      if (!live_.empty() && UpTo(60) == 0) {
        End(AnyId());
        ++aborted;
      }
      if (!live_.empty() && in_flight_.empty() && UpTo(30) == 0) Force(AnyId());
      if (reuse_ != nullptr && UpTo(500) == 0) reuse_->Clear();
    }
    if (!resting_.empty() && (!disturb || UpTo(2) == 0)) Tell();
    if (in_flight_.empty()) Launch();
    if (in_flight_.empty() && scheduler_.num_waiting() == 0 && !resting_.empty()) Tell();
    if (in_flight_.empty() || !error_.empty()) return;
    if (s_.run_ahead && !must_not_run_ahead_ && !EndIsForeseen()) {
      ++ahead;
      Launch();
    }
    Collect();
    CheckPages();
  }

  void Add() {
    Live live;
    live.num_prompt = 1 + UpTo(s_.longest_prompt - 1);
    live.start.resize(live.num_prompt);
    // One of two beginnings, then a few tokens of its own.
    const int own = UpTo(6), beginning = UpTo(1);
    for (int i = 0; i < live.num_prompt; ++i) {
      const bool is_own = live.num_prompt - i <= own;
      live.start[i] = is_own ? UpTo(kAlphabet - 1) : (i + beginning) % kAlphabet;
    }
    live.max_new = 1 + UpTo(s_.longest_answer);
    live.is_paused = UpTo(4) == 0 && s_.limits.on_full != OnFull::kSlide;
    auto seq = MakeSequence(live);
    seq->priority = UpTo(4) == 0 ? UpTo(4) - 2 : 0;
    const bool fits = live.num_prompt < s_.limits.max_context;
    Expect(scheduler_.Add(std::move(seq)).ok() == fits, "a prompt is refused or taken wrongly");
    if (fits) Enter(std::move(live));
  }

  // Another sample of the prompt, or a beam: all known tokens of the parent, with another end.
  void Fork(int64_t parent) {
    const Sequence& seq = *scheduler_.Find(parent);
    Live live;
    live.num_prompt = live_.at(parent).num_prompt;
    live.is_paused = live_.at(parent).is_paused;
    live.start = live_.at(parent).start;
    live.start.resize(live.num_prompt);
    if (UpTo(1) == 0 && s_.limits.on_full != OnFull::kSlide) {  // beams do not slide
      live.start = seq.tokens;
      live.start.back() = UpTo(kAlphabet - 1);
    }
    const int num_begun = static_cast<int>(live.start.size()) - live.num_prompt;
    live.max_new = num_begun + 1 + UpTo(s_.longest_answer);
    Expect(scheduler_.Fork(parent, MakeSequence(live)).ok(), "a fork is refused");
    const Sequence& child = *scheduler_.Find(next_id_);
    forked += !child.pages.empty();
    Expect(child.num_computed <= seq.num_computed, "a fork has more than its parent");
    Enter(std::move(live));
  }

  // With the next id.
  std::unique_ptr<Sequence> MakeSequence(const Live& live) const {
    auto seq = std::make_unique<Sequence>();
    seq->id = next_id_;
    seq->tokens = live.start;
    seq->num_prompt = live.num_prompt;
    seq->max_new_tokens = live.max_new;
    return seq;
  }
  void Enter(Live live) {
    SetTokens(live, live.start);
    live.num_sampled = static_cast<int>(live.start.size()) - live.num_prompt;
    live_.emplace(next_id_++, std::move(live));
  }

  static void SetTokens(Live& live, const std::vector<int32_t>& tokens) {
    live.tokens.clear();
    live.hashes.clear();
    for (int32_t token : tokens) Append(live, token);
  }
  static void Append(Live& live, int32_t token) {
    live.hashes.push_back(Next(live.hashes.empty() ? 1 : live.hashes.back(), token));
    live.tokens.push_back(token);
  }

  void Force(int64_t id) {
    if (scheduler_.Find(id)->pages.empty()) return;  // waits
    scheduler_.Preempt(id, UpTo(1) == 0 ? Preemption::kSwap : Preemption::kRecompute);
    Expect(scheduler_.Find(id)->pages.empty(), "a preempted sequence has pages");
    ++forced;
  }

  // Appends the next token of a paused sequence.
  void Tell() {
    const auto any = std::next(resting_.begin(), UpTo(static_cast<int>(resting_.size()) - 1));
    const auto [id, token] = *any;
    resting_.erase(any);
    gave_way += scheduler_.Find(id)->pages.empty();
    ++rested;
    num_idle_ = 0;
    scheduler_.Append(id, token);
    Append(live_.at(id), token);
    if (IsAtLimit(*scheduler_.Find(id))) Finish(id);
  }

  void Launch() {
    Scheduler::Step step = scheduler_.Schedule(!in_flight_.empty());
    must_not_run_ahead_ = step.must_not_run_ahead;
    CheckPlanOf(step.plan);
    for (const Sequence* seq : step.out_of_pages) {
      Expect(seq->num_tokens() == s_.pages * s_.page_size + 1,
             "a sequence stops though the pool has room");
      ++out_of_pages;
      Finish(seq->id);
    }
    for (const PageMove& move : step.moves) Move(move);
    Expect(static_cast<int>(step.plan.copies.size()) <= s_.limits.max_seqs, "too many copies");
    Expect(step.plan.num_tokens() <= s_.limits.max_step_tokens, "a step is too large");
    const bool idle = step.plan.entries.empty() && step.out_of_pages.empty();
    num_idle_ = idle && scheduler_.HasWork() && in_flight_.empty() ? num_idle_ + 1 : 0;
    Expect(num_idle_ < 3 + static_cast<int>(resting_.size()), "nobody advances");
    if (UpTo(30) == 0) Withdraw(&step.plan);
    if (step.plan.entries.empty()) return;
    for (const StepPlan::PageCopy& copy : step.plan.copies) Copy(copy);
    InFlight next{std::move(step.plan), {}, {}};
    scheduler_.Launched(next.plan);
    for (const StepPlan::Entry& entry : next.plan.entries) Write(entry);
    for (const StepPlan::Entry& entry : next.plan.entries) {
      const uint64_t read = Read(entry);
      if (entry.samples.empty()) continue;
      const int32_t token = TokenAfter(read);
      Live& live = live_.at(entry.sequence);
      Expect(next.plan.samples[entry.samples.begin].index == live.num_sampled++,
             "random numbers are drawn twice, or left out");
      Expect(!resting_.contains(entry.sequence), "a paused sequence has a part in a step");
      if (live.is_paused) {
        next.undecided[entry.sequence] = token;
        next.sampled.push_back(Scheduler::Undecided());
      } else {
        next.sampled.push_back(Scheduler::Token{token});
        Append(live, token);
      }
    }
    in_flight_.push_back(std::move(next));
  }

  // Some sequences of the plan end before it is launched, as when their pictures cannot be encoded.
  void Withdraw(StepPlan* plan) {
    for (const StepPlan::Entry& entry : plan->entries) {
      if (UpTo(1) == 0) continue;
      End(entry.sequence);
      ++withdrawn;
    }
    std::vector<StepPlan::PageCopy> all_copies = std::move(plan->copies);
    *plan = plan->Only([this](const auto& entry) { return live_.contains(entry.sequence); });
    plan->copies = std::move(all_copies);
    must_not_run_ahead_ = true;
  }

  // Checks that the plan matches the scheduler: tokens and, by its changes, the whole page table.
  void CheckPlanOf(const StepPlan& plan) {
    Expect(kuiper::CheckPlan(plan).ok(), "the plan does not agree with itself");
    for (const int64_t ended : plan.ended) {
      Expect(!live_.contains(ended), "a sequence is listed as ended, but continues");
      tables_.erase(ended);
    }
    for (const StepPlan::Entry& entry : plan.entries) {
      const Sequence& seq = *scheduler_.Find(entry.sequence);
      std::vector<int32_t>& table = tables_[entry.sequence];
      Expect(entry.num_kept_pages <= static_cast<int>(table.size()), "pages were never sent");
      table.resize(entry.num_kept_pages);
      const auto pages = Part(plan.pages, entry.pages);
      table.insert(table.end(), pages.begin(), pages.end());
      Expect(table == seq.pages, "the plan tells another page table");
      const auto tokens = Part(plan.tokens, entry.tokens);
      for (int i = 0; i < entry.num_tokens(); ++i) {
        const int pos = entry.begin + i;
        Expect(plan.positions[entry.tokens.begin + i] == pos, "a position is wrong");
        Expect(tokens[i].is_known()
                   ? pos < seq.num_known() && tokens[i].id() == seq.tokens[pos]
                   : pos == seq.num_known() && !in_flight_.empty() &&
                         IsSampledBy(in_flight_.back().plan, tokens[i].row(), entry),
               "a token is wrong");
      }
    }
    Expect(plan.entries.empty() || tables_.size() <= live_.size(), "a table is never forgotten");
  }
  static bool IsSampledBy(const StepPlan& before, int row, const StepPlan::Entry& entry) {
    return std::any_of(before.entries.begin(), before.entries.end(), [&](const auto& e) {
      return e.sequence == entry.sequence && e.samples.begin <= row && row < e.samples.end;
    });
  }

  uint64_t& Slot(const Sequence& seq, int pos) {
    return device_[static_cast<size_t>(seq.pages[pos / s_.page_size]) * s_.page_size +
                   pos % s_.page_size];
  }
  void Move(const PageMove& move) {
    const auto device = device_.begin() + static_cast<int64_t>(move.device_page) * s_.page_size;
    const auto host = host_.begin() + static_cast<int64_t>(move.host_page) * s_.page_size;
    if (move.to_host) {
      std::copy_n(device, s_.page_size, host);
    } else {
      std::copy_n(host, s_.page_size, device);
    }
  }
  void Copy(const StepPlan::PageCopy& copy) {
    Expect(pool_.ref_count(copy.to) <= 1, "a copy goes to somebody else's page");
    Expect(copy.num_tokens >= 1 && copy.num_tokens < s_.page_size, "a copy of nothing, or of all");
    const auto from = device_.begin() + static_cast<int64_t>(copy.from) * s_.page_size;
    std::copy_n(from, copy.num_tokens,
                device_.begin() + static_cast<int64_t>(copy.to) * s_.page_size);
    ++copies;
  }
  void Write(const StepPlan::Entry& entry) {
    const Sequence& seq = *scheduler_.Find(entry.sequence);
    Live& live = live_.at(seq.id);
    if (seq.num_dropped != live.num_dropped) {
      live.num_dropped = seq.num_dropped;
      SetTokens(live, seq.tokens);
    }
    if (entry.num_tokens() < 1 || entry.end() > static_cast<int>(live.tokens.size()) ||
        entry.end() > static_cast<int>(seq.pages.size()) * s_.page_size ||
        entry.end() > s_.limits.max_context) {
      return Expect(false, "an entry is out of bounds");
    }
    Expect(!entry.samples.empty() == (entry.end() == static_cast<int>(live.tokens.size())),
           "a sequence samples before its end, or does not at its end");
    for (int pos = entry.begin; pos < entry.end(); ++pos) {
      Expect(pool_.ref_count(seq.pages[pos / s_.page_size]) == 1, "a shared page is written");
      Slot(seq, pos) = live.hashes[pos];
    }
  }
  uint64_t Read(const StepPlan::Entry& entry) {
    if (!error_.empty()) return 0;
    const Sequence& seq = *scheduler_.Find(entry.sequence);
    const Live& live = live_.at(entry.sequence);
    for (int pos = 0; pos < entry.end(); ++pos) {
      if (Slot(seq, pos) != live.hashes[pos]) {
        Expect(false, "a sequence reads what is not its own");
        return 0;
      }
    }
    return Slot(seq, entry.end() - 1);
  }

  bool EndIsForeseen() {
    for (const StepPlan::Entry& entry : in_flight_.back().plan.entries) {
      const Sequence* seq = scheduler_.Find(entry.sequence);
      if (seq == nullptr || entry.samples.empty()) continue;
      if (live_.at(seq->id).is_paused || IsAtLimit(*seq)) return true;
    }
    return false;
  }
  bool IsAtLimit(const Sequence& seq) const {
    return seq.num_generated() >= live_.at(seq.id).max_new ||
           (s_.limits.on_full != OnFull::kSlide && seq.num_tokens() >= s_.limits.max_context);
  }

  void Collect() {
    const InFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_.Commit(step.plan, step.sampled);
    for (const StepPlan::Entry& entry : step.plan.entries) {
      if (scheduler_.Find(entry.sequence) == nullptr || entry.samples.empty()) continue;
      const Sequence& seq = *scheduler_.Find(entry.sequence);
      if (live_.at(seq.id).is_paused) {
        resting_.insert(*step.undecided.find(seq.id));
        continue;
      }
      // An unexpected end, as by an end-of-sequence token, may leave a token in flight.
      if ((seq.num_pending == 0 && IsAtLimit(seq)) || UpTo(40) == 0) Finish(seq.id);
    }
  }

  // Ends a sequence; its ids must equal those of a run alone.
  void Finish(int64_t id) {
    const Live live = live_.at(id);
    const std::unique_ptr<Sequence> seq = End(id);
    ++finished;
    std::vector<int32_t> alone = live.start;
    const size_t window =
        static_cast<size_t>(std::min(s_.limits.max_context, s_.pages * s_.page_size));
    const int num_begun = static_cast<int>(live.start.size()) - live.num_prompt;
    for (int i = num_begun; i < seq->num_generated(); ++i) {
      if (s_.limits.on_full == OnFull::kSlide && alone.size() > window) {
        const size_t sinks = std::min<size_t>(4, window / 4);
        const size_t newest = std::max<size_t>(1, (window - sinks) / 2);
        alone.erase(alone.begin() + sinks, alone.end() - newest);
      }
      uint64_t hash = 1;
      for (int32_t token : alone) hash = Next(hash, token);
      alone.push_back(TokenAfter(hash));
    }
    Expect(seq->tokens == alone, "the ids are not those of the request alone");
  }
  std::unique_ptr<Sequence> End(int64_t id) {
    live_.erase(id);
    resting_.erase(id);
    return scheduler_.Finish(id);
  }

  void CheckPages() {
    std::vector<int> held(s_.pages + 1), host_held(s_.host_pages + 1);
    for (const auto& [id, live] : live_) {
      const Sequence& seq = *scheduler_.Find(id);
      for (int32_t page : seq.pages) ++held[page];
      for (int32_t page : seq.host_pages) ++host_held[page];
      Expect(seq.pages.empty() || seq.host_pages.empty(), "a sequence is here and swapped out");
    }
    int free = 0, used = 0, cached = 0;
    for (int32_t page = 1; page <= s_.pages; ++page) {
      const int refs = pool_.ref_count(page);
      Expect(refs == held[page] || (reuse_ != nullptr && refs == held[page] + 1),
             "a reference is missing or nobody's");
      free += refs == 0;
      used += held[page] > 0;
      cached += refs == 1 && held[page] == 0;
    }
    Expect(free + used + cached == s_.pages, "a page is in no state, or in two");
    Expect(free == pool_.num_free(), "the free list is wrong");
    Expect(reuse_ == nullptr ? cached == 0 : reuse_->num_evictable() <= cached,
           "more is evictable than cached");
    int host_used = 0;
    for (int32_t page = 1; page <= s_.host_pages; ++page) {
      Expect(host_pages_.ref_count(page) == host_held[page] && host_held[page] <= 1,
             "a host page is wrong");
      host_used += host_held[page];
    }
    Expect(host_used == host_pages_.num_used(), "a host page is lost");
    CheckTold();
  }

  // The page map, built from events only, must match the pool and the sequences.
  void CheckTold() {
    if (s_.rows) return;
    Expect(told_.status().ok(), "an event contradicts those before it");
    Expect(told_.num_free() == pool_.num_free(), "an event of a free page is missing");
    for (int32_t page = 1; page <= s_.pages; ++page) {
      Expect(told_.num_holders(page) == pool_.ref_count(page), "an event of a page is missing");
    }
    PageMap::Tables tables, host_tables;
    for (const auto& [id, live] : live_) {
      const Sequence& seq = *scheduler_.Find(id);
      if (!seq.pages.empty()) tables[id] = seq.pages;
      if (!seq.host_pages.empty()) host_tables[id] = seq.host_pages;
    }
    Expect(told_.tables() == tables, "the events tell other block tables");
    Expect(told_.host_tables() == host_tables, "the events tell other pages of the host");
  }

  Scenario s_;
  std::mt19937 rng_;
  BlockPool pool_, host_pages_;
  PageMap told_;  // state according to the events of the pool
  std::unique_ptr<KvReuse> reuse_;
  Scheduler scheduler_;
  std::vector<uint64_t> device_, host_;
  std::map<int64_t, Live> live_;
  std::map<int64_t, int32_t> resting_;              // the next token of each paused sequence
  std::map<int64_t, std::vector<int32_t>> tables_;  // according to the plans
  std::deque<InFlight> in_flight_;
  bool must_not_run_ahead_ = false;
  int num_idle_ = 0;
  int64_t next_id_ = 1;
  std::string error_;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr int kScenarios = 400;
#else
constexpr int kScenarios = 4000;
#endif
constexpr int kStepsEach = 250;

TEST(SchedulerFuzzTest, EveryReadFindsItsOwnTokensAndEveryPageIsAccountedFor) {
  std::mt19937 rng(2024);
  int64_t finished = 0, aborted = 0, withdrawn = 0, out_of_pages = 0, forced = 0, ahead = 0;
  int64_t hits = 0, forked = 0, copies = 0, rested = 0, gave_way = 0;
  Scheduler::Stats total;
  std::map<KvEvent::Kind, int64_t> told;
  using enum KvEvent::Kind;
  const auto kinds = {kAllocate, kShare,   kCopy,   kRelease, kFree,
                      kEvict,    kSwapOut, kSwapIn, kSwapFree};
  for (int i = 0; i < kScenarios; ++i) {
    const uint32_t seed = rng();
    std::mt19937 scenario_rng(seed);
    const Scenario s = RandomScenario(scenario_rng);
    World world(s, seed);
    ASSERT_EQ(world.Run(kStepsEach), "")
        << "scenario " << i << ": page size " << s.page_size << ", " << s.pages << " pages, "
        << s.host_pages << " host pages, reuse " << s.reuse << ", rows " << s.rows << ", ahead "
        << s.run_ahead << ", on full " << static_cast<int>(s.limits.on_full) << ", context "
        << s.limits.max_context << ", sequences " << s.limits.max_seqs << ", step tokens "
        << s.limits.max_step_tokens;
    finished += world.finished;
    aborted += world.aborted;
    withdrawn += world.withdrawn;
    out_of_pages += world.out_of_pages;
    forced += world.forced;
    ahead += world.ahead;
    hits += world.hits();
    forked += world.forked;
    copies += world.copies;
    rested += world.rested;
    gave_way += world.gave_way;
    for (const KvEvent::Kind kind : kinds) told[kind] += world.num_told(kind);
    total.preempted_recompute += world.stats().preempted_recompute;
    total.preempted_swap += world.stats().preempted_swap;
    total.pages_swapped_in += world.stats().pages_swapped_in;
    total.slides += world.stats().slides;
  }
  // The run must have reached the cases it is meant to test.
  EXPECT_GT(finished, 5 * kScenarios);
  EXPECT_GT(aborted, kScenarios);
  EXPECT_GT(withdrawn, kScenarios);
  EXPECT_GT(out_of_pages, kScenarios / 20);
  EXPECT_GT(ahead, 20 * kScenarios);
  EXPECT_GT(hits, 5 * kScenarios);
  EXPECT_GT(forked, 3 * kScenarios);
  EXPECT_GT(copies, kScenarios);
  EXPECT_GT(rested, 10 * kScenarios);
  EXPECT_GT(gave_way, kScenarios);
  EXPECT_GT(total.slides, kScenarios);
  EXPECT_GT(total.preempted_recompute + total.preempted_swap - forced, kScenarios);
  EXPECT_GT(total.preempted_swap, kScenarios / 2);
  EXPECT_GT(total.pages_swapped_in, kScenarios);
  for (const KvEvent::Kind kind : kinds) EXPECT_GT(told[kind], kScenarios) << KvEventName(kind);
}

}  // namespace
}  // namespace kuiper
