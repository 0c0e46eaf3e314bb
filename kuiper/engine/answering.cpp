#include "kuiper/engine/answering.h"

#include <algorithm>

#include "kuiper/base/hash.h"

namespace kuiper {
namespace {

// No token's id has this bit.
constexpr uint64_t kSaltedBit = uint64_t{1} << 63;

// The key of what requests of another salt must not find.
uint64_t SaltedKey(uint64_t key, const std::string& salt) {
  return Fnv1a64OfText(salt, Fnv1a64OfText(std::to_string(key))) | kSaltedBit;
}

}  // namespace

bool AnswerRules::EndsAnswer(const Request& request, int32_t token) const {
  const auto has = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return (!request.ignore_eos && has(eos)) || has(request.stop_token_ids);
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
  if (!request.cache_salt.empty()) {
    // The first key tells the whole path of the prefix cache apart.
    if (seq->keys.empty()) seq->keys = {static_cast<uint64_t>(request.prompt[0])};
    seq->keys[0] = SaltedKey(seq->keys[0], request.cache_salt);
  }
  return seq;
}

}  // namespace kuiper
