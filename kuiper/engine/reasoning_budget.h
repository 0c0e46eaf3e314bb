// Request::reasoning_budget: decides which token must come next when the budget is spent.
// SampledAnswers calls it before each token.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>

#include "kuiper/engine/text_assembler.h"

namespace kuiper {

class ReasoningBudget {
 public:
  // `tokenizer` may be null; then no token is forced.
  ReasoningBudget(const Tokenizer* tokenizer, const Request& request, int max_context = INT_MAX)
      : budget_(ReasoningBudgetOf(request, max_context)) {
    if (tokenizer != nullptr) close_ = tokenizer->TokenId(request.thinking_tags.close);
  }

  // Returns the token that must follow the text, if any.
  std::optional<int32_t> ForcedToken(const TextAssembler& text) const {
    const bool spent = budget_ >= 0 && text.inside_thinking() && text.reasoning_tokens() >= budget_;
    return spent ? close_ : std::nullopt;
  }

 private:
  int budget_;
  std::optional<int32_t> close_;
};

}  // namespace kuiper
