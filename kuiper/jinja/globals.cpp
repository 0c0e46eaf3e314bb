// Global functions, and the methods of dicts and lists.
#include <algorithm>
#include <ctime>

#include "kuiper/base/text.h"
#include "kuiper/jinja/builtin.h"

namespace kuiper::jinja {
namespace {

// jinja2's sandbox has the same limit.
constexpr int64_t kMaxRange = 100000;

bool Range(Call& call, Value* result) {
  int64_t bounds[3] = {0, 0, 1};
  if (call.args.empty() || call.args.size() > 3 || !call.keywords.empty()) {
    return call.Fail("range() takes 1 to 3 integers");
  }
  bool data = false;
  for (size_t i = 0; i < call.args.size(); ++i) {
    if (!call.args[i].IsInteger()) return call.Fail("range() takes integers");
    bounds[call.args.size() == 1 ? 1 : i] = call.args[i].integer;
    data = data || call.args[i].from_data;
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return call.Fail("range() arg 3 must not be zero");
  const __int128 distance =
      step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > kMaxRange) {
    return call.Fail("range too big: at most " + std::to_string(kMaxRange) + " elements");
  }
  List* list = call.heap().NewList();
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    call.heap().Push(list, Value::Int(begin + i * step, data));
  }
  *result = Value::OfList(list);
  return call.run.Work(call.node, list->items.size());
}

bool RaiseException(Call& call, Value*) {
  return call.run.Raise(std::string(call.SelfText()->bytes()));
}

// Positional arguments are dicts or lists of pairs; keywords may replace their entries.
bool FillDict(Call& call, Dict* dict) {
  for (const Value& source : call.args) {
    if (source.Is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict->entries) call.heap().Set(dict, key, value);
      continue;
    }
    const List* pairs = Items(call.run, source, call.node);
    if (pairs == nullptr) return false;
    for (const Value& pair : pairs->items) {
      if (!pair.IsSequence() || pair.list->items.size() != 2 || !IsHashable(pair.list->items[0])) {
        return call.Fail("a dict is made of pairs");
      }
      call.heap().Set(dict, pair.list->items[0], pair.list->items[1]);
    }
  }
  for (const auto& [name, value] : call.keywords) {
    call.heap().Set(dict, Value::String(call.heap().Refer(name, kTemplate)), value);
  }
  return call.run.Work(call.node, dict->entries.size());
}

template <Kind kKind>
bool MakeDict(Call& call, Value* result) {
  if (call.args.size() > 1) return call.Fail("too many arguments");
  Dict* dict = call.heap().NewDict();
  *result = Value::OfDict(dict, kKind);
  return FillDict(call, dict);
}

bool StrftimeNow(Call& call, Value* result) {
  const Text* format = nullptr;
  if (!call.String(0, "format", &format)) return false;
  if (format->size() == 0) {
    *result = Value::String(format);
    return true;
  }
  // strftime returns 0 for an empty result and for overflow; the leading space distinguishes them.
  const std::string wanted = std::string(" ").append(format->bytes());
  char buffer[1024];
  const std::tm now = call.run.now();
  const size_t size = std::strftime(buffer, sizeof(buffer), wanted.c_str(), &now);
  if (size == 0) return call.Fail("strftime_now: the date is too long");
  *result = call.heap().Str({buffer + 1, size - 1}, format->runs()[0].origin);
  return true;
}

bool Raise(Call& call, Value* result) {
  call.self = call.args[0];
  return RaiseException(call, result);
}

constexpr Builtin kGlobals[] = {
    {"namespace", "*", 0, MakeDict<Kind::kNamespace>},
    {"dict", "*", 0, MakeDict<Kind::kDict>},
    {"range", "*", 0, Range},
    {"raise_exception", "message", 1, Raise},
    {"strftime_now", "format", 1, StrftimeNow},
};

bool Get(Call& call, Value* result) {
  if (!IsHashable(call.args[0])) {
    return call.Fail("unhashable type: " + QuotedType(call.args[0]));
  }
  const Value* found = call.self.dict->Find(call.args[0]);
  *result = found != nullptr ? *found : call.Given(1) ? call.args[1] : Value::None();
  return call.run.Work(call.node, call.self.dict->entries.size() / 8);
}

enum class Part { kKeys, kValues, kItems };

template <Part kPart>
bool Parts(Call& call, Value* result) {
  Heap& heap = call.heap();
  List* list = heap.NewList();
  for (const auto& [key, value] : call.self.dict->entries) {
    if (kPart != Part::kItems) {
      heap.Push(list, kPart == Part::kKeys ? key : value);
      continue;
    }
    List* pair = heap.NewList();
    heap.Push(pair, key);
    heap.Push(pair, value);
    heap.Push(list, Value::OfList(pair, Kind::kTuple));
  }
  *result = Value::OfList(list, Kind::kView);
  return call.run.Work(call.node, list->items.size());
}

bool CopyDict(Call& call, Value* result) {
  Dict* dict = call.heap().NewDict();
  for (const auto& [key, value] : call.self.dict->entries) {
    if (call.heap().Charge(4 * sizeof(Value))) dict->entries.emplace_back(key, value);
  }
  *result = Value::OfDict(dict);
  return true;
}

bool Refuse(Call& call, Value*) {
  return call.Fail("a template must not change a " + std::string(TypeName(call.self)));
}

constexpr Builtin kDictMethods[] = {
    {"get", "key,default", 1, Get},      {"items", "", 0, Parts<Part::kItems>},
    {"keys", "", 0, Parts<Part::kKeys>}, {"values", "", 0, Parts<Part::kValues>},
    {"copy", "", 0, CopyDict},           {"pop", "*", 0, Refuse},
    {"popitem", "*", 0, Refuse},         {"update", "*", 0, Refuse},
    {"setdefault", "*", 0, Refuse},      {"clear", "*", 0, Refuse},
};

bool Index(Call& call, Value* result) {
  const std::vector<Value>& items = call.self.list->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!AreEqual(items[i], call.args[0])) continue;
    *result = Value::Int(static_cast<int64_t>(i));
    return call.run.Work(call.node, i);
  }
  return call.Fail("the value is not in the " + std::string(TypeName(call.self)));
}

bool Count(Call& call, Value* result) {
  const std::vector<Value>& items = call.self.list->items;
  *result = Value::Int(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return AreEqual(item, call.args[0]); }));
  return call.run.Work(call.node, items.size());
}

constexpr Builtin kTupleMethods[] = {
    {"index", "value", 1, Index},
    {"count", "value", 1, Count},
};

constexpr Builtin kListMethods[] = {
    {"append", "*", 0, Refuse}, {"extend", "*", 0, Refuse},  {"insert", "*", 0, Refuse},
    {"pop", "*", 0, Refuse},    {"remove", "*", 0, Refuse},  {"clear", "*", 0, Refuse},
    {"sort", "*", 0, Refuse},   {"reverse", "*", 0, Refuse},
};

}  // namespace

const Builtin* FindGlobal(std::string_view name) {
  return FindIn(kGlobals, name);
}

const Builtin* FindMethod(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return FindStringMethod(name);
    case Kind::kDict:
      return FindIn(kDictMethods, name);
    case Kind::kList:
      if (const Builtin* method = FindIn(kListMethods, name)) return method;
      return FindIn(kTupleMethods, name);
    case Kind::kTuple:
      return FindIn(kTupleMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace kuiper::jinja
