// One update of an answer, sent by the engine thread. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"

namespace kuiper {

// The result of one step for one choice, or the refusal of a whole ticket (job id).
struct AnswerEvent {
  int64_t ticket = 0;
  int choice = 0;  // counts the samples of the ticket's first request, then of the second
  std::optional<int32_t> token;
  std::string text;
  std::string reasoning;
  std::optional<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // only in the choice's first event
  std::optional<Completion> completion;        // only in the choice's last event
  Status refused;                              // not OK if the engine refused the requests
};

// Converts an event of `engine`, without ticket and choice. If the sample has ended, takes its
// completion out of the engine.
AnswerEvent TakeAnswerEvent(Engine& engine, TokenEvent event);
AnswerEvent RefusedEvent(int64_t ticket, const Status& why);

}  // namespace kuiper
