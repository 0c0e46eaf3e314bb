// What a caller asks of the engine, and the results. Plain values; used by engine.h, the programs
// and the scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/io/image/vision_input.h"
#include "kuiper/io/thinking.h"
#include "kuiper/ops/sampling_params.h"

namespace kuiper {

// SamplingParams::seed of a request: a seed is drawn when the request is added; see
// Completion::seed.
inline constexpr uint64_t kRandomSeed = UINT64_MAX;
// Returns a seed of at most ten digits, short enough to type.
uint64_t DrawSeed();

inline constexpr int kMaxLogitBiases = 1024;  // per request
inline constexpr int kMaxStopTokens = 1024;

// Request::reasoning_budget: half of the tokens that the answer can have.
inline constexpr int kAutoReasoningBudget = -2;

struct Request {
  std::vector<int32_t> prompt;  // not empty
  // Images and videos in the order of their pads in the prompt. The prompt must have exactly one
  // pad per picture token: see ExpandPictures. Move the request into Add, since pixels are large.
  std::vector<VisionInput> images;
  SamplingParams sampling;
  // Added to the logits of these ids before penalties and filters; from -100 to 100, at most
  // kMaxLogitBiases ids. Reported logits and log probabilities do not include it.
  std::map<int32_t, float> logit_bias = {};
  int max_new_tokens = 256;  // at most this many; 0: only compute the prompt
  // The first min_new_tokens tokens exclude end-of-sequence tokens and stop_token_ids; stop strings
  // within them do not count. At most max_new_tokens.
  int min_new_tokens = 0;
  int priority = 0;  // from -100 to 100; higher is more urgent, see engine/scheduler.h
  // Number of answers to the prompt, which is computed once. Sample i equals, bit for bit, the
  // answer to a request with num_samples 1 and seed + i. For beam search: the i-th best answer.
  int num_samples = 1;
  // If above 1: beam search with this many beams, as defined in engine/beam_scorer.h, for at most
  // as many answers. Penalties and biases act on log probabilities; a stop string ends a beam.
  // Temperature and reasoning budget are not allowed; neither logits nor log probabilities are
  // kept.
  int beam_width = 1;
  float length_penalty = 1.f;  // beam search: above 0 favours long answers, below 0 short ones
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids =
      {};  // each of them ends the answer, as end-of-sequence tokens do; at most kMaxStopTokens
  // Keys and values are reused only between requests with the same salt.
  std::string cache_salt = {};
  std::vector<std::string> stop;    // the answer ends before the first of these
  bool split_thinking = false;      // separate the reasoning between the tags from the answer
  bool starts_thinking = false;     // the prompt ends inside an open tag
  ThinkingTags thinking_tags = {};  // <think>, </think>
  int reasoning_budget =
      -1;  // tokens between the tags before the end of it is forced; -1 = no limit
  bool keep_logits = false;    // Completion::logits has the row of each token
  bool digest_logits = false;  // Completion::logit_digests has a number per row
  // Index from 0 of the generated token for which Completion::hidden is kept. Requires a single
  // answer without beam search.
  std::optional<int> hidden_of;
  int num_logprobs = 0;  // alternatives per token in Completion::logprobs; 0 = none
  // Alternatives per token in Completion::prompt_logprobs; absent: none are computed. Needs
  // EngineConfig::prompt_rows; not with beam search.
  std::optional<int> num_prompt_logprobs = {};

  // True if logits are needed on the host.
  bool reads_logits() const { return keep_logits || digest_logits || num_logprobs > 0; }
};

// Request::reasoning_budget with kAutoReasoningBudget resolved for a context of this many tokens.
int ReasoningBudgetOf(const Request& request, int max_context);

// kInvalidArgument for parameters that kernels cannot sample with.
Status CheckSampling(const SamplingParams& params);
// kInvalidArgument or kInput for requests that no engine can run; `vocab` bounds the ids.
Status CheckRequest(const Request& request, int vocab);
// The error of a prompt that is too long for the context.
Status ContextExceeded(int num_tokens, int max_context);
// ContextExceeded, unless the prompt leaves room for a token.
Status CheckPromptFits(int num_tokens, int max_context);

enum class FinishReason {
  kNone,
  kStop,        // end-of-sequence token
  kLength,      // max_new_tokens
  kStopString,  // one of Request::stop
  kContext,     // the context or the KV cache is full; what was generated is valid
  kInterrupt,   // Engine::Abort, or the callback of Generate returned false
  kError,       // see Completion::error
};

// "stop", "length", "stop_string", "context", "interrupt", "error"; "" for kNone.
const char* FinishReasonName(FinishReason reason);

struct TokenLogprobs {
  float chosen = 0.f;  // log softmax of the model's logits at the chosen token
  int rank = 0;        // from 1: number of tokens at least as likely as the chosen one
  std::vector<std::pair<int32_t, float>> top;  // most likely first
};

// Everything known about a finished request.
struct Completion {
  std::vector<int32_t> tokens;   // generated, including the end-of-sequence token
  std::string text;              // the answer without control tokens, cut before a stop string
  std::string stop_string;       // the one of Request::stop that ended it; "" = none
  std::string reasoning;         // text of the <think> block
  bool has_reasoning = false;    // there was a <think> block, even if empty
  bool inside_thinking = false;  // generation ended inside the block
  FinishReason finish = FinishReason::kNone;
  Status error;  // kError: the cause; kContext: set if the KV cache was full

  int prompt_tokens = 0;
  int cached_tokens = 0;  // prompt tokens whose keys and values were reused
  int reasoning_tokens = 0;
  int dropped_tokens = 0;  // OnFull::kSlide: tokens that slid out of the context
  double queue_ms = 0;     // from Add to the first scheduled step
  double prefill_ms = 0;   // from the first scheduled step to the first token
  double decode_ms = 0;    // from the first token to the last
  // Pages that the sequence held at its end, in order of position. For beam search, pages of all
  // beams, ascending.
  std::vector<int32_t> pages;

  uint64_t seed = 0;          // seed that the tokens were drawn with
  double score = 0;           // beam search: sum of log probabilities / length^length_penalty
  std::vector<float> logits;  // [tokens, vocab] if kept
  std::vector<uint64_t> logit_digests;  // [tokens] if wanted: digests of the rows' bits
  // [layers, hidden] if kept: the residual stream after each layer, of the row that the token
  // Request::hidden_of was chosen from. Empty if the answer ended before that token.
  std::vector<float> hidden;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // for the prompt's tokens from the second on
};

// One token of one request. A beam search sends the tokens of all its answers in its last step, one
// answer after the other. Text is complete UTF-8. It may be empty (half a character, or text that
// may become part of a stop string) and may belong to earlier tokens.
struct TokenEvent {
  int64_t request = 0;
  int sample = 0;
  std::optional<int32_t> token;  // absent: the request ended without one (aborted, failed)
  std::string text;
  std::string reasoning;
  std::optional<TokenLogprobs> logprobs = {};  // for `token`, if the request wants them
  // Only in the first event of a sample, if the request wants them: as in Completion.
  std::vector<TokenLogprobs> prompt_logprobs = {};
  FinishReason finish = FinishReason::kNone;
};

// Called within Engine::Step between the layers of the vision encoder, for each request that waits
// for the picture. `done` is the finished share; the last call has 1. Returning false aborts the
// request; the encoder stops when no request waits for the picture. Must not call the engine.
using OnEncoding = std::function<bool(int64_t request, double done)>;

}  // namespace kuiper
