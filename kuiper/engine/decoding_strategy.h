// Decides how a request is answered. For each request an Answering object receives the model's
// results for the request's sequences. It chooses their next tokens, forks them and ends them. The
// step loop calls it and is independent of samples, beams and text. An Answering object is
// independent of steps, pages and other requests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/engine/picture_prompt.h"
#include "kuiper/engine/policy.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

// Limits and end-of-sequence tokens that all requests of an engine share.
struct AnswerRules {
  const Tokenizer* tokenizer = nullptr;  // null: answers have no text
  std::vector<int32_t> eos;
  int vocab = 0;
  int vocab_limit = 0;  // only ids below it may be generated
  int max_context = 0;
  int max_seqs = 1;  // most sequences of one request at a time
  int max_prompt_rows = 0;
  OnFull on_full = OnFull::kPreempt;

  // True if `token`, the last of num_generated tokens, ends the answer.
  bool EndsAnswer(const Request& request, int32_t token, size_t num_generated) const;
  // Biases on the logits of the answer's first min_new_tokens tokens, ascending by id.
  std::vector<TokenBias> EarlyBiases(const Request& request) const;
  // kInvalidArgument if the early biases leave no token to choose, or are too many.
  Status CheckEarlyBiases(const Request& request) const;
  // The limit that ends an answer after num_generated tokens; kNone if it may continue.
  FinishReason LimitReached(const Request& request, size_t num_generated) const;
};

// State that all answers of an engine share: the scheduler, which holds their sequences, and the
// events and completions that no caller has taken yet.
struct AnswerContext {
  explicit AnswerContext(Scheduler& s) : scheduler(s) {}

  Scheduler& scheduler;
  int64_t next_sequence = 1;
  std::vector<TokenEvent> events;
  std::map<std::pair<int64_t, int>, Completion> finished;  // by request and sample
  std::map<int64_t, PromptPictures> overrides;             // for requests with pictures

  // Reserves `count` consecutive ids and returns the first.
  int64_t NewSequences(int count) { return std::exchange(next_sequence, next_sequence + count); }
  // Makes a sequence that holds only the request's prompt.
  std::unique_ptr<Sequence> MakeSequence(const AnswerRules& rules, const Request& request,
                                         int64_t request_id, int64_t id) const;
  // Records the last event of an answer and its completion.
  void Finish(TokenEvent event, Completion completion);
};

class DecodingStrategy {
 public:
  // Returns the logits row [vocab] f32 that sampled[row] was drawn from; valid until the next call.
  using Logits = std::function<std::span<const float>(int row)>;

  virtual ~DecodingStrategy() = default;

  // Called when a step that computes the sequence was launched.
  virtual void OnLaunch(int64_t sequence) = 0;
  // True if the next step may be launched before Choose is called for this one. That requires that
  // Choose will return the sampled tokens and read no logits, and that no limit ends the sequence.
  virtual bool MayRunAhead(int64_t sequence) const = 0;
  // Receives the hidden rows the request asked for (Request::hidden_of): the residual stream
  // [hidden] after one layer. Called in the order of the layers; if the step is repeated, again
  // from layer 0.
  virtual void OnHidden(int64_t /*sequence*/, int /*layer*/, std::span<const float>) {}
  // Receives the logits the request asked for of its prompt, in ascending order of position. The
  // same position may be delivered again.
  virtual void OnPromptLogits(const Sequence&, int /*position*/, std::span<const float>) {}
  // Returns the tokens to append to the sequence. `sampled` has one token per row that the step's
  // plan samples for it; Choose returns at most as many. If it returns none, the sequence is
  // paused: it is not scheduled until Scheduler::Append.
  virtual std::vector<int32_t> Choose(const Sequence& sequence, std::span<const int32_t> sampled,
                                      const Logits& logits) = 0;
  // Called when the tokens that Choose returned have been appended to the sequence.
  virtual void OnTokens(int64_t sequence, std::span<const int32_t> tokens) = 0;
  // Called when a sequence is paused, after all tokens of the step are delivered.
  virtual void OnPaused() {}
  // Called when the sequence got no token and cannot continue. Ends at least its answer.
  virtual void End(int64_t sequence, FinishReason reason, const Status& error) = 0;
  // Ends one answer, or all, with FinishReason::kInterrupt; answers that have ended are ignored.
  virtual void Abort(std::optional<int> sample) = 0;

  // Returns the sequence that becomes this answer, if any.
  virtual std::optional<int64_t> SequenceOf(int sample) const = 0;
  // True if all answers have ended.
  virtual bool done() const = 0;
};

}  // namespace kuiper
