// Log probabilities as completions tell them, of prompts and of answers: OpenAI's object of lists,
// and what vLLM calls prompt_logprobs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "kuiper/engine/request.h"
#include "kuiper/io/token_stream.h"
#include "kuiper/server/answer_parts.h"

namespace kuiper {

// The tokens of a prompt; nothing is known of the first one.
std::vector<TokenPart> PromptParts(std::span<const int32_t> prompt,
                                   std::span<const TokenLogprobs> logprobs);

// The lists of one choice, piece by piece: places in the text go on.
class LogprobLists {
 public:
  // At most so many alternatives beside the token itself. `tokenizer` must outlive it.
  LogprobLists(const Tokenizer& tokenizer, int num_top)
      : tokenizer_(&tokenizer), num_top_(num_top), text_(tokenizer) {}

  nlohmann::ordered_json Next(std::span<const TokenPart> tokens);

 private:
  const Tokenizer* tokenizer_;
  int num_top_;
  TokenStream text_;
  int64_t num_characters_ = 0;
};

// A list with an object per token, as chats and responses tell them: token, logprob, bytes and
// top_logprobs of at most `num_top` alternatives.
nlohmann::ordered_json LogprobEntries(const Tokenizer& tokenizer, std::span<const TokenPart> tokens,
                                      int num_top);

// A list with null and then an object per token: id -> logprob, rank and decoded_token.
nlohmann::ordered_json PromptLogprobsJson(const Tokenizer& tokenizer, const Request& request,
                                          std::span<const TokenLogprobs> logprobs, int num_top);

}  // namespace kuiper
