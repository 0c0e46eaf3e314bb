// What a tokenizer.json says, checked and reduced to the few components this program implements.
// A component or option it does not implement is an error that names it, never a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;     // left out of decoded text
  bool normalized = false;  // matched in the normalised text
  bool lstrip = false;      // takes the white space on its left (right) with it
  bool rstrip = false;
};

struct NormalizerStep {
  enum class Kind { kNfc, kPrepend, kReplace };
  Kind kind = Kind::kNfc;
  std::string from;  // kReplace
  std::string to;    // kReplace: the replacement, kPrepend: the prefix
};

struct VocabEntry {
  std::string content;
  int64_t id = 0;
};

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<std::string> split_patterns;  // regular expressions, applied one after another
  bool byte_level = false;                  // the vocabulary spells bytes in GPT-2's alphabet

  std::vector<VocabEntry> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;

  std::vector<std::pair<std::string, std::string>> decoder_replace;
  bool decoder_byte_fallback = false;
  bool decoder_strips_space = false;

  std::optional<std::string> bos_token;
};

// No id beyond this is accepted: tables are indexed by id.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;

// Both texts as in Tokenizer::FromJson.
StatusOr<TokenizerSpec> ParseTokenizerSpec(std::string_view json, std::string_view config_json,
                                           const std::string& name);

}  // namespace kuiper
