#include "kuiper/terminal/key_decoder.h"

#include <algorithm>
#include <utility>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

using Kind = Key::Kind;

constexpr char kEscapeByte = '\x1b';
constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";

struct Sequence {
  std::string_view bytes;  // after the escape byte
  Kind kind;
};
constexpr Sequence kSequences[] = {
    {"[A", Kind::kUp},           {"[B", Kind::kDown},        {"[C", Kind::kRight},
    {"[D", Kind::kLeft},         {"[H", Kind::kHome},        {"[F", Kind::kEnd},
    {"OA", Kind::kUp},           {"OB", Kind::kDown},        {"OC", Kind::kRight},
    {"OD", Kind::kLeft},         {"OH", Kind::kHome},        {"OF", Kind::kEnd},
    {"[1~", Kind::kHome},        {"[7~", Kind::kHome},       {"[4~", Kind::kEnd},
    {"[8~", Kind::kEnd},         {"[3~", Kind::kDelete},     {"[1;5D", Kind::kWordLeft},
    {"[1;5C", Kind::kWordRight}, {"[1;3D", Kind::kWordLeft}, {"[1;3C", Kind::kWordRight},
    {"b", Kind::kWordLeft},      {"f", Kind::kWordRight},    {"\r", Kind::kNewLine},
    {"\n", Kind::kNewLine},
};

// Returns the length of the escape sequence that starts after the ESC byte; 0 if it is incomplete.
size_t SequenceBytes(std::string_view rest) {
  if (rest.empty()) return 0;
  if (rest[0] == 'O') return rest.size() < 2 ? 0 : 2;
  if (rest[0] != '[') return 1;
  const auto is_final = [](char c) { return c >= '@' && c <= '~'; };
  const auto end = std::find_if(rest.begin() + 1, rest.end(), is_final);
  return end == rest.end() ? 0 : static_cast<size_t>(end - rest.begin()) + 1;
}

std::string CleanPaste(std::string_view pasted) {
  std::string text;
  for (size_t i = 0; i < pasted.size(); ++i) {
    const char c = pasted[i];
    if (c == '\r') {
      text += '\n';
      if (i + 1 < pasted.size() && pasted[i + 1] == '\n') ++i;
    } else if (c == '\n' || c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != '\x7f')) {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::optional<Key> KeyDecoder::Take(size_t bytes, Key key) {
  bytes_.erase(0, bytes);
  return key;
}

std::optional<Key> KeyDecoder::Paste() {
  const size_t end = bytes_.find(kPasteEnd, searched_);
  if (end == std::string::npos) {
    searched_ = bytes_.size() < kPasteEnd.size() ? 0 : bytes_.size() - kPasteEnd.size();
    return std::nullopt;
  }
  in_paste_ = false;
  searched_ = 0;
  return Take(end + kPasteEnd.size(),
              {Kind::kPaste, CleanPaste(std::string_view(bytes_).substr(0, end))});
}

std::optional<Key> KeyDecoder::Escape(bool no_more) {
  const std::string_view rest = std::string_view(bytes_).substr(1);
  const size_t bytes = SequenceBytes(rest);
  if (bytes == 0) {
    if (!no_more) return std::nullopt;
    return Take(bytes_.size(), {bytes_.size() == 1 ? Kind::kEscape : Kind::kUnknown});
  }
  if (bytes_.starts_with(kPasteBegin)) {
    in_paste_ = true;
    bytes_.erase(0, kPasteBegin.size());
    return Paste();
  }
  for (const Sequence& sequence : kSequences) {
    if (rest.substr(0, bytes) == sequence.bytes) return Take(bytes + 1, {sequence.kind});
  }
  // After two escape bytes, the second may begin a sequence.
  return Take(rest[0] == kEscapeByte ? 1 : bytes + 1, {Kind::kUnknown});
}

std::optional<Key> KeyDecoder::Next(bool no_more) {
  if (in_paste_) return Paste();
  if (bytes_.empty()) return std::nullopt;
  const char c = bytes_[0];
  if (c == kEscapeByte) return Escape(no_more);
  if (c == '\r' || c == '\n') return Take(1, {Kind::kEnter});
  if (c == '\b' || c == '\x7f') return Take(1, {Kind::kBackspace});
  if (c == '\t') return Take(1, {Kind::kText, "\t"});
  if (static_cast<unsigned char>(c) < ' ') {
    return Take(1, {Kind::kControl, "", static_cast<char>(c + '@')});
  }
  const Utf8Step step = NextUtf8(bytes_);
  if (step.kind == Utf8Step::Kind::kIncomplete) return std::nullopt;
  const size_t bytes = static_cast<size_t>(step.num_bytes);
  return Take(bytes, {Kind::kText, bytes_.substr(0, bytes)});
}

}  // namespace kuiper
