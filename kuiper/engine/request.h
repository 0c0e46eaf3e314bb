// What a caller asks of the engine and what comes back. Plain values; used by engine.h, the
// programs and the scheduler.
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

// SamplingParams::seed of a request: one is drawn when the request is added; Completion::seed has
// it.
inline constexpr uint64_t kRandomSeed = UINT64_MAX;
// Of at most ten digits, so that people can type it.
uint64_t DrawSeed();

inline constexpr int kMaxLogitBiases = 1024;  // of a request
inline constexpr int kMaxStopTokens = 1024;

// Request::reasoning_budget: half of the tokens that the answer may have.
inline constexpr int kAutoReasoningBudget = -2;

struct Request {
  std::vector<int32_t> prompt;  // not empty
  // Images and videos in the order in which their pads stand in the prompt, which are exactly as
  // many as they have tokens: see ExpandPictures. Move the request into Add: pixels are large.
  std::vector<VisionInput> images;
  SamplingParams sampling;
  // Added to the logits of these ids before penalties and filters; from -100 to 100, and at most
  // kMaxLogitBiases ids. Logits and log probabilities are told without it.
  std::map<int32_t, float> logit_bias = {};
  int max_new_tokens = 256;  // exactly: never one more; 0: the prompt is computed
  // So many tokens are no end-of-sequence token and none of stop_token_ids, and a stop string that
  // they hold does not count. At most max_new_tokens.
  int min_new_tokens = 0;
  int priority = 0;  // from -100 to 100; more is more urgent, see engine/scheduler.h
  // Answers to the prompt, which is computed once. Sample i is what a request for one answer with
  // seed + i gives, to the bit; of a beam search, the best answer that is none of those before.
  int num_samples = 1;
  // Above 1: beam search with so many beams, as engine/beam_scorer.h defines it, for at most as
  // many answers. Penalties and biases act on log probabilities, a stop string ends a beam. There
  // is no temperature and no reasoning budget; neither logits nor log probabilities are kept.
  int beam_width = 1;
  float length_penalty = 1.f;  // of beam search: above 0 favours long answers, below 0 short ones
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids =
      {};  // each of them ends the answer, as end-of-sequence tokens do; at most kMaxStopTokens
  // Keys and values are reused between requests of the same salt only.
  std::string cache_salt = {};
  std::vector<std::string> stop;    // the answer ends before the first of these strings
  bool split_thinking = false;      // tell the reasoning between the tags apart from the answer
  bool starts_thinking = false;     // the prompt ends inside an open tag
  ThinkingTags thinking_tags = {};  // <think>, </think>
  int reasoning_budget =
      -1;  // tokens between the tags before the end of it is forced; -1 = no limit
  bool keep_logits = false;    // Completion::logits holds the row each token was chosen from
  bool digest_logits = false;  // Completion::logit_digests has a number for each of those rows
  // The generated token, from 0, for which Completion::hidden is kept. Only of one answer, and not
  // of a beam search.
  std::optional<int> hidden_of;
  int num_logprobs = 0;  // alternatives per token in Completion::logprobs; 0 = none
  // Alternatives per token in Completion::prompt_logprobs; absent: there is none of it. Needs
  // EngineConfig::prompt_rows; not of a beam search.
  std::optional<int> num_prompt_logprobs = {};

  // Whether logits are wanted on the host.
  bool reads_logits() const { return keep_logits || digest_logits || num_logprobs > 0; }
};

// Request::reasoning_budget in a context of so many tokens: never kAutoReasoningBudget.
int ReasoningBudgetOf(const Request& request, int max_context);

// kInvalidArgument for what no kernel can sample with.
Status CheckSampling(const SamplingParams& params);
// kInvalidArgument or kInput for what no engine can run; `vocab` bounds the ids.
Status CheckRequest(const Request& request, int vocab);
// The error of a prompt that is too long for the context.
Status ContextExceeded(int num_tokens, int max_context);
// That error, unless the prompt leaves room for a token.
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
  int rank = 0;        // of the chosen token, from 1: so many tokens are at least as likely
  std::vector<std::pair<int32_t, float>> top;  // most likely first
};

// Everything known about a finished request.
struct Completion {
  std::vector<int32_t> tokens;   // generated, including the end-of-sequence token
  std::string text;              // the answer: no control tokens, cut before a stop string
  std::string stop_string;       // which one that is, of Request::stop; "" = none
  std::string reasoning;         // text of the <think> block
  bool has_reasoning = false;    // there was a <think> block, even if empty
  bool inside_thinking = false;  // generation ended inside the block
  FinishReason finish = FinishReason::kNone;
  Status error;  // kError: what happened; kContext by a full KV cache: says so

  int prompt_tokens = 0;
  int cached_tokens = 0;  // prompt tokens whose keys and values were reused
  int reasoning_tokens = 0;
  int dropped_tokens = 0;  // OnFull::kSlide: tokens that slid out of the context
  double queue_ms = 0;     // from Add to the first scheduled step
  double prefill_ms = 0;   // from the first scheduled step to the first token
  double decode_ms = 0;    // from the first token to the last
  // Pages that the sequence held at its end, in order of position; or all beams together,
  // ascending.
  std::vector<int32_t> pages;

  uint64_t seed = 0;          // with which the tokens were drawn
  double score = 0;           // of a beam search: sum of log probabilities / length^length_penalty
  std::vector<float> logits;  // [tokens, vocab] if kept
  std::vector<uint64_t> logit_digests;  // [tokens] if wanted: of the bits of the row
  std::vector<float> hidden;  // [layers, hidden] if kept: the residual stream after each layer, of
                              // the row that the token Request::hidden_of was chosen from; empty if
                              // the answer ended before that token
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // of the prompt's tokens from the second one on
};

// One token of one request. A beam search gives the tokens of all its answers in its last step,
// answer after answer. Text is complete UTF-8; it may be empty (half a character, or text that
// may turn out to be part of a stop string) and may belong to earlier tokens.
struct TokenEvent {
  int64_t request = 0;
  int sample = 0;
  std::optional<int32_t> token;  // absent: the request ended without a new one (aborted, failed)
  std::string text;
  std::string reasoning;
  std::optional<TokenLogprobs> logprobs = {};  // of the token, if the request wants them
  // In the first event of a sample, if the request wants them: as in Completion.
  std::vector<TokenLogprobs> prompt_logprobs = {};
  FinishReason finish = FinishReason::kNone;
};

// Called within Engine::Step between the layers of the vision tower, for each request that waits
// for the picture, with the share that is done, at last with 1. False aborts the request; the tower
// stops when nobody waits any more. It must not call the engine.
using OnEncoding = std::function<bool(int64_t request, double done)>;

}  // namespace kuiper
