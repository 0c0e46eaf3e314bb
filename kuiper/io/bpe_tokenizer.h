// The Tokenizer of a tokenizer.json: added tokens, normaliser, pre-tokenizer, BPE, and the way back
// to bytes. Created by tokenizer.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kuiper/io/added_tokens.h"
#include "kuiper/io/bpe_model.h"
#include "kuiper/io/joined_text.h"
#include "kuiper/io/normalizer.h"
#include "kuiper/io/pre_tokenizer.h"
#include "kuiper/io/tokenizer.h"
#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

class BpeTokenizer : public Tokenizer {
 public:
  static StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec, const std::string& name);

  using Tokenizer::EncodePieces;
  std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces,
                                    bool continues) const override;
  std::string_view Bytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  std::optional<int32_t> TokenId(std::string_view content) const override;
  std::optional<int32_t> bos() const override { return bos_; }
  std::optional<int32_t> eos() const override { return eos_; }
  int max_id() const override { return static_cast<int>(bytes_.size()) - 1; }
  bool StripsLeadingSpace() const override { return spec_.decoder_strips_space; }

 private:
  explicit BpeTokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}
  Status Init(const std::string& name);
  Status CheckAddedTokens(const std::string& name) const;
  std::string TokenBytes(const std::string& content) const;
  // `start`: what precedes the joined text.
  void EncodeRun(const JoinedText& joined, size_t begin, size_t end, TextStart start,
                 BpeModel::Scratch* scratch, std::vector<int32_t>* ids) const;
  void EncodeNormalized(std::string_view text, TextStart start, BpeModel::Scratch* scratch,
                        std::vector<int32_t>* ids) const;

  TokenizerSpec spec_;  // without vocabulary and merges
  std::unique_ptr<BpeModel> model_;
  std::vector<NormalizerStep> inner_normalizer_;  // for text that continues other text
  PreTokenizer pre_tokenizer_;
  AddedTokenMatcher raw_matcher_;         // finds added tokens in the text as it is
  AddedTokenMatcher normalized_matcher_;  // finds added tokens in the normalised text
  std::vector<std::string> bytes_;        // by id
  std::vector<bool> special_;             // by id
  std::optional<int32_t> bos_, eos_;
};

}  // namespace kuiper
