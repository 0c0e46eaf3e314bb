// Converts text to token ids and a token id to bytes. Two implementations: BPE (byte-level or
// SentencePiece-like) from a tokenizer.json, and SentencePiece .model files. Called by the engine,
// the programs and chat_message.h; independent of models and templates.
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
  // `path`: a model directory (tokenizer.json preferred, else the only *.model), a tokenizer.json,
  // or a .model file. A tokenizer_config.json next to a tokenizer.json is used if present.
  static StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // Takes the text of a tokenizer.json and, optionally, of a tokenizer_config.json ("" = none).
  // `name` stands for the file in messages.
  static StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json,
                                                       std::string_view config_json,
                                                       const std::string& name);
  virtual ~Tokenizer() = default;

  // Returns the ids of the joined pieces. Adds no BOS. Invalid UTF-8 is read as U+FFFD.
  // `continues`: the text continues earlier text, so that nothing marks a beginning.
  virtual std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces,
                                            bool continues) const = 0;
  std::vector<int32_t> EncodePieces(std::span<const TextPiece> pieces) const {
    return EncodePieces(pieces, false);
  }
  // Text that spells an added token stays text, so that user input never becomes a control token.
  std::vector<int32_t> Encode(std::string_view text) const;
  // Encodes as Hugging Face does: added tokens in the text become their ids.
  std::vector<int32_t> EncodeWithSpecials(std::string_view text) const;

  // Returns a hash of the bytes of all tokens, to distinguish vocabularies.
  uint64_t Hash() const;

  // Returns the bytes that the token adds to the decoded text, which may end inside a UTF-8
  // character. Added tokens: their literal content. Ids without a token (padding rows of the
  // logits): "".
  virtual std::string_view Bytes(int32_t id) const = 0;
  // True for control tokens, which are left out of decoded text.
  virtual bool IsSpecial(int32_t id) const = 0;
  // Returns the id of the added (or control) token with exactly this content.
  virtual std::optional<int32_t> TokenId(std::string_view content) const = 0;
  // Returns the id that starts every sequence, if this tokenizer wants one.
  virtual std::optional<int32_t> bos() const = 0;
  // Returns the id of the eos_token named in the tokenizer's files.
  virtual std::optional<int32_t> eos() const = 0;
  // Returns the largest id that has a token.
  virtual int max_id() const = 0;
  // True if one leading space of the decoded text is dropped, as SentencePiece does.
  virtual bool StripsLeadingSpace() const = 0;
};

}  // namespace kuiper
