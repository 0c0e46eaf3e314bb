// What one step computes, as a value: everything a device needs to know and nothing else. The
// scheduler makes it, a test may make it by hand, and ModelRunner carries it out, in this process
// or, by its byte form, in another. It knows no requests, no text and no owner of a page. Keys of
// the prefix cache are not in it either: the scheduler looks pages up, no device does.
//
// T tokens of all entries.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"
#include "kuiper/ops/token_ref.h"

namespace kuiper {

inline constexpr int kMaxAxes = 4;

// Elements [begin, end) of an array.
struct Range {
  int32_t begin = 0;
  int32_t end = 0;

  int size() const { return end - begin; }
  bool empty() const { return begin == end; }
};

template <typename T>
std::span<const T> Part(const std::vector<T>& array, Range range) {
  return std::span<const T>(array).subspan(range.begin, range.size());
}

// How often an id was generated; 0: it is only in the prompt.
struct TokenCount {
  int32_t token = 0;
  int32_t count = 0;
};

// Is added to the logit of an id; -inf rules the id out.
struct TokenBias {
  int32_t token = 0;
  float bias = 0.f;
};

// Of one sample: those of its request and the ids that may not end it yet.
inline constexpr int kMaxBiases = kMaxLogitBiases + 2 * kMaxStopTokens;

struct StepPlan {
  // Consecutive tokens of one sequence. Its ranges are parts of the plan's arrays; those of the
  // next entry begin where these end. Rows are counted from the entry's first token.
  struct Entry {
    int64_t sequence = 0;        // a number that no other sequence ever has
    int32_t begin = 0;           // how many tokens of the sequence come before, all in the cache
    bool decodes = false;        // rows of decode steps, see ApplyArgs; such entries come first
    int32_t num_kept_pages = 0;  // the page table keeps its first pages, and goes on with `pages`
    Range tokens;
    Range pages;
    Range samples;
    Range logits_rows;
    Range hidden_rows;
    Range patches;

    int num_tokens() const { return tokens.size(); }
    int end() const { return begin + tokens.size(); }
  };
  // A row whose logits choose a token.
  struct Sample {
    int32_t row = 0;
    int32_t index = 0;  // of the token among those generated
    SamplingParams params = {};
    Range penalties = {};  // of `penalties`: the distinct ids that repetition is counted over
    Range biases = {};     // of `biases`: of distinct ids
    Range allowed = {};    // of `allowed`: a bit per id; empty: all ids
  };
  // Rows whose embedding is not that of their id, but comes from somewhere else.
  struct Patch {
    Range rows;
    int64_t source = 0;     // a number that nothing else ever has
    int32_t first_row = 0;  // of the source
  };
  // Copy-on-write: the first num_tokens tokens of one page (contiguous: cache row) to another.
  struct PageCopy {
    int32_t from = 0;
    int32_t to = 0;
    int32_t num_tokens = 0;
  };

  std::vector<int64_t> ended;    // sequences whose page tables are forgotten
  std::vector<PageCopy> copies;  // done in this order, before the entries are computed
  std::vector<Entry> entries;
  std::vector<TokenRef> tokens;      // [T]
  int32_t num_axes = 1;              // of positions: 1 for text
  std::vector<int32_t> positions;    // [num_axes, T]
  std::vector<int32_t> pages;        // what is new in the page tables
  std::vector<Sample> samples;       // row r of the step's logits is that of samples[r] ...
  std::vector<int32_t> logits_rows;  // ... and then come these rows, which choose no token
  std::vector<TokenCount> penalties;
  std::vector<TokenBias> biases;
  std::vector<uint32_t> allowed;
  std::vector<int32_t> hidden_layers;  // behind these layers, in ascending order, ...
  std::vector<int32_t> hidden_rows;    // ... somebody wants the residual stream of these rows
  std::vector<Patch> patches;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  // Every entry decodes one token and samples, and none is patched: such steps are recorded and
  // replayed.
  bool decode_only() const;
  int num_decode_tokens() const;  // of entries that decode; the others are of prompts

  // Makes it a plan of nothing that keeps its memory.
  void Clear();
  // Adds an entry. What is appended to the arrays until Close belongs to it.
  Entry& Open(int64_t sequence, int32_t begin);
  void Close();
  // The plan with those entries only for which `keep` is true, and without copies of pages.
  StepPlan Only(const std::function<bool(const Entry&)>& keep) const;
};

// What a step sampled.
struct StepResult {
  // Of each of StepPlan::samples: absent where the logits are not finite.
  std::vector<std::optional<int32_t>> tokens;

  std::span<const std::optional<int32_t>> Of(const StepPlan::Entry& entry) const {
    return Part(tokens, entry.samples);
  }
};

// Writes the ids that `before`, the result of the step launched before, has for the tokens that
// `plan` refers to by their rows. Those that are not finite stay.
void Resolve(const StepResult& before, StepPlan* plan);

// What a runner can carry out.
struct PlanLimits {
  int max_tokens = 0;
  int max_seqs = 0;
  int max_samples = 0;        // in one step
  int max_outputs = 0;        // rows of logits
  int64_t max_penalties = 0;  // of all rows
  int64_t max_biases = 0;     // of all rows
  int num_axes = 1;
  int max_context = 0;
  int num_pages = 0;  // with the null page
  int vocab = 0;
  int layers = 0;
};

// Whether the plan agrees with itself; kInvalidArgument if not.
Status CheckPlan(const StepPlan& plan);
// And whether a runner with these limits can carry it out.
Status CheckPlan(const StepPlan& plan, const PlanLimits& limits);

// The byte form, little endian, the same on every machine. Parse accepts what Serialize writes and
// nothing else; what it accepts agrees with itself, but may be too large for a runner.
std::string Serialize(const StepPlan& plan);
StatusOr<StepPlan> ParseStepPlan(std::span<const uint8_t> bytes);

}  // namespace kuiper
