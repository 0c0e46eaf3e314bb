// Text -> token ids and token id -> bytes. Two implementations: byte-level BPE and
// SentencePiece-like BPE read from tokenizer.json, and SentencePiece .model files. Called by the
// engine, the programs and chat_template.h; knows nothing about models or templates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// A piece of one text. Pieces are joined before they are encoded, so a boundary between pieces
// never changes the ids; it only limits where added tokens may be recognised.
struct TextPiece {
  std::string_view text;
  bool parse_added = false;  // added tokens spelled inside this piece become their ids
};

// Immutable after Load; all const methods may be called from several threads.
class Tokenizer {
 public:
  // `path`: a model directory (tokenizer.json preferred, else the only *.model), a tokenizer.json
  // (tokenizer_config.json beside it is used when present), or a .model file.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // From the text of a tokenizer.json and, optionally, of a tokenizer_config.json ("" = none).
  // `name` stands for the file in messages.
  static StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json,
                                                       std::string_view config_json,
                                                       const std::string& name);
  virtual ~Tokenizer() = default;

  // Ids of the joined pieces. No BOS is added. Bytes that are not UTF-8 are read as U+FFFD.
  // `continues`: text whose ids are known precedes them, so that nothing marks a beginning.
  virtual std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces,
                                            bool continues) const = 0;
  std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces) const {
    return EncodePieces(pieces, false);
  }
  // Text that spells an added token stays text: what users type never becomes a control token.
  std::vector<int32_t> Encode(std::string_view text) const;
  // As Hugging Face encodes: added tokens in the text become their ids.
  std::vector<int32_t> EncodeWithSpecials(std::string_view text) const;

  // Of the bytes of all tokens, by which another vocabulary can be told from this one.
  uint64_t Hash() const;

  // What the token adds to the decoded text; may end inside a UTF-8 character. The literal content
  // for added tokens, "" for ids without a token (padding rows of the logits).
  virtual std::string_view Bytes(int32_t id) const = 0;
  // Control tokens, left out of decoded text.
  virtual bool IsSpecial(int32_t id) const = 0;
  // The id of the added (or control) token with exactly this content.
  virtual std::optional<int32_t> TokenId(std::string_view content) const = 0;
  // The id that starts every sequence, if this tokenizer wants one.
  virtual std::optional<int32_t> bos() const = 0;
  // The id of the eos_token that the tokenizer's files name.
  virtual std::optional<int32_t> eos() const = 0;
  // The largest id that has a token.
  virtual int max_id() const = 0;
  // SentencePiece style: one leading space of the whole decoded text is dropped.
  virtual bool StripsLeadingSpace() const = 0;
};

}  // namespace kuiper
