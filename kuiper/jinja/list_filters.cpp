// Filters of lists and dicts.
#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"
#include "kuiper/jinja/markup.h"
#include "kuiper/jinja/print.h"

namespace kuiper::jinja {
namespace {

bool Length(Call& call, Value* result) {
  const Value& v = call.self;
  size_t length = 0;
  if (v.Is(Kind::kString)) {
    length = CountCharacters(v.bytes());
    if (!call.run.Work(call.node, length / 64)) return false;
  } else if (v.IsSequence() || v.Is(Kind::kView)) {
    length = v.list->items.size();
  } else if (v.Is(Kind::kDict)) {
    length = v.dict->entries.size();
  } else if (!v.Is(Kind::kUndefined)) {
    return call.Fail("object of type " + QuotedType(v) + " has no len()");
  }
  *result = Value::Int(static_cast<int64_t>(length));
  return true;
}

bool Default(Call& call, Value* result) {
  const bool missing = call.self.Is(Kind::kUndefined) || (call.Flag(1) && !IsTrue(call.self));
  *result = !missing        ? call.self
            : call.Given(0) ? call.args[0]
                            : Value::String(call.heap().Refer("", kTemplate));
  return true;
}

bool ToList(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  List* list = call.heap().NewList();
  for (const Value& item : items->items) call.heap().Push(list, item);
  *result = Value::OfList(list);
  return true;
}

bool First(Call& call, Value* result) {
  if (call.self.Is(Kind::kGenerator)) {
    std::vector<Value>& items = call.self.list->items;
    *result = items.empty() ? Value::Undefined(&call.node) : items.front();
    if (!items.empty()) items.erase(items.begin());
    return true;
  }
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  *result = items->items.empty() ? Value::Undefined(&call.node) : items->items.front();
  return true;
}

bool Last(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  *result = items->items.empty() ? Value::Undefined(&call.node) : items->items.back();
  if (call.self.is_markup) MarkAsMarkup(result);
  return true;
}

// Returns a keyword argument of the call; null if it was not given.
const Value* Keyword(const Call& call, std::string_view name) {
  for (const auto& [key, value] : call.keywords) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Join(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  TextBuilder separator = call.heap().Builder();
  if (call.Given(0)) AppendStr(call.args[0], &separator);
  const Text* between = call.heap().Copy(separator);
  TextBuilder builder = call.heap().Builder();
  for (size_t i = 0; i < items->items.size() && !builder.overflowed(); ++i) {
    Value item = items->items[i];
    if (call.Given(1) && !Lookup(call, items->items[i], call.args[1], &item)) return false;
    if (i > 0) builder.Append(*between);
    AppendStr(item, &builder);
  }
  *result = Value::String(call.heap().Copy(builder));
  return true;
}

bool Items(Call& call, Value* result) {
  if (call.self.Is(Kind::kUndefined)) {
    *result = Value::OfList(call.heap().NewList(), Kind::kGenerator);
    return true;
  }
  if (!call.self.Is(Kind::kDict)) return call.Fail("can only get item pairs from a mapping");
  if (!FindMethod(Kind::kDict, "items")->function(call, result)) return false;
  result->kind = Kind::kGenerator;
  return true;
}

bool Sum(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  *result = call.Given(1) ? call.args[1] : Value::Int(0);
  for (const Value& item : items->items) {
    Value value = item;
    if (call.Given(0) && !Lookup(call, item, call.args[0], &value)) return false;
    if (!value.IsNumber() || !result->IsNumber()) return call.Fail("sum adds numbers");
    const bool data = value.from_data || result->from_data;
    int64_t sum = 0;
    if (!value.IsInteger() || !result->IsInteger()) {
      *result = Value::Float(result->AsDouble() + value.AsDouble(), data);
    } else if (__builtin_add_overflow(value.integer, result->integer, &sum)) {
      return call.Fail("the integer does not fit into 64 bits");
    } else {
      *result = Value::Int(sum, data);
    }
  }
  return true;
}

bool Reverse(Call& call, Value* result) {
  List* list = call.heap().NewList();
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  for (size_t i = items->items.size(); i-- > 0;) call.heap().Push(list, items->items[i]);
  *result = Value::OfList(list, Kind::kGenerator);
  if (!call.self.Is(Kind::kString)) return true;
  TextBuilder builder = call.heap().Builder();
  for (const Value& item : list->items) builder.Append(*item.text);
  *result = Value::String(call.heap().Copy(builder));
  result->is_markup = call.self.is_markup;
  return true;
}

bool Attr(Call& call, Value* result) {
  const Text* name = nullptr;
  if (!call.String(0, "name", &name)) return false;
  // Only attributes count; the entries of a dict are not attributes.
  *result = Value::Undefined(&call.node, call.self.kind);
  const bool has = FindMethod(call.self.kind, name->bytes()) != nullptr ||
                   call.self.Is(Kind::kNamespace) || call.self.Is(Kind::kLoop);
  return !has || Attribute(call.run, call.self, name->bytes(), call.node, result);
}

// Handles empty and other false values: map, select and the like return nothing for them, whatever
// their type.
bool IsNothing(const Call& call, Value* result) {
  if (IsTrue(call.self)) return false;
  *result = Value::OfList(call.heap().NewList(), Kind::kGenerator);
  return true;
}

// map("filter", arguments...) or map(attribute="name", default=value).
bool Map(Call& call, Value* result) {
  if (IsNothing(call, result)) return true;
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  const Value* attribute = Keyword(call, "attribute");
  const Value* otherwise = Keyword(call, "default");
  if (attribute == nullptr && (call.args.empty() || !call.args[0].Is(Kind::kString))) {
    return call.Fail("map requires a filter argument");
  }
  const std::vector<Value> rest(call.args.begin() + (call.args.empty() ? 0 : 1), call.args.end());
  List* list = call.heap().NewList();
  for (const Value& item : items->items) {
    Value value;
    if (attribute != nullptr) {
      if (!Lookup(call, item, *attribute, &value, otherwise)) return false;
    } else if (!CallFilter(call.run, call.args[0].bytes(), call.node, item, rest, call.keywords,
                           &value)) {
      return false;
    }
    call.heap().Push(list, value);
  }
  *result = Value::OfList(list, Kind::kGenerator);
  return true;
}

// select and reject test the item; selectattr and rejectattr test an attribute of it.
template <bool kWanted, bool kByAttribute>
bool Select(Call& call, Value* result) {
  if (IsNothing(call, result)) return true;
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  constexpr size_t kTest = kByAttribute ? 1 : 0;
  if (call.args.size() < kTest) return call.Fail("the name of an attribute is missing");
  const bool has_test = call.args.size() > kTest;
  if (has_test && !call.args[kTest].Is(Kind::kString)) return call.Fail("no name of a test");
  const std::vector<Value> rest(call.args.begin() + (has_test ? kTest + 1 : kTest),
                                call.args.end());
  List* list = call.heap().NewList();
  for (const Value& item : items->items) {
    Value value = item;
    if (kByAttribute && !Lookup(call, item, call.args[0], &value)) return false;
    bool holds = IsTrue(value);
    if (has_test && !CallTest(call.run, call.args[kTest].bytes(), call.node, value, rest, &holds)) {
      return false;
    }
    if (holds == kWanted) call.heap().Push(list, item);
  }
  *result = Value::OfList(list, Kind::kGenerator);
  return call.run.Work(call.node, items->items.size());
}

bool Batch(Call& call, Value* result) {
  int64_t size = 0;
  if (!call.Integer(0, "linecount", &size)) return false;
  if (size < 1 || size > (1 << 20)) return call.Fail("linecount is not a positive number");
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  Heap& heap = call.heap();
  List* batches = heap.NewList();
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (i % static_cast<size_t>(size) == 0) heap.Push(batches, Value::OfList(heap.NewList()));
    if (heap.is_full()) return call.run.Work(call.node, 0);
    heap.Push(batches->items.back().list, items->items[i]);
  }
  const bool fills = call.Given(1) && !call.args[1].Is(Kind::kNone) && !batches->items.empty();
  while (fills && batches->items.back().list->items.size() < static_cast<size_t>(size) &&
         !heap.is_full()) {
    heap.Push(batches->items.back().list, call.args[1]);
  }
  *result = Value::OfList(batches, Kind::kGenerator);
  return true;
}

constexpr Builtin kFilters[] = {
    {"length", "", 0, Length},
    {"count", "", 0, Length},
    {"default", "default_value,boolean", 0, Default},
    {"d", "default_value,boolean", 0, Default},
    {"list", "", 0, ToList},
    {"first", "", 0, First},
    {"last", "", 0, Last},
    {"join", "d,attribute", 0, Join},
    {"items", "", 0, Items},
    {"sum", "attribute,start", 0, Sum},
    {"reverse", "", 0, Reverse},
    {"attr", "name", 1, Attr},
    {"map", "*", 0, Map},
    {"select", "*", 0, Select<true, false>},
    {"reject", "*", 0, Select<false, false>},
    {"selectattr", "*", 0, Select<true, true>},
    {"rejectattr", "*", 0, Select<false, true>},
    {"batch", "linecount,fill_with", 1, Batch},
};

}  // namespace

const Builtin* FindListFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace kuiper::jinja
