// What the thread of the engine tells of one answer. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"

namespace kuiper {

// What became of one answer in a step, or of all that a ticket asked for.
struct AnswerEvent {
  int64_t ticket = 0;
  int choice = 0;  // answers to the ticket's first request, then to its second one
  std::optional<int32_t> token;
  std::string text;
  std::string reasoning;
  std::optional<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // with the answer's first event
  std::optional<Completion> completion;        // the answer has ended
  Status refused;                              // the engine does not take the ticket's requests
};

// Of an event of `engine`, from which the completion of an answer that has ended is taken; without
// ticket and choice.
AnswerEvent TakeAnswerEvent(Engine& engine, TokenEvent event);
AnswerEvent RefusedEvent(int64_t ticket, const Status& why);

}  // namespace kuiper
