#include "kuiper/engine/request.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace kuiper {
namespace {

constexpr int kMaxSamples = 1024;

Status CheckBeams(const Request& request, int vocab) {
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  if (request.beam_width < 1 || request.beam_width > vocab) {
    return bad("beam_width must be between 1 and the vocabulary size");
  }
  if (request.beam_width == 1) return OkStatus();
  if (!(std::abs(request.length_penalty) <= 100.f)) {
    return bad("length_penalty must be in [-100, 100]");
  }
  if (request.num_samples > request.beam_width) {
    return bad("num_samples must be at most beam_width");
  }
  if (request.sampling.temperature > 0) return bad("beam search takes no temperature");
  if (request.reasoning_budget != -1) return bad("beam search takes no reasoning budget");
  if (request.max_new_tokens == 0) return bad("beam search needs a token to generate");
  if (request.reads_logits() || request.num_prompt_logprobs.has_value()) {
    return bad("beam search keeps neither logits nor log probabilities");
  }
  return OkStatus();
}

std::string OutsideVocabulary(int32_t id, int vocab) {
  return "token id " + std::to_string(id) + " is outside the vocabulary of " +
         std::to_string(vocab);
}

Status CheckEnds(const Request& request) {
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  if (request.min_new_tokens < 0 || request.min_new_tokens > request.max_new_tokens) {
    return bad(Param("min_tokens") + " must be from 0 to " + Param("max_tokens") + ", which is " +
               std::to_string(request.max_new_tokens));
  }
  if (request.stop_token_ids.size() > kMaxStopTokens) {
    return bad(Param("stop_token_ids") + " must be at most " + std::to_string(kMaxStopTokens));
  }
  return OkStatus();
}

Status CheckBias(const Request& request, int vocab) {
  auto bad = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, Param("logit_bias") + ": " + what);
  };
  if (request.logit_bias.size() > kMaxLogitBiases) {
    return bad("at most " + std::to_string(kMaxLogitBiases) + " token ids may have a bias");
  }
  for (const auto& [id, bias] : request.logit_bias) {
    if (id < 0 || id >= vocab) return bad(OutsideVocabulary(id, vocab));
    if (!(std::abs(bias) <= 100.f)) {
      return bad("the bias of token id " + std::to_string(id) + " must be in [-100, 100]");
    }
  }
  return OkStatus();
}

}  // namespace

uint64_t DrawSeed() {
  return std::random_device()();
}

int ReasoningBudgetOf(const Request& request, int max_context) {
  if (request.reasoning_budget != kAutoReasoningBudget) return request.reasoning_budget;
  const int room = max_context - static_cast<int>(request.prompt.size());
  return std::min(request.max_new_tokens, room) / 2;
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kInterrupt:
      return "interrupt";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

Status CheckSampling(const SamplingParams& p) {
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  if (!(p.temperature >= 0 && std::isfinite(p.temperature))) return bad("temperature must be >= 0");
  if (!(p.top_p > 0 && p.top_p <= 1)) return bad("top_p must be in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return bad("min_p must be in [0, 1]");
  if (p.top_k < -1) return bad("top_k must be >= -1");
  // Outside these bounds a penalised logit may overflow, which would be reported as a broken model.
  if (!(p.repetition_penalty >= 0.01f && p.repetition_penalty <= 100.f)) {
    return bad("repetition_penalty must be in [0.01, 100]");
  }
  if (!(std::abs(p.presence_penalty) <= 100.f) || !(std::abs(p.frequency_penalty) <= 100.f)) {
    return bad("presence_penalty and frequency_penalty must be in [-100, 100]");
  }
  return OkStatus();
}

Status CheckRequest(const Request& request, int vocab) {
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  if (request.prompt.empty()) return Status(StatusCode::kInput, "the prompt is empty");
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) return bad(OutsideVocabulary(id, vocab));
  }
  if (request.max_new_tokens < 0) return bad("max_new_tokens must not be negative");
  if (request.num_samples < 1 || request.num_samples > kMaxSamples) {
    return bad("num_samples must be between 1 and " + std::to_string(kMaxSamples));
  }
  if (request.hidden_of.has_value() &&
      (*request.hidden_of < 0 || request.num_samples > 1 || request.beam_width > 1)) {
    return bad("hidden_of must be at least 0, and needs a single answer");
  }
  KU_RETURN_IF_ERROR(CheckSampling(request.sampling));
  KU_RETURN_IF_ERROR(CheckEnds(request));
  KU_RETURN_IF_ERROR(CheckBias(request, vocab));
  if (std::abs(request.priority) > 100) return bad("priority must be in [-100, 100]");
  const int prompt_logprobs = request.num_prompt_logprobs.value_or(0);
  if (std::min(request.num_logprobs, prompt_logprobs) < 0 ||
      std::max(request.num_logprobs, prompt_logprobs) > vocab) {
    return bad("num_logprobs must be between 0 and the vocabulary size");
  }
  return CheckBeams(request, vocab);
}

Status ContextExceeded(int num_tokens, int max_context) {
  return Status(StatusCode::kContextExceeded, "prompt is " + std::to_string(num_tokens) +
                                                  " tokens but the context is " +
                                                  std::to_string(max_context));
}

Status CheckPromptFits(int num_tokens, int max_context) {
  return num_tokens < max_context ? OkStatus() : ContextExceeded(num_tokens, max_context);
}

}  // namespace kuiper
