// String methods that split, as in Python's str. Parts keep the origin of their bytes.
#include <algorithm>
#include <string>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"

namespace kuiper::jinja {
namespace {

const Text& Self(const Call& call) {
  return *call.self.text;
}

bool PushPart(Call& call, size_t begin, size_t end, List* list) {
  call.heap().Push(list, Value::String(call.heap().Slice(Self(call), begin, end - begin)));
  return !call.heap().is_full();
}

// Splits at white space into at most `limit` + 1 words.
bool SplitWords(Call& call, int64_t limit, List* list) {
  const std::string_view text = Self(call).bytes();
  size_t at = LeadingSpace(text);
  while (at < text.size()) {
    size_t end = at;
    if (limit-- == 0) {
      PushPart(call, at, text.size(), list);
      break;
    }
    while (end < text.size()) {
      const Character c = FirstCharacter(text.substr(end));
      if (IsSpace(c.code)) break;
      end += c.size;
    }
    if (!PushPart(call, at, end, list)) break;
    at = end + LeadingSpace(text.substr(end));
  }
  return true;
}

bool SplitWordsFromRight(Call& call, int64_t limit, List* list) {
  const std::string_view text = Self(call).bytes();
  size_t end = text.size() - TrailingSpace(text);
  while (end > 0) {
    if (limit-- == 0) {
      PushPart(call, 0, end, list);
      break;
    }
    size_t at = end;
    while (at > 0 && TrailingSpace(text.substr(0, at)) == 0) --at;
    if (!PushPart(call, at, end, list)) break;
    end = at - TrailingSpace(text.substr(0, at));
  }
  std::reverse(list->items.begin(), list->items.end());
  return true;
}

bool Separator(Call& call, const Text** separator, int64_t* limit) {
  *separator = nullptr;
  *limit = -1;
  if (!call.Integer(1, "maxsplit", limit)) return false;
  if (*limit < 0) *limit = INT64_MAX;
  if (!call.Given(0) || call.args[0].Is(Kind::kNone)) return true;
  if (!call.String(0, "sep", separator)) return false;
  return (*separator)->size() > 0 || call.Fail("empty separator");
}

bool Split(Call& call, Value* result) {
  const Text* separator = nullptr;
  int64_t limit = 0;
  if (!Separator(call, &separator, &limit)) return false;
  List* list = call.heap().NewList();
  *result = Value::OfList(list);
  if (separator == nullptr) return SplitWords(call, limit, list);
  const std::string_view text = Self(call).bytes();
  size_t at = 0;
  for (; limit > 0; --limit) {
    const size_t found = text.find(separator->bytes(), at);
    if (found == std::string_view::npos || !PushPart(call, at, found, list)) break;
    at = found + separator->size();
  }
  PushPart(call, at, text.size(), list);
  return true;
}

bool SplitFromRight(Call& call, Value* result) {
  const Text* separator = nullptr;
  int64_t limit = 0;
  if (!Separator(call, &separator, &limit)) return false;
  List* list = call.heap().NewList();
  *result = Value::OfList(list);
  if (separator == nullptr) return SplitWordsFromRight(call, limit, list);
  const std::string_view text = Self(call).bytes();
  size_t end = text.size();
  for (; limit > 0; --limit) {
    const size_t found = text.substr(0, end).rfind(separator->bytes());
    if (found == std::string_view::npos) break;
    if (!PushPart(call, found + separator->size(), end, list)) break;
    end = found;
  }
  PushPart(call, 0, end, list);
  std::reverse(list->items.begin(), list->items.end());
  return true;
}

bool SplitLines(Call& call, Value* result) {
  const std::string_view text = Self(call).bytes();
  List* list = call.heap().NewList();
  *result = Value::OfList(list);
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = FirstCharacter(text.substr(at));
    const size_t end = at;
    at += c.size;
    if (!IsLineBreak(c.code)) continue;
    if (c.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    if (!PushPart(call, begin, call.Flag(0) ? at : end, list)) return true;
    begin = at;
  }
  if (begin < text.size()) PushPart(call, begin, text.size(), list);
  return true;
}

bool Partition(Call& call, Value* result) {
  const Text* separator = nullptr;
  if (!call.String(0, "sep", &separator)) return false;
  if (separator->size() == 0) return call.Fail("empty separator");
  const size_t size = Self(call).size();
  const size_t found = Self(call).bytes().find(separator->bytes());
  const size_t middle = std::min(found, size);
  List* list = call.heap().NewList();
  *result = Value::OfList(list, Kind::kTuple);
  PushPart(call, 0, middle, list);
  PushPart(call, middle, found > size ? size : middle + separator->size(), list);
  PushPart(call, found > size ? size : middle + separator->size(), size, list);
  return true;
}

bool PartitionFromRight(Call& call, Value* result) {
  const Text* separator = nullptr;
  if (!call.String(0, "sep", &separator)) return false;
  if (separator->size() == 0) return call.Fail("empty separator");
  const size_t size = Self(call).size();
  const size_t found = Self(call).bytes().rfind(separator->bytes());
  List* list = call.heap().NewList();
  *result = Value::OfList(list, Kind::kTuple);
  const bool none = found == std::string_view::npos;
  PushPart(call, 0, none ? 0 : found, list);
  PushPart(call, none ? 0 : found, none ? 0 : found + separator->size(), list);
  PushPart(call, none ? 0 : found + separator->size(), size, list);
  return true;
}

constexpr Builtin kMethods[] = {
    {"split", "sep,maxsplit", 0, Split},          {"rsplit", "sep,maxsplit", 0, SplitFromRight},
    {"splitlines", "keepends", 0, SplitLines},    {"partition", "sep", 1, Partition},
    {"rpartition", "sep", 1, PartitionFromRight},
};

}  // namespace

const Builtin* FindSplitMethod(std::string_view name) {
  return FindIn(kMethods, name);
}

}  // namespace kuiper::jinja
