// String methods as in Python's str. Parts keep the origin of their bytes.
#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"
#include "kuiper/jinja/string_format.h"

namespace kuiper::jinja {
namespace {

const Text& Self(const Call& call) {
  return *call.self.text;
}

bool Part(Call& call, size_t begin, size_t size, Value* result) {
  *result = Value::String(call.heap().Slice(Self(call), begin, size));
  return true;
}

bool Finish(Call& call, const TextBuilder& builder, Value* result) {
  *result = Value::String(call.heap().Copy(builder));
  return true;
}

// Returns the bytes at the beginning of `text` whose characters are all in `set`.
size_t LeadingOf(std::string_view text, std::string_view set) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = FirstCharacter(text.substr(at)).size;
    if (set.find(text.substr(at, size)) == std::string_view::npos) break;
    at += size;
  }
  return at;
}

size_t TrailingOf(std::string_view text, std::string_view set) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    if (set.find(text.substr(begin, end - begin)) == std::string_view::npos) break;
    end = begin;
  }
  return text.size() - end;
}

template <bool kLeft, bool kRight>
bool Strip(Call& call, Value* result) {
  const std::string_view text = Self(call).bytes();
  const Text* set = nullptr;
  if (call.Given(0) && !call.args[0].Is(Kind::kNone) && !call.String(0, "strip arg", &set)) {
    return false;
  }
  const auto leading = [&] { return set ? LeadingOf(text, set->bytes()) : LeadingSpace(text); };
  const auto trailing = [&](std::string_view rest) {
    return set ? TrailingOf(rest, set->bytes()) : TrailingSpace(rest);
  };
  const size_t begin = kLeft ? leading() : 0;
  const size_t end = text.size() - (kRight ? trailing(text.substr(begin)) : 0);
  return Part(call, begin, end - begin, result);
}

// Finds the part of the text that `start` and `end` (arguments 1 and 2) select.
bool Window(Call& call, size_t* begin, size_t* size) {
  const std::string_view text = Self(call).bytes();
  *begin = 0;
  *size = text.size();
  if (!call.Given(1) && !call.Given(2)) return true;
  const int64_t count = static_cast<int64_t>(CountCharacters(text));
  int64_t bounds[2] = {0, count};
  for (size_t i = 0; i < 2; ++i) {
    if (!call.Integer(i + 1, i == 0 ? "start" : "end", &bounds[i])) return false;
    if (bounds[i] < 0) bounds[i] = std::max<int64_t>(0, std::max(bounds[i], -count) + count);
  }
  if (bounds[0] > count || bounds[0] > bounds[1]) {
    *begin = std::string_view::npos;  // not even an empty text is found here
    return true;
  }
  *begin = ByteOfCharacter(text, static_cast<size_t>(bounds[0]));
  *size = ByteOfCharacter(text, static_cast<size_t>(bounds[1])) - *begin;
  return true;
}

template <bool kAtEnd>
bool Edge(Call& call, Value* result) {
  size_t begin = 0, size = 0;
  if (!Window(call, &begin, &size)) return false;
  std::vector<Value> wanted = {call.args[0]};
  if (call.args[0].Is(Kind::kTuple)) wanted = call.args[0].list->items;
  bool found = false;
  for (const Value& value : wanted) {
    if (!value.Is(Kind::kString)) {
      return call.Fail(value.Is(Kind::kUndefined)
                           ? UndefinedMessage(value)
                           : "first arg must be str or a tuple of str, not " +
                                 std::string(TypeName(value)));
    }
    if (begin == std::string_view::npos) continue;
    const std::string_view text = Self(call).bytes().substr(begin, size);
    found = found || (kAtEnd ? text.ends_with(value.bytes()) : text.starts_with(value.bytes()));
  }
  *result = Value::Bool(found);
  return true;
}

template <bool kFromRight, bool kMustBeThere>
bool Find(Call& call, Value* result) {
  const Text* part = nullptr;
  size_t begin = 0, size = 0;
  if (!call.String(0, "sub", &part) || !Window(call, &begin, &size)) return false;
  const std::string_view text = Self(call).bytes();
  size_t found = std::string_view::npos;
  if (begin != std::string_view::npos) {
    const std::string_view window = text.substr(begin, size);
    found = kFromRight ? window.rfind(part->bytes()) : window.find(part->bytes());
  }
  if (found == std::string_view::npos && kMustBeThere) return call.Fail("substring not found");
  *result = Value::Int(found == std::string_view::npos
                           ? -1
                           : static_cast<int64_t>(CountCharacters(text.substr(0, begin + found))));
  return true;
}

bool Count(Call& call, Value* result) {
  const Text* part = nullptr;
  size_t begin = 0, size = 0;
  if (!call.String(0, "sub", &part) || !Window(call, &begin, &size)) return false;
  int64_t count = 0;
  if (begin != std::string_view::npos) {
    const std::string_view text = Self(call).bytes().substr(begin, size);
    if (part->size() == 0) {
      count = static_cast<int64_t>(CountCharacters(text)) + 1;
    } else {
      for (size_t at = text.find(part->bytes()); at != std::string_view::npos;
           at = text.find(part->bytes(), at + part->size())) {
        ++count;
      }
    }
  }
  *result = Value::Int(count);
  return true;
}

bool Replace(Call& call, Value* result) {
  const Text *old_text = nullptr, *new_text = nullptr;
  int64_t limit = -1;
  if (!call.String(0, "old", &old_text) || !call.String(1, "new", &new_text) ||
      !call.Integer(2, "count", &limit)) {
    return false;
  }
  if (limit < 0) limit = INT64_MAX;
  const Text& text = Self(call);
  TextBuilder builder = call.heap().Builder();
  size_t at = 0;
  for (; limit > 0 && !builder.overflowed(); --limit) {
    const size_t found = text.bytes().find(old_text->bytes(), at);
    if (found == std::string_view::npos) break;
    builder.AppendPart(text, at, found - at);
    builder.Append(*new_text);
    at = found + old_text->size();
    if (old_text->size() > 0) continue;
    // An empty text matches before each character and at the end.
    if (at == text.size()) break;
    const size_t size = FirstCharacter(text.bytes().substr(at)).size;
    builder.AppendPart(text, at, size);
    at += size;
  }
  builder.AppendPart(text, at, text.size() - at);
  return call.run.Work(call.node, text.size() / 64) && Finish(call, builder, result);
}

template <bool kSuffix>
bool Remove(Call& call, Value* result) {
  const Text* part = nullptr;
  if (!call.String(0, "prefix", &part)) return false;
  const std::string_view text = Self(call).bytes();
  const bool has = kSuffix ? text.ends_with(part->bytes()) : text.starts_with(part->bytes());
  const size_t cut = has ? part->size() : 0;
  return Part(call, kSuffix ? 0 : cut, text.size() - cut, result);
}

bool Join(Call& call, Value* result) {
  const List* items = Items(call.run, call.args[0], call.node);
  if (items == nullptr) return false;
  TextBuilder builder = call.heap().Builder();
  for (size_t i = 0; i < items->items.size() && !builder.overflowed(); ++i) {
    if (!items->items[i].Is(Kind::kString)) return call.Fail("join takes strings");
    if (i > 0) builder.Append(Self(call));
    builder.Append(*items->items[i].text);
  }
  return Finish(call, builder, result);
}

enum class Change { kUpper, kLower, kCapitalize, kTitle, kSwap };

template <Change kChange>
bool Recase(Call& call, Value* result) {
  const Text& text = Self(call);
  TextBuilder builder = call.heap().Builder();
  bool in_word = false;
  size_t at = 0;
  for (const Run& run : text.runs()) {
    std::string part;
    for (const size_t end = at + run.length; at < end;) {
      const Character c = FirstCharacter(text.bytes().substr(at));
      Case wanted = Case::kLower;
      if (kChange == Change::kUpper) wanted = Case::kUpper;
      if (kChange == Change::kCapitalize && at == 0) wanted = Case::kTitle;
      if (kChange == Change::kTitle && !in_word) wanted = Case::kTitle;
      if (kChange == Change::kSwap && IsLower(c.code)) wanted = Case::kUpper;
      in_word = IsCased(c.code);
      AppendCase(c.code, wanted, &part);
      at += c.size;
    }
    builder.Append(part, run.origin);
  }
  return Finish(call, builder, result);
}

template <bool (*kIs)(char32_t)>
bool All(Call& call, Value* result) {
  const std::string_view text = Self(call).bytes();
  bool all = !text.empty();
  for (size_t at = 0; at < text.size() && all;) {
    const Character c = FirstCharacter(text.substr(at));
    all = kIs(c.code);
    at += c.size;
  }
  *result = Value::Bool(all);
  return true;
}

bool IsLetterOrNumber(char32_t c) {
  return IsLetter(c) || IsNumeric(c);
}

bool IsAscii(Call& call, Value* result) {
  const std::string_view text = Self(call).bytes();
  *result =
      Value::Bool(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }));
  return true;
}

template <const char* kTest>
bool IsCase(Call& call, Value* result) {
  return FindTest(kTest)->function(call, result);
}
constexpr char kUpper[] = "upper", kLower[] = "lower";

enum class Side { kLeft, kRight, kBoth };

template <Side kSide>
bool Pad(Call& call, Value* result) {
  int64_t width = 0;
  if (!call.Integer(0, "width", &width)) return false;
  const Text space(" ", kTemplate);
  const Text* fill = &space;
  if (call.Given(1) && !call.String(1, "fillchar", &fill)) return false;
  if (CountCharacters(fill->bytes()) != 1) return call.Fail("fillchar is not one character");
  const Text& text = Self(call);
  const int64_t missing = width - static_cast<int64_t>(CountCharacters(text.bytes()));
  int64_t left = kSide == Side::kRight ? missing : 0;
  // As in CPython, the odd blank goes to the left if the width is odd too.
  if (kSide == Side::kBoth && missing > 0) left = missing / 2 + (missing & width & 1);
  TextBuilder builder = call.heap().Builder();
  for (int64_t i = 0; i < left && !builder.overflowed(); ++i) builder.Append(*fill);
  builder.Append(text);
  for (int64_t i = left; i < missing && !builder.overflowed(); ++i) builder.Append(*fill);
  return Finish(call, builder, result);
}

bool ZeroFill(Call& call, Value* result) {
  int64_t width = 0;
  if (!call.Integer(0, "width", &width)) return false;
  const Text& text = Self(call);
  const int64_t missing = width - static_cast<int64_t>(CountCharacters(text.bytes()));
  const bool has_sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  TextBuilder builder = call.heap().Builder();
  builder.AppendPart(text, 0, has_sign ? 1 : 0);
  for (int64_t i = 0; i < missing && !builder.overflowed(); ++i) builder.Append("0", kTemplate);
  builder.AppendPart(text, has_sign ? 1 : 0, text.size());
  return Finish(call, builder, result);
}

bool Format(Call& call, Value* result) {
  const Text* text = nullptr;
  if (!FormatBraces(call, call.self, &text)) return false;
  *result = Value::String(text);
  return true;
}

constexpr Builtin kMethods[] = {
    {"strip", "chars", 0, Strip<true, true>},
    {"lstrip", "chars", 0, Strip<true, false>},
    {"rstrip", "chars", 0, Strip<false, true>},
    {"startswith", "prefix,start,end", 1, Edge<false>},
    {"endswith", "suffix,start,end", 1, Edge<true>},
    {"replace", "old,new,count", 2, Replace},
    {"format", "*", 0, Format},
    {"join", "iterable", 1, Join},
    {"upper", "", 0, Recase<Change::kUpper>},
    {"lower", "", 0, Recase<Change::kLower>},
    {"casefold", "", 0, Recase<Change::kLower>},
    {"capitalize", "", 0, Recase<Change::kCapitalize>},
    {"title", "", 0, Recase<Change::kTitle>},
    {"swapcase", "", 0, Recase<Change::kSwap>},
    {"find", "sub,start,end", 1, Find<false, false>},
    {"rfind", "sub,start,end", 1, Find<true, false>},
    {"index", "sub,start,end", 1, Find<false, true>},
    {"rindex", "sub,start,end", 1, Find<true, true>},
    {"count", "sub,start,end", 1, Count},
    {"removeprefix", "prefix", 1, Remove<false>},
    {"removesuffix", "prefix", 1, Remove<true>},
    {"isspace", "", 0, All<IsSpace>},
    {"isalpha", "", 0, All<IsLetter>},
    {"isdigit", "", 0, All<IsDecimal>},
    {"isdecimal", "", 0, All<IsDecimal>},
    {"isnumeric", "", 0, All<IsNumeric>},
    {"isalnum", "", 0, All<IsLetterOrNumber>},
    {"isascii", "", 0, IsAscii},
    {"isupper", "", 0, IsCase<kUpper>},
    {"islower", "", 0, IsCase<kLower>},
    {"ljust", "width,fillchar", 1, Pad<Side::kLeft>},
    {"rjust", "width,fillchar", 1, Pad<Side::kRight>},
    {"center", "width,fillchar", 1, Pad<Side::kBoth>},
    {"zfill", "width", 1, ZeroFill},
};

}  // namespace

const Builtin* FindStringMethod(std::string_view name) {
  const Builtin* found = FindSplitMethod(name);
  return found != nullptr ? found : FindIn(kMethods, name);
}

}  // namespace kuiper::jinja
