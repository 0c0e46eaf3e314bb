// A tokenizer whose tokens are given as bytes. It cannot encode.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/io/tokenizer.h"

namespace kuiper::test {

class FakeTokenizer : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  std::vector<int32_t> EncodePieces(std::span<const TextPiece>, bool) const override { return {}; }
  std::string_view Bytes(int32_t id) const override {
    return id >= 0 && id <= max_id() ? std::string_view(tokens_[id]) : "";
  }
  bool IsSpecial(int32_t id) const override { return special.count(id) > 0; }
  std::optional<int32_t> TokenId(std::string_view content) const override {
    for (int32_t id : added) {
      if (tokens_[id] == content) return id;
    }
    return std::nullopt;
  }
  std::optional<int32_t> eos() const override { return std::nullopt; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  int max_id() const override { return static_cast<int>(tokens_.size()) - 1; }
  bool StripsLeadingSpace() const override { return strips_leading_space; }

  std::set<int32_t> special;
  std::set<int32_t> added;
  bool strips_leading_space = false;

 private:
  std::vector<std::string> tokens_;
};

}  // namespace kuiper::test
