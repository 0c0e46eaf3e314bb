// How a request is answered: an object that is told what the model makes of the request's sequences
// and decides how they go on, what forks and what ends. The step loop calls it and knows neither
// samples nor beams nor text; an answering object knows neither steps nor pages nor other requests.
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

// What all answers of an engine have in common.
struct AnswerRules {
  const Tokenizer* tokenizer = nullptr;  // null: there is no text
  std::vector<int32_t> eos;
  int vocab = 0;
  int vocab_limit = 0;  // ids below it may be generated
  int max_context = 0;
  int max_seqs = 1;  // that one request may have at a time
  int max_prompt_rows = 0;
  OnFull on_full = OnFull::kPreempt;

  // Whether the answer ends with its last token, `token`, of num_generated.
  bool EndsAnswer(const Request& request, int32_t token, size_t num_generated) const;
  // What is added to the logits of the answer's first min_new_tokens tokens, ascending by id.
  std::vector<TokenBias> EarlyBiases(const Request& request) const;
  // kInvalidArgument when that leaves no token.
  Status CheckEarlyBiases(const Request& request) const;
  // The limit that ends an answer of so many tokens; kNone if it may go on.
  FinishReason LimitReached(const Request& request, size_t num_generated) const;
};

// What all answers of an engine work on: the scheduler, which holds their sequences, and the events
// and completions that no caller has taken yet.
struct AnswerDesk {
  explicit AnswerDesk(Scheduler& s) : scheduler(s) {}

  Scheduler& scheduler;
  int64_t next_sequence = 1;
  std::vector<TokenEvent> events;
  std::map<std::pair<int64_t, int>, Completion> finished;  // by request and sample
  std::map<int64_t, PromptPatches> patches;                // of requests with pictures

  // The first of `count` ids in a row.
  int64_t NewSequences(int count) { return std::exchange(next_sequence, next_sequence + count); }
  // A sequence of the request's prompt alone.
  std::unique_ptr<Sequence> MakeSequence(const AnswerRules& rules, const Request& request,
                                         int64_t request_id, int64_t id) const;
  // The last event of an answer.
  void Finish(TokenEvent event, Completion completion);
};

class Answering {
 public:
  // Row i of the logits behind a sequence, from which sampled[i] was drawn: [vocab] f32, valid
  // until the next call.
  using Logits = std::function<std::span<const float>(int row)>;

  virtual ~Answering() = default;

  // A step that computes the sequence was launched.
  virtual void OnLaunch(int64_t sequence) = 0;
  // Whether the next step may be launched before Choose is called for this one: only if Choose will
  // return what was sampled and read no logits, and no limit ends the sequence then.
  virtual bool MayRunAhead(int64_t sequence) const = 0;
  // What the sequence's request wants of a step (Request::hidden_of): the residual stream [hidden]
  // behind a layer, layer by layer, once or again from the first one.
  virtual void OnHidden(int64_t /*sequence*/, int /*layer*/, std::span<const float>) {}
  // What the sequence's request wants of its prompt: the logits behind a position, ascending; a
  // position may come again.
  virtual void OnPromptLogits(const Sequence&, int /*position*/, std::span<const float>) {}
  // The tokens that the sequence goes on with, where the model sampled these: one per row that the
  // step's plan samples for the sequence. Choose returns no more of them, or none: then the
  // sequence rests, that is, it has no part in steps until Scheduler::Append.
  virtual std::vector<int32_t> Choose(const Sequence& sequence, std::span<const int32_t> sampled,
                                      const Logits& logits) = 0;
  // The sequence has these tokens, which Choose returned.
  virtual void OnTokens(int64_t sequence, std::span<const int32_t> tokens) = 0;
  // A sequence rests, and all tokens of the step are handed out.
  virtual void OnRest() {}
  // The sequence got no token and cannot go on. Ends at least the answer that it belongs to.
  virtual void End(int64_t sequence, FinishReason reason, const Status& error) = 0;
  // Ends an answer, or all, with FinishReason::kInterrupt; what has ended is ignored.
  virtual void Abort(std::optional<int> sample) = 0;

  // The sequence that becomes this answer, if there is one.
  virtual std::optional<int64_t> SequenceOf(int sample) const = 0;
  // All answers have ended.
  virtual bool done() const = 0;
};

}  // namespace kuiper
