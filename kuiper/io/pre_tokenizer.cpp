#include "kuiper/io/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/io/byte_tokens.h"
#include "kuiper/io/normalizer.h"
#include "kuiper/io/unicode.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

using Kind = PreTokenizerStep::Kind;
using Parts = std::vector<SplitPart>;

// Cuts so that each numeric character is a match.
void CutDigits(std::string_view text, Parts* parts) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.substr(at));
    const size_t end = at + step.num_bytes;
    if (KindOf(step.code_point) == CharKind::kNumber) {
      if (at > done) parts->push_back({text.substr(done, at - done), false});
      parts->push_back({text.substr(at, end - at), true});
      done = end;
    }
    at = end;
  }
  if (done < text.size()) parts->push_back({text.substr(done), false});
}

std::string_view Joined(std::string_view a, std::string_view b) {
  return {a.data(), static_cast<size_t>(b.data() + b.size() - a.data())};
}

// Follows NormalizedString::split of tokenizers (tokenizer/normalizer.rs).
void AppendWords(const Parts& parts, SplitBehavior behavior, std::vector<std::string_view>* words) {
  std::vector<std::string_view> out;
  bool was_match = false;
  const auto add = [&](const SplitPart& part, bool joins) {
    if (joins && !out.empty()) {
      out.back() = behavior == SplitBehavior::kMergedWithNext ? Joined(part.text, out.back())
                                                              : Joined(out.back(), part.text);
    } else {
      out.push_back(part.text);
    }
    was_match = part.is_match;
  };
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      for (const SplitPart& part : parts) {
        if (behavior == SplitBehavior::kIsolated || !part.is_match) add(part, false);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const SplitPart& part : parts) add(part, part.is_match == was_match);
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const SplitPart& part : parts) add(part, part.is_match && !was_match);
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = parts.size(); i-- > 0;) add(parts[i], parts[i].is_match && !was_match);
      std::reverse(out.begin(), out.end());
      break;
  }
  for (const std::string_view word : out) {
    if (!word.empty()) words->push_back(word);
  }
}

}  // namespace

StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps,
                                            const std::string& name) {
  PreTokenizer result;
  bool has_regex = false;
  for (const PreTokenizerStep& spec : steps) {
    Step step{spec, ByDigits()};
    if (spec.kind == Kind::kSplit) {
      // All parts of a WordSplit are matches.
      const bool keeps_matches = spec.behavior == SplitBehavior::kRemoved
                                     ? spec.invert
                                     : spec.behavior == SplitBehavior::kIsolated;
      const auto known = WordSplit::ForPattern(spec.text);
      if (known.has_value() && keeps_matches && !spec.cuts_spelling) {
        step.cut = *known;
      } else {
        StatusOr<SplitRegex> split = SplitRegex::Compile(spec.text);
        if (!split.ok()) {
          return Status(StatusCode::kTokenizer,
                        name + ": pre_tokenizer Split: " + split.status().message());
        }
        step.cut = std::move(split).value();
        has_regex = true;
      }
    }
    result.steps_.push_back(std::move(step));
  }
  if (has_regex) {
    LogDetail(name + ": the split pattern is not one of those built in; letters and numbers are " +
              SplitRegex::Engine() + "'s");
  }
  return result;
}

PreTokenizer::Words PreTokenizer::Split(std::string_view text, TextStart start) const {
  Words result;
  if (text.empty()) return result;
  result.words = {text};
  const char* first = text.data();  // where `text` begins, also after it was rewritten
  for (const Step& step : steps_) {
    if (step.spec.kind == Kind::kPrefix) {
      for (std::string_view& word : result.words) {
        const bool at_begin = word.data() == first;
        const TextStart word_start = at_begin ? start : TextStart::kAfterToken;
        std::string changed =
            step.spec.replaces_spaces ? ReplaceAll(word, " ", step.spec.text) : std::string(word);
        const bool wanted = word_start == TextStart::kWhole
                                ? step.spec.prefix != PreTokenizerStep::Prefix::kNever
                                : step.spec.prefix == PreTokenizerStep::Prefix::kAlways &&
                                      word_start == TextStart::kAfterToken;
        if (wanted && !changed.starts_with(step.spec.text)) changed.insert(0, step.spec.text);
        word = result.storage.emplace_back(std::move(changed));
        if (at_begin) first = word.data();
      }
      continue;
    }
    std::vector<std::string_view> words;
    words.reserve(text.size() / 4);
    for (const std::string_view word : result.words) {
      step.spec.cuts_spelling ? CutSpelling(step, word, &words) : Cut(step, word, &words);
    }
    result.words = std::move(words);
  }
  return result;
}

void PreTokenizer::Cut(const Step& step, std::string_view text,
                       std::vector<std::string_view>* words) {
  if (const auto* known = std::get_if<WordSplit>(&step.cut)) return known->Split(text, words);
  Parts parts;
  if (const auto* regex = std::get_if<SplitRegex>(&step.cut)) {
    regex->Cut(text, &parts);
  } else {
    CutDigits(text, &parts);
  }
  if (step.spec.invert) {
    for (SplitPart& part : parts) part.is_match = !part.is_match;
  }
  AppendWords(parts, step.spec.behavior, words);
}

// Cuts the spelling of the bytes in GPT-2's alphabet, which has one character per byte.
void PreTokenizer::CutSpelling(const Step& step, std::string_view bytes,
                               std::vector<std::string_view>* words) {
  std::string spelling;
  std::vector<size_t> byte_at;  // by position in the spelling, including its end
  for (size_t i = 0; i < bytes.size(); ++i) {
    AppendUtf8(ByteLevelChar(static_cast<uint8_t>(bytes[i])), &spelling);
    byte_at.resize(spelling.size(), i);
  }
  byte_at.push_back(bytes.size());
  std::vector<std::string_view> parts;
  Cut(step, spelling, &parts);
  for (const std::string_view part : parts) {
    const size_t at = static_cast<size_t>(part.data() - spelling.data());
    const size_t begin = byte_at[at];
    words->push_back(bytes.substr(begin, byte_at[at + part.size()] - begin));
  }
}

}  // namespace kuiper
