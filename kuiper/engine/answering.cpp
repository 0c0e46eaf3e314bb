#include "kuiper/engine/answering.h"

#include <algorithm>

namespace kuiper {

bool AnswerRules::EndsAnswer(const Request& request, int32_t token) const {
  return !request.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
}

FinishReason AnswerRules::LimitReached(const Request& request, size_t num_generated) const {
  if (num_generated >= static_cast<size_t>(request.max_new_tokens)) return FinishReason::kLength;
  const bool is_full = request.prompt.size() + num_generated >= static_cast<size_t>(max_context);
  return is_full && on_full != OnFull::kSlide ? FinishReason::kContext : FinishReason::kNone;
}

void AnswerDesk::Finish(TokenEvent event, Completion completion) {
  finished.emplace(std::pair(event.request, event.sample), std::move(completion));
  events.push_back(std::move(event));
}

std::unique_ptr<Sequence> AnswerDesk::MakeSequence(const Request& request, int64_t request_id,
                                                   int64_t id) const {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  seq->request = request_id;
  seq->tokens = request.prompt;
  seq->num_prompt = static_cast<int>(request.prompt.size());
  seq->max_new_tokens = request.max_new_tokens;
  seq->priority = request.priority;
  seq->sampling = request.sampling;
  seq->hidden_of = request.hidden_of;
  if (const auto it = patches.find(request_id); it != patches.end()) {
    seq->patches = it->second.spans;
    seq->keys = it->second.keys;
  }
  return seq;
}

}  // namespace kuiper
