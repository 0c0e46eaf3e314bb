#include "kuiper/server/token_logprobs.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

// Escapes invalid UTF-8 as OpenAI does, so that different bytes stay different keys.
std::string TextOf(std::string_view bytes) {
  if (IsValidUtf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const char c : bytes) {
    char escaped[5];
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(c));
    text += escaped;
  }
  return text;
}

// Includes the bytes as numbers, because the text may not show them exactly.
Json LogprobEntry(const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string_view bytes = tokenizer.Bytes(id);
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", std::move(numbers)}};
}

int64_t NumCharacters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

std::vector<TokenPart> PromptParts(std::span<const int32_t> prompt,
                                   std::span<const TokenLogprobs> logprobs) {
  std::vector<TokenPart> parts;
  for (size_t i = 0; i < prompt.size(); ++i) {
    TokenPart& part = parts.emplace_back(TokenPart{prompt[i], {}});
    if (i > 0 && i <= logprobs.size()) part.logprobs = logprobs[i - 1];
  }
  return parts;
}

Json LogprobEntries(const Tokenizer& tokenizer, std::span<const TokenPart> tokens, int num_top) {
  Json entries = Json::array();
  for (const TokenPart& token : tokens) {
    const TokenLogprobs logprobs = token.logprobs.value_or(TokenLogprobs());
    Json entry = LogprobEntry(tokenizer, token.token, logprobs.chosen);
    entry["top_logprobs"] = Json::array();
    const size_t most = std::min<size_t>(logprobs.top.size(), num_top);
    for (size_t i = 0; i < most; ++i) {
      entry["top_logprobs"].push_back(
          LogprobEntry(tokenizer, logprobs.top[i].first, logprobs.top[i].second));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Json LogprobLists::Next(std::span<const TokenPart> tokens) {
  Json lists = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
  for (const TokenPart& part : tokens) {
    const std::string text = TextOf(tokenizer_->Bytes(part.token));
    lists["tokens"].push_back(text);
    const bool follows_partial_character = text_.BreaksOffCharacter(part.token);
    lists["text_offset"].push_back(num_characters_ + (follows_partial_character ? 1 : 0));
    num_characters_ += NumCharacters(text_.Push(part.token));
    if (!part.logprobs.has_value()) {
      lists["token_logprobs"].push_back(nullptr);
      lists["top_logprobs"].push_back(nullptr);
      continue;
    }
    const TokenLogprobs& of = *part.logprobs;
    lists["token_logprobs"].push_back(of.chosen);
    Json top = Json::object();
    const size_t num_top = std::min<size_t>(of.top.size(), num_top_);
    // If several tokens have the same text, the likeliest wins.
    for (size_t i = 0; i < num_top; ++i) {
      top.emplace(TextOf(tokenizer_->Bytes(of.top[i].first)), of.top[i].second);
    }
    top.emplace(text, of.chosen);
    lists["top_logprobs"].push_back(std::move(top));
  }
  return lists;
}

Json PromptLogprobsJson(const Tokenizer& tokenizer, const Request& request,
                        std::span<const TokenLogprobs> logprobs, int num_top) {
  Json list = Json::array({nullptr});
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const TokenLogprobs& of = logprobs[i];
    Json entries = Json::object();
    const auto add = [&](int32_t id, float logprob, int rank) {
      entries.emplace(std::to_string(id), Json{{"logprob", logprob},
                                               {"rank", rank},
                                               {"decoded_token", TextOf(tokenizer.Bytes(id))}});
    };
    add(request.prompt.at(i + 1), of.chosen, of.rank);
    const int count = std::min(static_cast<int>(of.top.size()), num_top);
    for (int k = 0; k < count; ++k) add(of.top[k].first, of.top[k].second, k + 1);
    list.push_back(std::move(entries));
  }
  return list;
}

}  // namespace kuiper
