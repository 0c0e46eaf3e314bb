#include "kuiper/server/answer_event.h"

#include <utility>

namespace kuiper {

AnswerEvent TakeAnswerEvent(Engine& engine, TokenEvent event) {
  AnswerEvent answer_event;
  if (event.finish != FinishReason::kNone) {
    answer_event.completion = engine.Take(event.request, event.sample).value();
  }
  answer_event.token = event.token;
  answer_event.text = std::move(event.text);
  answer_event.reasoning = std::move(event.reasoning);
  answer_event.logprobs = std::move(event.logprobs);
  answer_event.prompt_logprobs = std::move(event.prompt_logprobs);
  return answer_event;
}

AnswerEvent RefusedEvent(int64_t ticket, const Status& why) {
  AnswerEvent event;
  event.ticket = ticket;
  event.refused = why;
  return event;
}

}  // namespace kuiper
