#include "kuiper/server/answer_event.h"

#include <utility>

namespace kuiper {

AnswerEvent TakeAnswerEvent(Engine& engine, TokenEvent event) {
  AnswerEvent told;
  if (event.finish != FinishReason::kNone) {
    told.completion = engine.Take(event.request, event.sample).value();
  }
  told.token = event.token;
  told.text = std::move(event.text);
  told.reasoning = std::move(event.reasoning);
  told.logprobs = std::move(event.logprobs);
  told.prompt_logprobs = std::move(event.prompt_logprobs);
  return told;
}

AnswerEvent RefusedEvent(int64_t ticket, const Status& why) {
  AnswerEvent event;
  event.ticket = ticket;
  event.refused = why;
  return event;
}

}  // namespace kuiper
