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
  bool single_word = false;  // matched only where no word continues on either side
};

struct NormalizerStep {
  enum class Kind { kNfc, kPrepend, kReplace };
  Kind kind = Kind::kNfc;
  std::string from;  // kReplace
  std::string to;    // kReplace: the replacement, kPrepend: the prefix
};

// What becomes of the matches of a pattern when a text is cut at them.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizerStep {
  enum class Kind {
    kSplit,   // cuts at the matches of the regular expression `text`
    kDigits,  // cuts at numeric characters
    kPrefix,  // puts `text` before a piece that does not begin with it
  };
  enum class Prefix { kNever, kFirst, kAlways };  // kFirst: only where the whole text begins

  Kind kind = Kind::kSplit;
  std::string text;
  SplitBehavior behavior = SplitBehavior::kIsolated;  // kSplit, kDigits
  bool invert = false;                                // kSplit: what lies between matches matches
  Prefix prefix = Prefix::kAlways;                    // kPrefix
  bool replaces_spaces = false;  // kPrefix: every space becomes `text` before (Metaspace)
  bool sees_spelling = false;    // comes after ByteLevel, which spells bytes in GPT-2's alphabet
};

struct VocabEntry {
  std::string content;
  int64_t id = 0;
};

// Pairs of tokens by rank, in one text: there are hundreds of thousands, of a few bytes each.
class MergeList {
 public:
  // All together less than 4 GiB.
  void Add(std::string_view left, std::string_view right) {
    for (const std::string_view part : {left, right}) {
      text_ += part;
      ends_.push_back(static_cast<uint32_t>(text_.size()));
    }
  }
  size_t size() const { return ends_.size() / 2; }
  // The same places of memory until the next Add.
  std::string_view left(size_t rank) const { return Part(2 * rank); }
  std::string_view right(size_t rank) const { return Part(2 * rank + 1); }

 private:
  std::string_view Part(size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

  std::string text_;
  std::vector<uint32_t> ends_;  // of the left and the right part of each
};

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;  // applied one after another
  bool byte_level = false;                      // the vocabulary spells bytes in GPT-2's alphabet

  std::vector<VocabEntry> vocab;
  MergeList merges;
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;

  std::vector<std::pair<std::string, std::string>> decoder_replace;
  bool decoder_byte_fallback = false;
  bool decoder_strips_space = false;

  std::optional<std::string> bos_token;  // only where prompts begin with it
  std::optional<std::string> eos_token;
};

// No id beyond this is accepted: tables are indexed by id.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;

// Both texts as in Tokenizer::FromJson.
StatusOr<TokenizerSpec> ParseTokenizerSpec(std::string_view json, std::string_view config_json,
                                           const std::string& name);

}  // namespace kuiper
