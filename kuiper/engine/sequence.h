// One scheduled sequence: its tokens, its pages and its progress. Plain data that only the
// scheduler and its parts may write.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kuiper/engine/override_span.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/step_plan.h"
#include "kuiper/kv/reuse.h"

namespace kuiper {

// Occurrences of each distinct id in a sequence; only updated if penalties need them.
struct TokenCounts {
  std::vector<TokenCount> list;
  std::unordered_map<int32_t, int> index;  // id -> index in `list`
  int num_seen = 0;
};

struct Sequence {
  // kApart: neither waits nor runs, because it is new or was preempted while paused.
  enum class Place : uint8_t { kApart, kWaiting, kRunning };
  // Rank in the queue; the smallest comes first. due: arrival, minus
  // Scheduler::kArrivalsPerPriority per step of priority.
  struct Rank {
    int64_t effective_arrival = 0;
    int64_t arrival = 0;
    int64_t fork = 0;  // forks rank after their parent, in creation order
    auto operator<=>(const Rank&) const = default;
  };

  int64_t id = 0;
  Rank rank;
  Place place = Place::kApart;
  bool is_paused = false;       // paused: all is computed; Scheduler::Append gives the next token
  std::vector<int32_t> tokens;  // prompt, then known generated tokens; without tokens that slid out
  std::vector<int32_t> pages;   // covers [0, num_computed + scheduled); contiguous: one cache row
  int num_sent_pages = 0;       // leading pages that plans have already sent to the batch builder
  int num_pending = 0;          // tokens sampled by steps that are scheduled but not committed
  int sampled_row = 0;          // sample index of the last pending token in the last scheduled step
  int num_prompt = 0;           // prompt tokens in `tokens`
  int num_computed = 0;         // tokens whose K/V are in the cache after the scheduled steps
  // False while the last scheduled step or swap-in is not launched: the pages lack its K/V and must
  // not enter the prefix cache.
  bool is_launched = true;
  int max_pages = 0;  // pages this sequence may grow to
  // The first prompt position whose logits are wanted and not planned yet. Wanted positions end
  // before the prompt's last token, which is sampled anyway. kNone: no logits are wanted.
  static constexpr int kNone = INT32_MAX;
  int next_prompt_row = kNone;
  std::optional<int> hidden_of;  // generated token, from 0, whose hidden rows are wanted
  SamplingParams sampling;
  // Ascending by id. early_biases apply to the first min_new_tokens generated tokens.
  std::vector<TokenBias> biases, early_biases;
  int min_new_tokens = 0;
  KvReuse::Cursor cursor;  // how far its pages are in the prefix tree

  int64_t request = 0;  // id of its request; the scheduler only copies it
  int max_new_tokens = 0;
  int priority = 0;
  int num_reserved_seqs = 1;        // sequences reserved: itself and those that will fork from it
  int num_cached = 0;               // prompt tokens reused when the sequence was first admitted
  int num_dropped = 0;              // tokens that slid out of the context
  int num_dropped_generated = 0;    // generated tokens among them
  int num_preempted = 0;            // number of times it was preempted
  std::vector<int32_t> host_pages;  // swapped out: pages that hold the computed tokens
  TokenCounts counts;
  // Keys of the first tokens in the prefix cache, if ids do not identify them. Tokens past the end
  // of `keys` have their id as key.
  std::vector<uint64_t> keys;
  std::vector<OverrideSpan> overrides;  // spans of the prompt, ascending
  std::vector<int64_t> held_sources;    // sources of patches still to compute, while it runs

  int num_known() const { return static_cast<int>(tokens.size()); }
  int num_tokens() const { return num_known() + num_pending; }
  int num_left() const { return num_tokens() - num_computed; }
  // Tokens that one entry may compute: the remaining prompt, or what was generated after it.
  int num_computable() const {
    return num_computed < num_prompt ? num_prompt - num_computed : num_left();
  }
  // Biases of the row that the last pending token is chosen from.
  const std::vector<TokenBias>& last_biases() const {
    return num_generated() <= min_new_tokens ? early_biases : biases;
  }
  // Most leading tokens that may be reused. The last token's row must be computed for the next
  // logits, and so must prompt rows whose logits are wanted.
  int num_reusable() const { return std::min(num_tokens() - 1, next_prompt_row); }
  int num_generated() const { return num_tokens() - num_prompt + num_dropped_generated; }
};

}  // namespace kuiper
