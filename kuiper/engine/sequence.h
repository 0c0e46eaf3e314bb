// One request while it is scheduled: its tokens, its pages and how far it got. Plain data; the
// scheduler and its parts write it, who else looks at one must not.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kuiper/engine/patch_span.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/step_plan.h"
#include "kuiper/kv/reuse.h"

namespace kuiper {

// How often each distinct id occurs in a sequence; kept up to date only when penalties need it.
struct TokenCounts {
  std::vector<TokenCount> list;
  std::unordered_map<int32_t, int> index;  // id -> place in the list
  int num_seen = 0;
};

struct Sequence {
  // kApart: neither waits nor runs, as it is new, or was put back while it rests.
  enum class Place : uint8_t { kApart, kWaiting, kRunning };
  // Place in line: less goes first.
  struct Rank {
    int64_t due = 0;
    int64_t arrival = 0;
    int64_t fork = 0;  // forks stand behind the sequence they come from, in their order
    auto operator<=>(const Rank&) const = default;
  };

  int64_t id = 0;
  Rank rank;
  Place place = Place::kApart;
  bool rests = false;           // all is computed, and Scheduler::Append will tell the next token
  std::vector<int32_t> tokens;  // prompt, then generated, as far as known; without what slid out
  std::vector<int32_t> pages;   // covers [0, num_computed + scheduled); contiguous: one cache row
  int num_told_pages = 0;       // the first ones, which plans have told already
  int num_pending = 0;          // sampled by steps that were scheduled and not committed
  int sampled_row = 0;   // of the last pending token, among the samples of the last scheduled step
  int num_prompt = 0;    // of the tokens
  int num_computed = 0;  // tokens whose K/V are in the cache once the scheduled steps ran
  bool is_launched = true;  // else the last of them was not, and the pages lack what it would do
  int max_pages = 0;        // pages this sequence may grow to
  // The first position of the prompt whose logits somebody wants and no plan has told; they end
  // before the prompt's last one, which is sampled. kNone: nobody wants any.
  static constexpr int kNone = INT32_MAX;
  int next_prompt_row = kNone;
  std::optional<int> hidden_of;  // a generated token, from 0: somebody wants its hidden rows
  SamplingParams sampling;
  // Ascending by id; early_biases are those of the first min_new_tokens tokens that are generated.
  std::vector<TokenBias> biases, early_biases;
  int min_new_tokens = 0;
  KvReuse::Cursor cursor;  // how far its pages are in the prefix tree

  int64_t request = 0;  // whose it is; the scheduler does not look at it
  int max_new_tokens = 0;
  int priority = 0;
  int num_seats = 1;                // its own, and those of sequences that will fork from it
  int num_cached = 0;               // prompt tokens reused when the sequence was first admitted
  int num_dropped = 0;              // tokens that slid out of the context
  int num_dropped_generated = 0;    // those of them that were generated
  int num_preempted = 0;            // how often it had to give up its pages
  std::vector<int32_t> host_pages;  // swapped out: where the computed tokens are instead
  TokenCounts counts;
  // Keys of the first tokens in the prefix cache, where an id does not say what stands there. A
  // token without one has its id as key.
  std::vector<uint64_t> keys;
  std::vector<PatchSpan> patches;     // of the prompt, ascending
  std::vector<int64_t> held_sources;  // of patches that are not computed, while the sequence runs

  int num_known() const { return static_cast<int>(tokens.size()); }
  int num_tokens() const { return num_known() + num_pending; }
  int num_left() const { return num_tokens() - num_computed; }
  // Tokens that one entry may compute: the rest of the prompt, or what was generated behind it.
  int num_computable() const {
    return num_computed < num_prompt ? num_prompt - num_computed : num_left();
  }
  // Of the row that the last pending token is chosen from.
  const std::vector<TokenBias>& last_biases() const {
    return num_generated() <= min_new_tokens ? early_biases : biases;
  }
  // Tokens whose rows need not be computed: the last one yields the next logits, and those of a
  // prompt may be wanted.
  int num_reusable() const { return std::min(num_tokens() - 1, next_prompt_row); }
  int num_generated() const { return num_tokens() - num_prompt + num_dropped_generated; }
};

}  // namespace kuiper
