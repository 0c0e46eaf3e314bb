// One request while it is scheduled: its tokens, its pages and how far it got. Plain data, owned by
// the Scheduler.
#pragma once

#include <compare>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kuiper/engine/request.h"
#include "kuiper/kv/prefix_cache.h"

namespace kuiper {

// How often each distinct id occurs in a sequence; kept up to date only when penalties need it.
struct TokenCounts {
  std::vector<int32_t> tokens;
  std::vector<int32_t> counts;  // occurrences among the generated tokens; 0: only in the prompt
  std::unordered_map<int32_t, int> index;
  int num_seen = 0;
};

// Steps the host may have launched without having read their tokens. Host memory that uploads and
// downloads of a step use exists once per step in flight.
inline constexpr int kMaxStepsInFlight = 2;

// Stands for a token that a step samples but whose id the host does not know yet.
inline constexpr int32_t kPendingToken = -1;

// What Scheduler::Commit may get instead of a sampled token.
inline constexpr int32_t kFailedToken = -1;     // the logits are not finite
inline constexpr int32_t kUndecidedToken = -2;  // Scheduler::Append will tell

struct Sequence {
  int64_t id = 0;
  int64_t request = 0;  // whose it is; the scheduler does not look at it
  // Prompt, then generated; what slid out of the context is gone, the last num_pending are
  // kPendingToken.
  std::vector<int32_t> tokens;
  int num_pending = 0;         // sampled by steps that were scheduled and not committed
  int sampled_row = -1;        // of its last token among the tokens of the last launched step
  int num_prompt = 0;          // of the tokens
  int num_computed = 0;        // tokens whose K/V are in the cache once the scheduled steps ran
  int num_cached = 0;          // prompt tokens reused when the sequence was first admitted
  std::vector<int32_t> pages;  // covers [0, num_computed + scheduled); contiguous: one cache row
  std::vector<int32_t> host_pages;  // swapped out: where the computed tokens are instead
  PrefixCache::Cursor cursor;       // how far its pages are in the prefix tree
  int max_pages = 0;                // pages this sequence may grow to
  int max_new_tokens = 0;
  int priority = 0;
  int num_dropped = 0;            // tokens that slid out of the context
  int num_dropped_generated = 0;  // those of them that were generated
  int num_preempted = 0;          // how often
  // Place in line: less goes first.
  struct Rank {
    int64_t due = 0;
    int64_t arrival = 0;
    int64_t fork = 0;  // forks stand behind the sequence they come from, in their order
    auto operator<=>(const Rank&) const = default;
  };
  Rank rank;
  SamplingParams sampling;
  TokenCounts counts;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_left() const { return num_tokens() - num_computed; }
  int num_generated() const { return num_tokens() - num_prompt + num_dropped_generated; }
  int num_known() const { return num_tokens() - num_pending; }
};

// What one step computes. Entries are in the order of the batch.
struct StepPlan {
  struct Entry {
    Sequence* seq = nullptr;  // null: it ended after the step was scheduled
    int begin = 0;            // computes tokens [begin, end()) of seq
    int num_tokens = 0;
    bool samples = false;  // reaches the end of the tokens: yields a new one
    bool decodes = false;  // of generated tokens, also when computed again; such entries come first
    bool all_rows = false;  // logits of every row are wanted, none is sampled

    int end() const { return begin + num_tokens; }
  };
  // Copy-on-write: the first num_tokens tokens of one page (contiguous: cache row) to another.
  struct PageCopy {
    int32_t from = 0;
    int32_t to = 0;
    int num_tokens = 0;
  };
  std::vector<Entry> entries;
  std::vector<PageCopy> copies;  // done in this order, before the entries are computed
  int num_tokens = 0;
  bool decode_only = false;  // every entry decodes one token and samples

  // Removes the entries of sequences that ended.
  void RemoveEnded() {
    std::erase_if(entries, [](const Entry& entry) { return entry.seq == nullptr; });
    num_tokens = 0;
    for (const Entry& entry : entries) num_tokens += entry.num_tokens;
  }
};

}  // namespace kuiper
