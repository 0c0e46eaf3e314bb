#include "kuiper/io/pre_tokenizer_spec.h"

#include <cctype>
#include <string_view>
#include <utility>

#include "kuiper/io/component_reader.h"

namespace kuiper {
namespace {

// GPT-2's pattern, which ByteLevel applies if use_regex is set (tokenizers:
// pre_tokenizers/byte_level.rs).
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// As in tokenizers: pre_tokenizers/punctuation.rs.
constexpr char kPunctuation[] = R"([\p{P}\$\+<=>\^`\|~])";

// Returns a regular expression that matches only `text`.
std::string EscapeRegex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

class PreTokenizerReader : private ComponentReader {
 public:
  PreTokenizerReader(const std::string& name, double growth, TokenizerSpec* spec)
      : ComponentReader(name), spec_(spec), growth_(growth) {}

  Status Read(const JsonNode* node) {
    if (IsAbsent(node)) return OkStatus();
    KU_ASSIGN_OR_RETURN(const std::string_view type, Type(*node, "pre_tokenizer"));
    if (type == "Sequence") {
      KU_ASSIGN_OR_RETURN(const JsonNode* members,
                          Members(*node, "pretokenizers", "pre_tokenizer"));
      for (const JsonNode& member : members->items) KU_RETURN_IF_ERROR(Read(&member));
      return OkStatus();
    }
    PreTokenizerStep step;
    step.cuts_spelling = spec_->byte_level;
    if (type == "Split") {
      KU_RETURN_IF_ERROR(ReadSplit(*node, &step));
    } else if (type == "Punctuation") {
      step.text = kPunctuation;
      KU_RETURN_IF_ERROR(ReadBehavior(*node, "pre_tokenizer Punctuation", &step));
    } else if (type == "Digits") {
      step.kind = PreTokenizerStep::Kind::kDigits;
      KU_ASSIGN_OR_RETURN(const bool each,
                          Bool(*node, "individual_digits", false, "pre_tokenizer Digits"));
      if (!each) step.behavior = SplitBehavior::kContiguous;
    } else if (type == "ByteLevel" || type == "Metaspace") {
      // Both rewrite the text, so a second one would get the output of ByteLevel.
      if (spec_->byte_level) {
        return Unsupported("pre_tokenizer \"" + std::string(type) + "\" after ByteLevel");
      }
      return type == "ByteLevel" ? ReadByteLevel(*node) : ReadMetaspace(*node);
    } else {
      return Unsupported("pre_tokenizer \"" + std::string(type) + "\"");
    }
    spec_->pre_tokenizer.push_back(std::move(step));
    return OkStatus();
  }

 private:
  Status ReadByteLevel(const JsonNode& node) {
    const std::string where = "pre_tokenizer ByteLevel";
    PreTokenizerStep step;
    KU_ASSIGN_OR_RETURN(const bool prefix_space, Bool(node, "add_prefix_space", true, where));
    if (prefix_space) {
      step.kind = PreTokenizerStep::Kind::kPrefix;
      step.text = " ";
      spec_->pre_tokenizer.push_back(step);
    }
    KU_ASSIGN_OR_RETURN(const bool use_regex, Bool(node, "use_regex", true, where));
    if (use_regex) {
      step.kind = PreTokenizerStep::Kind::kSplit;
      step.text = kByteLevelPattern;
      spec_->pre_tokenizer.push_back(step);
    }
    spec_->byte_level = true;
    return OkStatus();
  }

  Status ReadMetaspace(const JsonNode& node) {
    const std::string where = "pre_tokenizer Metaspace";
    PreTokenizerStep step;
    step.kind = PreTokenizerStep::Kind::kPrefix;
    step.replaces_spaces = true;
    KU_ASSIGN_OR_RETURN(step.text, String(node, "replacement", where));
    KU_RETURN_IF_ERROR(CheckGrowth(1, 1 + step.text.size(), "pre_tokenizer", &growth_));
    // Files older than prepend_scheme use add_prefix_space.
    KU_ASSIGN_OR_RETURN(const bool prefix, Bool(node, "add_prefix_space", true, where));
    std::string scheme = prefix ? "always" : "never";
    if (!IsAbsent(node.Find("prepend_scheme"))) {
      KU_ASSIGN_OR_RETURN(scheme, String(node, "prepend_scheme", where));
    }
    using Prefix = PreTokenizerStep::Prefix;
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return Unsupported(where + ": prepend_scheme \"" + scheme + "\"");
    }
    step.prefix = scheme == "always"  ? Prefix::kAlways
                  : scheme == "first" ? Prefix::kFirst
                                      : Prefix::kNever;
    spec_->pre_tokenizer.push_back(step);
    KU_ASSIGN_OR_RETURN(const bool split, Bool(node, "split", true, where));
    if (!split) return OkStatus();
    PreTokenizerStep words;
    words.text = EscapeRegex(step.text);
    words.behavior = SplitBehavior::kMergedWithNext;
    spec_->pre_tokenizer.push_back(std::move(words));
    return OkStatus();
  }

  Status ReadSplit(const JsonNode& node, PreTokenizerStep* step) {
    const std::string where = "pre_tokenizer Split";
    const JsonNode* pattern = node.Find("pattern");
    const bool is_text = pattern != nullptr && pattern->Find("String") != nullptr;
    KU_ASSIGN_OR_RETURN(step->text, Pattern(node, is_text ? "String" : "Regex", where));
    if (is_text) step->text = EscapeRegex(step->text);
    KU_ASSIGN_OR_RETURN(step->invert, Bool(node, "invert", false, where));
    return ReadBehavior(node, where, step);
  }

  Status ReadBehavior(const JsonNode& node, const std::string& where, PreTokenizerStep* step) {
    constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    KU_ASSIGN_OR_RETURN(const std::string behavior, String(node, "behavior", where));
    for (const auto& [name, value] : kBehaviors) {
      if (name != behavior) continue;
      step->behavior = value;
      return OkStatus();
    }
    return Unsupported(where + ": behavior \"" + behavior + "\"");
  }

  TokenizerSpec* spec_;
  double growth_;
};

}  // namespace

Status ReadPreTokenizer(const JsonNode* node, const std::string& name, double growth,
                        TokenizerSpec* spec) {
  return PreTokenizerReader(name, growth, spec).Read(node);
}

}  // namespace kuiper
