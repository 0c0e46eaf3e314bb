// The content of a tokenizer.json, checked and reduced to the few components that are implemented
// here. Any other component or option is an error that names it, never a guess.
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
  bool lstrip = false;      // also matches the white space on its left (rstrip: right)
  bool rstrip = false;
  bool single_word = false;  // matched only if no word character is adjacent to it
};

struct NormalizerStep {
  enum class Kind { kNfc, kPrepend, kReplace };
  Kind kind = Kind::kNfc;
  std::string from;  // kReplace
  std::string to;    // kReplace: the replacement, kPrepend: the prefix
};

// What happens to the matches when a text is cut at the matches of a pattern.
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
  bool invert = false;                                // kSplit: the text between matches matches
  Prefix prefix = Prefix::kAlways;                    // kPrefix
  bool replaces_spaces = false;  // kPrefix: first replaces every space with `text` (Metaspace)
  bool cuts_spelling = false;    // follows ByteLevel, which spells bytes in GPT-2's alphabet
};

struct VocabEntry {
  std::string content;
  int64_t id = 0;
};

// Pairs of tokens by rank, stored in one text: there are hundreds of thousands of a few bytes each.
class MergeList {
 public:
  // The parts must add up to less than 4 GiB.
  void Add(std::string_view left, std::string_view right) {
    for (const std::string_view part : {left, right}) {
      text_ += part;
      ends_.push_back(static_cast<uint32_t>(text_.size()));
    }
  }
  size_t size() const { return ends_.size() / 2; }
  // The views stay valid until the next Add.
  std::string_view left(size_t rank) const { return Part(2 * rank); }
  std::string_view right(size_t rank) const { return Part(2 * rank + 1); }

 private:
  std::string_view Part(size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

  std::string text_;
  std::vector<uint32_t> ends_;  // ends of the left and the right part of each pair
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

  std::optional<std::string> bos_token;  // set only if prompts begin with it
  std::optional<std::string> eos_token;
};

// Larger ids are refused, because tables are indexed by id.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;

// Takes both texts as Tokenizer::FromJson does.
StatusOr<TokenizerSpec> ParseTokenizerSpec(std::string_view json, std::string_view config_json,
                                           const std::string& name);

}  // namespace kuiper
