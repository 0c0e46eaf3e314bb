// Elements, attributes and membership of values.
#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"
#include "kuiper/jinja/evaluator.h"
#include "kuiper/jinja/runtime.h"

namespace kuiper::jinja {
namespace {

bool LoopAttribute(const Loop& loop, std::string_view name, const Node& node, Value* result) {
  const int64_t index = static_cast<int64_t>(loop.index);
  const int64_t length = static_cast<int64_t>(loop.items->items.size());
  const std::pair<std::string_view, Value> attributes[] = {
      {"index0", Value::Int(index)},
      {"index", Value::Int(index + 1)},
      {"first", Value::Bool(index == 0)},
      {"last", Value::Bool(index + 1 == length)},
      {"length", Value::Int(length)},
      {"revindex", Value::Int(length - index)},
      {"revindex0", Value::Int(length - index - 1)},
      {"depth", Value::Int(loop.depth)},
      {"depth0", Value::Int(loop.depth - 1)},
  };
  for (const auto& [key, value] : attributes) {
    if (key != name) continue;
    *result = value;
    return true;
  }
  *result = Value::Undefined(&node, Kind::kLoop);
  if (name == "previtem" && loop.index > 0) *result = loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) *result = loop.items->items[loop.index + 1];
  return true;
}

}  // namespace

std::string UndefinedMessage(const Value& value) {
  const Node* node = value.node;
  if (node == nullptr) return "a value is undefined";
  const std::string name = std::string("'").append(node->name).append("'");
  if (node->kind == NodeKind::kName) return name + " is undefined";
  const std::string owner =
      std::string("'").append(TypeName(value.owner)).append(" object' has no ");
  if (node->kind == NodeKind::kAttribute) return owner + "attribute " + name;
  return node->kind == NodeKind::kElement ? owner + "such element" : "a value is undefined";
}

List* Items(Runtime& run, const Value& value, const Node& node) {
  if (value.Is(Kind::kGenerator)) {
    // A generator can be read only once.
    List* list = run.heap().NewList();
    list->items.swap(value.list->items);
    return list;
  }
  if (value.HasList()) return value.list;
  List* list = run.heap().NewList();
  switch (value.kind) {
    case Kind::kUndefined:
      return list;
    case Kind::kDict:
      for (const auto& [key, entry] : value.dict->entries) run.heap().Push(list, key);
      break;
    case Kind::kString:
      for (size_t at = 0; at < value.text->size() && !run.heap().is_full();) {
        const size_t size = FirstCharacter(value.bytes().substr(at)).size;
        run.heap().Push(list, Value::String(run.heap().Slice(*value.text, at, size)));
        at += size;
      }
      break;
    default:
      run.Fail(node, QuotedType(value) + " object is not iterable");
      return nullptr;
  }
  return run.Work(node, list->items.size()) ? list : nullptr;
}

bool Contains(Runtime& run, const Value& container, const Value& item, const Node& node,
              bool* result) {
  if (container.Is(Kind::kString)) {
    if (item.Is(Kind::kUndefined)) return run.Fail(node, UndefinedMessage(item));
    if (!item.Is(Kind::kString)) {
      return run.Fail(node, "'in <string>' requires string as left operand, not " +
                                std::string(TypeName(item)));
    }
    *result = container.bytes().find(item.bytes()) != std::string_view::npos;
    return run.Work(node, container.text->size() / 64);
  }
  if (container.Is(Kind::kDict)) {
    if (!IsHashable(item)) return run.Fail(node, "unhashable type: " + QuotedType(item));
    *result = container.dict->Find(item) != nullptr;
    return run.Work(node, container.dict->entries.size() / 8);
  }
  const List* list = Items(run, container, node);
  if (list == nullptr) return false;
  *result = std::any_of(list->items.begin(), list->items.end(),
                        [&](const Value& v) { return AreEqual(v, item); });
  return run.Work(node, list->items.size());
}

bool Attribute(Runtime& run, const Value& object, std::string_view name, const Node& node,
               Value* result) {
  if (object.Is(Kind::kUndefined)) return run.Fail(node, UndefinedMessage(object));
  if (object.Is(Kind::kLoop)) return LoopAttribute(*object.loop, name, node, result);
  *result = Value::Undefined(&node, object.kind);
  if (FindMethod(object.kind, name) != nullptr) {
    *result = Value::Undefined(&node);
    result->kind = Kind::kMethod;
    result->method = run.heap().NewMethod(object, name);
  } else if (object.Is(Kind::kDict) || object.Is(Kind::kNamespace)) {
    if (const Value* found = object.dict->Find(name)) *result = *found;
  } else if (object.Is(Kind::kMacro) && name == "name") {
    *result = Value::String(run.heap().Refer(object.macro->node->name, kTemplate));
  }
  return true;
}

bool Element(Runtime& run, const Value& object, const Value& key, const Node& node, Value* result) {
  if (object.Is(Kind::kUndefined)) return run.Fail(node, UndefinedMessage(object));
  *result = Value::Undefined(&node, object.kind);
  if (object.Is(Kind::kDict)) {
    if (!run.Work(node, object.dict->entries.size() / 8)) return false;
    if (const Value* found = object.dict->Find(key)) {
      *result = *found;
      return true;
    }
  } else if (key.IsInteger() && (object.IsSequence() || object.Is(Kind::kString))) {
    const bool is_text = object.Is(Kind::kString);
    const size_t length = is_text ? CountCharacters(object.bytes()) : object.list->items.size();
    const int64_t size = static_cast<int64_t>(length);
    const int64_t index = key.integer < 0 ? key.integer + size : key.integer;
    if (!run.Work(node, is_text ? length / 16 : 0)) return false;
    if (index < 0 || index >= size) return true;
    if (!is_text) {
      *result = object.list->items[static_cast<size_t>(index)];
      return true;
    }
    const size_t at = ByteOfCharacter(object.bytes(), static_cast<size_t>(index));
    const size_t bytes = FirstCharacter(object.bytes().substr(at)).size;
    *result = Value::String(run.heap().Slice(*object.text, at, bytes));
    result->is_markup = object.is_markup;
    return true;
  }
  if (!key.Is(Kind::kString)) return true;
  return Attribute(run, object, key.bytes(), node, result);
}

}  // namespace kuiper::jinja
