// Log probabilities of prompts and answers in OpenAI's formats, and vLLM's prompt_logprobs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "kuiper/engine/request.h"
#include "kuiper/io/token_stream.h"
#include "kuiper/server/answer_parts.h"

namespace kuiper {

// Returns the tokens of a prompt; the first one has no log probability.
std::vector<TokenPart> PromptParts(std::span<const int32_t> prompt,
                                   std::span<const TokenLogprobs> logprobs);

// Writes OpenAI's lists for one choice of a completion, piece by piece; text offsets continue.
class LogprobLists {
 public:
  // Lists at most `num_top` alternatives besides the token itself. `tokenizer` must outlive this
  // object.
  LogprobLists(const Tokenizer& tokenizer, int num_top)
      : tokenizer_(&tokenizer), num_top_(num_top), text_(tokenizer) {}

  nlohmann::ordered_json Next(std::span<const TokenPart> tokens);

 private:
  const Tokenizer* tokenizer_;
  int num_top_;
  TokenStream text_;
  int64_t num_characters_ = 0;
};

// Returns the format of chats and responses, a list with an object per token: token, logprob, bytes
// and top_logprobs of at most `num_top` alternatives.
nlohmann::ordered_json LogprobEntries(const Tokenizer& tokenizer, std::span<const TokenPart> tokens,
                                      int num_top);

// Returns null and then an object per token: id -> logprob, rank and decoded_token.
nlohmann::ordered_json PromptLogprobsJson(const Tokenizer& tokenizer, const Request& request,
                                          std::span<const TokenLogprobs> logprobs, int num_top);

}  // namespace kuiper
