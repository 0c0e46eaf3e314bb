// What one step computes, as a value with all that a device needs and nothing else. The scheduler
// makes it, or a test by hand. ModelRunner runs it, in this process or, in its byte form, in
// another. It has no requests, text or owners of pages. It also has no prefix-cache keys, since
// only the scheduler looks up pages.
//
// T: number of tokens of all entries.
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

// How often an id was generated; 0 if it is only in the prompt.
struct TokenCount {
  int32_t token = 0;
  int32_t count = 0;
};

// Added to the logit of an id; -inf excludes the id.
struct TokenBias {
  int32_t token = 0;
  float bias = 0.f;
};

// Biases per sample: those of its request, and ids that may not end it yet.
inline constexpr int kMaxBiases = kMaxLogitBiases + 2 * kMaxStopTokens;

struct StepPlan {
  // Consecutive tokens of one sequence. Its ranges are parts of the plan's arrays; the ranges of
  // the next entry begin where these end. Rows count from the entry's first token.
  struct Entry {
    int64_t sequence = 0;        // never used for another sequence
    int32_t begin = 0;           // tokens of the sequence before this entry, all in the cache
    bool decodes = false;        // rows of decode steps, see ApplyArgs; such entries come first
    int32_t num_kept_pages = 0;  // leading pages that the page table keeps; `pages` follow
    Range tokens;
    Range pages;
    Range samples;
    Range logits_rows;
    Range hidden_rows;
    Range overrides;

    int num_tokens() const { return tokens.size(); }
    int end() const { return begin + tokens.size(); }
  };
  // A row whose logits a token is chosen from.
  struct Sample {
    int32_t row = 0;
    int32_t index = 0;  // index of the token among the generated tokens
    SamplingParams params = {};
    Range penalties = {};  // in `penalties`: distinct ids that penalties count
    Range biases = {};     // in `biases`: distinct ids
    Range allowed = {};    // in `allowed`: one bit per id; empty: all ids
  };
  // Rows whose embeddings come from a source instead of their ids.
  struct EmbeddingOverride {
    Range rows;
    int64_t source = 0;     // never used for another source
    int32_t first_row = 0;  // row of the source for the first of `rows`
  };
  // Copy-on-write: the first num_tokens tokens of one page (contiguous: cache row) to another.
  struct PageCopy {
    int32_t from = 0;
    int32_t to = 0;
    int32_t num_tokens = 0;
  };

  std::vector<int64_t> ended;    // sequences whose page tables are removed
  std::vector<PageCopy> copies;  // made in this order, before the entries are computed
  std::vector<Entry> entries;
  std::vector<TokenRef> tokens;      // [T]
  int32_t num_axes = 1;              // axes of positions; 1 for text
  std::vector<int32_t> positions;    // [num_axes, T]
  std::vector<int32_t> pages;        // new pages of the page tables
  std::vector<Sample> samples;       // row r of the step's logits is that of samples[r]
  std::vector<int32_t> logits_rows;  // logits rows after those; they choose no token
  std::vector<TokenCount> penalties;
  std::vector<TokenBias> biases;
  std::vector<uint32_t> allowed;
  // The residual stream of hidden_rows is wanted after each of hidden_layers, which ascend.
  std::vector<int32_t> hidden_layers;
  std::vector<int32_t> hidden_rows;
  std::vector<EmbeddingOverride> overrides;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  // True if every entry decodes one token and samples it, and none has patches. Such steps are
  // captured as graphs and replayed.
  bool decode_only() const;
  int num_decode_tokens() const;  // tokens of entries that decode; the others are prefill tokens

  // Empties the plan but keeps its memory.
  void Clear();
  // Adds an entry. Elements appended to the arrays until Close belong to it.
  Entry& Open(int64_t sequence, int32_t begin);
  void Close();
  // Returns the plan with only the entries for which `keep` is true, without page copies.
  StepPlan Only(const std::function<bool(const Entry&)>& keep) const;
};

// The sampled tokens of a step.
struct StepResult {
  // One per element of StepPlan::samples; absent if the logits are not finite.
  std::vector<std::optional<int32_t>> tokens;

  std::span<const std::optional<int32_t>> Of(const StepPlan::Entry& entry) const {
    return Part(tokens, entry.samples);
  }
};

// Replaces the token references of `plan` by the ids in `before`, the result of the previous step.
// References to rows whose logits are not finite stay.
void Resolve(const StepResult& before, StepPlan* plan);

// Limits of the plans that a runner can run.
struct PlanLimits {
  int max_tokens = 0;
  int max_seqs = 0;
  int max_samples = 0;        // per step
  int max_outputs = 0;        // logits rows
  int64_t max_penalties = 0;  // over all rows
  int64_t max_biases = 0;     // over all rows
  int num_axes = 1;
  int max_context = 0;
  int num_pages = 0;  // including the null page
  int vocab = 0;
  int layers = 0;
};

// kInvalidArgument unless the plan is consistent.
Status CheckPlan(const StepPlan& plan);
// Also checks that a runner with these limits can run it.
Status CheckPlan(const StepPlan& plan, const PlanLimits& limits);

// The byte form: little endian and the same on every machine. Parse accepts exactly what Serialize
// writes. An accepted plan is consistent, but may be too large for a runner.
std::string Serialize(const StepPlan& plan);
StatusOr<StepPlan> ParseStepPlan(std::span<const uint8_t> bytes);

}  // namespace kuiper
