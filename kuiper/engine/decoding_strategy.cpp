#include "kuiper/engine/decoding_strategy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kuiper/base/hash.h"

namespace kuiper {
namespace {

// Set in salted keys; no token id has this bit.
constexpr uint64_t kSaltedBit = uint64_t{1} << 63;

// Returns the key for requests with this salt, so that requests with another salt do not match it.
uint64_t SaltedKey(uint64_t key, const std::string& salt) {
  return Fnv1a64OfText(salt, Fnv1a64OfText(std::to_string(key))) | kSaltedBit;
}

std::vector<TokenBias> BiasesOf(const std::map<int32_t, float>& biases) {
  std::vector<TokenBias> list;
  list.reserve(biases.size());
  for (const auto& [token, bias] : biases) list.push_back({token, bias});
  return list;
}

}  // namespace

bool AnswerRules::EndsAnswer(const Request& request, int32_t token, size_t num_generated) const {
  const auto has = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (num_generated <= static_cast<size_t>(request.min_new_tokens)) return false;
  return (!request.ignore_eos && has(eos)) || has(request.stop_token_ids);
}

std::vector<TokenBias> AnswerRules::EarlyBiases(const Request& request) const {
  if (request.min_new_tokens == 0) return {};
  std::map<int32_t, float> biases = request.logit_bias;
  for (const std::vector<int32_t>* ends : {&eos, &request.stop_token_ids}) {
    for (const int32_t id : *ends) {
      if (id >= 0 && id < vocab) biases[id] = -std::numeric_limits<float>::infinity();
    }
  }
  return BiasesOf(biases);
}

Status AnswerRules::CheckEarlyBiases(const Request& request) const {
  int num_left = vocab_limit;
  const std::vector<TokenBias> biases = EarlyBiases(request);
  for (const TokenBias& b : biases) num_left -= b.token < vocab_limit && std::isinf(b.bias) ? 1 : 0;
  if (num_left > 0 && biases.size() <= kMaxBiases) return OkStatus();
  return Status(StatusCode::kInvalidArgument,
                Param("min_tokens") + ": every token ends the answer, or too many do");
}

FinishReason AnswerRules::LimitReached(const Request& request, size_t num_generated) const {
  if (num_generated >= static_cast<size_t>(request.max_new_tokens)) return FinishReason::kLength;
  const bool is_full = request.prompt.size() + num_generated >= static_cast<size_t>(max_context);
  return is_full && on_full != OnFull::kSlide ? FinishReason::kContext : FinishReason::kNone;
}

void AnswerContext::Finish(TokenEvent event, Completion completion) {
  finished.emplace(std::pair(event.request, event.sample), std::move(completion));
  events.push_back(std::move(event));
}

std::unique_ptr<Sequence> AnswerContext::MakeSequence(const AnswerRules& rules,
                                                      const Request& request, int64_t request_id,
                                                      int64_t id) const {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  seq->request = request_id;
  seq->tokens = request.prompt;
  seq->num_prompt = static_cast<int>(request.prompt.size());
  seq->max_new_tokens = request.max_new_tokens;
  seq->priority = request.priority;
  seq->sampling = request.sampling;
  seq->biases = BiasesOf(request.logit_bias);
  seq->early_biases = rules.EarlyBiases(request);
  seq->min_new_tokens = request.min_new_tokens;
  seq->hidden_of = request.hidden_of;
  if (request.num_prompt_logprobs.has_value()) seq->next_prompt_row = 0;
  if (const auto it = overrides.find(request_id); it != overrides.end()) {
    seq->overrides = it->second.spans;
    seq->keys = it->second.keys;
  }
  if (!request.cache_salt.empty()) {
    // The first key distinguishes the whole path in the prefix cache.
    if (seq->keys.empty()) seq->keys = {static_cast<uint64_t>(request.prompt[0])};
    seq->keys[0] = SaltedKey(seq->keys[0], request.cache_salt);
  }
  return seq;
}

}  // namespace kuiper
