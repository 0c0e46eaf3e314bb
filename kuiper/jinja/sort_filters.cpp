// Filters that order values or compare them for equality.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"

namespace kuiper::jinja {
namespace {

// Returns the key to sort by: strings in lower case unless case_sensitive.
Value SortKey(Call& call, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.Is(Kind::kString)) return value;
  std::string lower;
  for (size_t at = 0; at < value.text->size();) {
    const Character c = FirstCharacter(value.bytes().substr(at));
    AppendCase(c.code, Case::kLower, &lower);
    at += c.size;
  }
  return call.heap().Str(lower, kTemplate);
}

// Sorts by `keys`, one per item. Fails, as Python does, if two keys cannot be ordered.
bool SortBy(Call& call, const std::vector<Value>& keys, bool reverse, std::vector<Value>* items) {
  std::vector<size_t> order(items->size());
  std::iota(order.begin(), order.end(), size_t{0});
  bool comparable = true;
  for (size_t i = 0; i < keys.size() && comparable; ++i) {
    if (keys[i].Is(Kind::kUndefined) && keys.size() > 1) {
      return call.Fail(UndefinedMessage(keys[i]));
    }
    comparable = Compare(keys[i], keys[0]) != 2 || AreEqual(keys[i], keys[0]);
  }
  if (!comparable) return call.Fail("the values have no order");
  // Elements of lists may still be unordered; those count as equal.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return Compare(keys[reverse ? b : a], keys[reverse ? a : b]) == -1;
  });
  std::vector<Value> sorted;
  for (size_t i : order) sorted.push_back((*items)[i]);
  *items = std::move(sorted);
  return call.run.Work(call.node, 8 * items->size());
}

bool DictSort(Call& call, Value* result) {
  if (!call.self.Is(Kind::kDict)) return call.Fail("dictsort sorts a mapping");
  bool by_value = false;
  if (call.Given(1)) {
    const Text* by = nullptr;
    if (!call.String(1, "by", &by)) return false;
    by_value = by->bytes() == "value";
    if (!by_value && by->bytes() != "key") return call.Fail("by is neither \"key\" nor \"value\"");
  }
  if (!FindMethod(Kind::kDict, "items")->function(call, result)) return false;
  std::vector<Value> keys;
  for (const Value& pair : result->list->items) {
    keys.push_back(SortKey(call, pair.list->items[by_value ? 1 : 0], call.Flag(0)));
  }
  result->kind = Kind::kList;
  return SortBy(call, keys, call.Flag(2), &result->list->items);
}

// Computes the key with which `sort` orders an item: the item, an attribute, or several ("a,b").
bool SortKeyOf(Call& call, const Value& item, Value* result) {
  *result = SortKey(call, item, call.Flag(1));
  if (!call.Given(2) || call.args[2].Is(Kind::kNone)) return true;
  const Value& attribute = call.args[2];
  std::string_view rest = attribute.Is(Kind::kString) ? attribute.bytes() : "";
  List* parts = call.heap().NewList();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    Value name = attribute, part;
    if (attribute.Is(Kind::kString)) {
      name = Value::String(call.heap().Refer(rest.substr(0, comma), kTemplate));
    }
    if (!Lookup(call, item, name, &part)) return false;
    call.heap().Push(parts, SortKey(call, part, call.Flag(1)));
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  *result = Value::OfList(parts);
  return true;
}

bool Sort(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  List* list = call.heap().NewList();
  for (const Value& item : items->items) call.heap().Push(list, item);
  *result = Value::OfList(list);
  std::vector<Value> keys;
  for (const Value& item : result->list->items) {
    if (!SortKeyOf(call, item, &keys.emplace_back())) return false;
  }
  return SortBy(call, keys, call.Flag(0), &result->list->items);
}

bool Unique(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  List* list = call.heap().NewList();
  std::vector<Value> seen;
  for (const Value& item : items->items) {
    Value key = item;
    if (call.Given(1) && !Lookup(call, item, call.args[1], &key)) return false;
    key = SortKey(call, key, call.Flag(0));
    if (!IsHashable(key)) return call.Fail("unhashable type: " + QuotedType(key));
    if (!call.run.Work(call.node, seen.size())) return false;
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& v) { return AreEqual(v, key); })) {
      continue;
    }
    seen.push_back(key);
    call.heap().Push(list, item);
  }
  *result = Value::OfList(list, Kind::kGenerator);
  return true;
}

template <int kSign>
bool Extreme(Call& call, Value* result) {
  const List* items = Items(call.run, call.self, call.node);
  if (items == nullptr) return false;
  *result = Value::Undefined(&call.node);
  Value best_key;
  for (const Value& item : items->items) {
    Value key = item;
    if (call.Given(1) && !Lookup(call, item, call.args[1], &key)) return false;
    key = SortKey(call, key, call.Flag(0));
    const bool first = &item == items->items.data();
    const int order = first ? kSign : Compare(key, best_key);
    if (order == 2) return call.Fail("the values have no order");
    if (order != kSign) continue;
    best_key = key;
    *result = item;
  }
  return true;
}

// Returns a list of tuples (grouper, items), ordered by grouper.
bool GroupBy(Call& call, Value* result) {
  const List* all = Items(call.run, call.self, call.node);
  if (all == nullptr) return false;
  std::vector<Value> items = all->items, keys;
  const auto grouper = [&](const Value& item, Value* name) {
    return Lookup(call, item, call.args[0], name, call.Given(1) ? &call.args[1] : nullptr);
  };
  for (const Value& item : items) {
    Value name;
    if (!grouper(item, &name)) return false;
    keys.push_back(SortKey(call, name, call.Flag(2)));
  }
  if (!SortBy(call, keys, false, &items)) return false;
  Heap& heap = call.heap();
  List* groups = heap.NewList();
  Value last_key;
  for (const Value& item : items) {
    Value name;
    if (!grouper(item, &name)) return false;
    const Value key = SortKey(call, name, call.Flag(2));
    if (groups->items.empty() || !AreEqual(key, last_key)) {
      List* group = heap.NewList();
      heap.Push(group, name);
      heap.Push(group, Value::OfList(heap.NewList()));
      heap.Push(groups, Value::OfList(group, Kind::kTuple));
      last_key = key;
    }
    if (heap.is_full()) return call.run.Work(call.node, 0);
    heap.Push(groups->items.back().list->items[1].list, item);
  }
  *result = Value::OfList(groups);
  return true;
}

constexpr Builtin kFilters[] = {
    {"dictsort", "case_sensitive,by,reverse", 0, DictSort},
    {"sort", "reverse,case_sensitive,attribute", 0, Sort},
    {"unique", "case_sensitive,attribute", 0, Unique},
    {"min", "case_sensitive,attribute", 0, Extreme<-1>},
    {"max", "case_sensitive,attribute", 0, Extreme<1>},
    {"groupby", "attribute,default,case_sensitive", 1, GroupBy},
};

}  // namespace

const Builtin* FindSortFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace kuiper::jinja
