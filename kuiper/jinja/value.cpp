#include "kuiper/jinja/value.h"

#include <algorithm>
#include <cstring>

namespace kuiper::jinja {
namespace {

// Deep enough for what people write; a namespace may hold itself.
constexpr int kMaxDepth = 64;

int Sign(double a, double b) {
  if (a < b) return -1;
  if (a > b) return 1;
  return a == b ? 0 : 2;
}

bool EqualLists(const List& a, const List& b, int depth);

bool EqualDicts(const Dict& a, const Dict& b, int depth);

bool Equal(const Value& a, const Value& b, int depth) {
  if (depth > kMaxDepth) return false;
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.integer == b.integer;
    return a.AsDouble() == b.AsDouble();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kBigInt:
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple:
      return EqualLists(*a.list, *b.list, depth);
    case Kind::kDict:
      return EqualDicts(*a.dict, *b.dict, depth);
    default:
      return a.integer == b.integer;  // the same object
  }
}

bool EqualLists(const List& a, const List& b, int depth) {
  return a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return Equal(x, y, depth + 1); });
}

bool EqualDicts(const Dict& a, const Dict& b, int depth) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other, depth + 1)) return false;
  }
  return true;
}

int Order(const Value& a, const Value& b, int depth) {
  if (depth > kMaxDepth) return 2;
  if (a.IsInteger() && b.IsInteger()) return (a.integer > b.integer) - (a.integer < b.integer);
  if (a.IsNumber() && b.IsNumber()) return Sign(a.AsDouble(), b.AsDouble());
  if (a.kind != b.kind) return 2;
  // UTF-8 bytes sort in the order of their code points.
  if (a.Is(Kind::kString)) {
    const int order = a.bytes().compare(b.bytes());
    return (order > 0) - (order < 0);
  }
  if (!a.IsSequence()) return 2;
  const std::vector<Value>&x = a.list->items, &y = b.list->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!Equal(x[i], y[i], depth + 1)) return Order(x[i], y[i], depth + 1);
  }
  return (x.size() > y.size()) - (x.size() < y.size());
}

}  // namespace

Value Value::Of(Kind kind, int64_t integer, bool data) {
  Value value;
  value.kind = kind;
  value.from_data = data;
  value.integer = integer;
  return value;
}

Value Value::Float(double real, bool data) {
  Value value = Of(Kind::kFloat, 0, data);
  value.real = real;
  return value;
}

Value Value::String(const Text* text, Kind kind) {
  Value value = Of(kind, 0);
  value.text = text;
  return value;
}

Value Value::OfList(List* list, Kind kind) {
  Value value = Of(kind, 0);
  value.list = list;
  return value;
}

Value Value::OfDict(Dict* dict, Kind kind) {
  Value value = Of(kind, 0);
  value.dict = dict;
  return value;
}

Value Value::Undefined(const Node* node, Kind owner) {
  Value value = Of(Kind::kUndefined, 0);
  value.owner = owner;
  value.node = node;
  return value;
}

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [k, value] : entries) {
    if (k.Is(Kind::kString) && k.bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.Is(Kind::kString)) return Find(key.bytes());
  for (const auto& [k, value] : entries) {
    if (AreEqual(k, key)) return &value;
  }
  return nullptr;
}

bool Heap::Charge(size_t bytes) {
  if (bytes > bytes_left()) {
    full_ = true;
    used_ = max_bytes_;
    return false;
  }
  used_ += bytes;
  return true;
}

char* Heap::Allocate(size_t size) {
  if (!Charge(size)) return nullptr;
  if (size > block_left_) {
    constexpr size_t kBlock = 1 << 16;
    block_left_ = std::max(size, kBlock);
    tip_ = blocks_.emplace_back(std::make_unique_for_overwrite<char[]>(block_left_)).get();
  }
  char* memory = tip_;
  tip_ += size;
  block_left_ -= size;
  return memory;
}

const Text* Heap::Refer(std::string_view bytes, Origin origin) {
  Charge(sizeof(Text));
  return &texts_.emplace_back(bytes, origin);
}

const Text* Heap::Copy(std::string_view bytes, Origin origin) {
  char* memory = Allocate(bytes.size());
  if (memory == nullptr || bytes.empty()) return Refer("", origin);
  std::memcpy(memory, bytes.data(), bytes.size());
  return Refer({memory, bytes.size()}, origin);
}

std::span<const Run> Heap::KeepRuns(std::span<const Run> runs) {
  if (!Charge(runs.size_bytes())) return {};
  return runs_.emplace_back(runs.begin(), runs.end());
}

const Text* Heap::Copy(const TextBuilder& builder) {
  if (builder.overflowed()) Charge(max_bytes_ + 1);
  const std::vector<Run>& runs = builder.runs();
  if (runs.size() <= 1) return Copy(builder.bytes(), runs.empty() ? kTemplate : runs[0].origin);
  char* memory = Allocate(builder.bytes().size());
  const std::span<const Run> kept = KeepRuns(runs);
  if (memory == nullptr || kept.empty()) return Refer("", kTemplate);
  std::memcpy(memory, builder.bytes().data(), builder.bytes().size());
  Charge(sizeof(Text));
  return &texts_.emplace_back(std::string_view(memory, builder.bytes().size()), kept);
}

const Text* Heap::Slice(const Text& text, size_t begin, size_t size) {
  const std::string_view bytes = text.bytes().substr(begin, size);
  if (text.runs().size() == 1) return Refer(bytes, text.runs()[0].origin);
  std::vector<Run> runs;
  size_t at = 0;
  const size_t end = begin + bytes.size();
  for (const Run& run : text.runs()) {
    const size_t first = std::max(begin, at), last = std::min(end, at + run.length);
    if (first < last) runs.push_back({last - first, run.origin});
    at += run.length;
  }
  if (runs.size() <= 1) return Refer(bytes, runs.empty() ? kTemplate : runs[0].origin);
  const std::span<const Run> kept = KeepRuns(runs);
  Charge(sizeof(Text));
  return kept.empty() ? Refer("", kTemplate) : &texts_.emplace_back(bytes, kept);
}

const Text* Heap::Concat(const Text& a, const Text& b) {
  if (a.size() == 0) return Slice(b, 0, b.size());
  if (b.size() == 0) return Slice(a, 0, a.size());
  // If `a` ends where the free memory begins, `b` is appended in place: existing texts end before
  // it.
  const bool continues = a.bytes().data() + a.size() == tip_ && b.size() <= block_left_ &&
                         a.bytes().data() >= blocks_.back().get();
  char* memory = Allocate(continues ? b.size() : a.size() + b.size());
  if (memory == nullptr) return Refer("", kTemplate);
  if (!continues) std::memcpy(memory, a.bytes().data(), a.size());
  std::memcpy(continues ? memory : memory + a.size(), b.bytes().data(), b.size());
  const std::string_view bytes(continues ? a.bytes().data() : memory, a.size() + b.size());
  if (a.runs().size() == 1 && b.runs().size() == 1 && a.runs()[0].origin == b.runs()[0].origin) {
    return Refer(bytes, a.runs()[0].origin);
  }
  std::vector<Run> runs(a.runs().begin(), a.runs().end());
  for (const Run& run : b.runs()) {
    if (runs.back().origin == run.origin) {
      runs.back().length += run.length;
    } else {
      runs.push_back(run);
    }
  }
  const std::span<const Run> kept = KeepRuns(runs);
  Charge(sizeof(Text));
  return kept.empty() ? Refer("", kTemplate) : &texts_.emplace_back(bytes, kept);
}

const Method* Heap::NewMethod(const Value& self, std::string_view name) {
  Method* method = Keep(&methods_);
  *method = {self, name};
  return method;
}

void Heap::Push(List* list, const Value& value) {
  if (Charge(2 * sizeof(Value))) list->items.push_back(value);
}

void Heap::Set(Dict* dict, const Value& key, const Value& value) {
  if (const Value* found = dict->Find(key); found != nullptr) {
    *const_cast<Value*>(found) = value;  // NOLINT: the dict is ours to change
    return;
  }
  if (Charge(4 * sizeof(Value))) dict->entries.emplace_back(key, value);
}

Value Heap::FromJson(const JsonNode& node, Origin origin) {
  switch (node.type) {
    case JsonNode::Type::kNull:
      return Value::None();
    case JsonNode::Type::kBool:
      return Value::Bool(node.boolean, true);
    case JsonNode::Type::kInt:
      if (const std::optional<int64_t> integer = node.AsInt()) return Value::Int(*integer, true);
      return Value::String(Refer(node.text, origin), Kind::kBigInt);
    case JsonNode::Type::kFloat:
      return Value::Float(node.AsDouble().value_or(0), true);
    case JsonNode::Type::kString:
      return Value::String(Refer(node.text, origin));
    case JsonNode::Type::kArray: {
      List* list = NewList();
      for (const JsonNode& item : node.items) Push(list, FromJson(item, origin));
      return Value::OfList(list);
    }
    case JsonNode::Type::kObject: {
      Dict* dict = NewDict();
      // The keys are unique.
      for (size_t i = 0; i < node.items.size() && Charge(4 * sizeof(Value)); ++i) {
        dict->entries.emplace_back(Value::String(Refer(node.keys[i], origin)),
                                   FromJson(node.items[i], origin));
      }
      return Value::OfDict(dict);
    }
  }
  return {};
}

bool IsTrue(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kString:
      return value.text->size() > 0;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return !value.list->items.empty();
    case Kind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

bool AreEqual(const Value& a, const Value& b) {
  return Equal(a, b, 0);
}

int Compare(const Value& a, const Value& b) {
  return Order(a, b, 0);
}

bool IsHashable(const Value& value) {
  return !value.Is(Kind::kList) && !value.Is(Kind::kDict);
}

std::string_view TypeName(Kind kind) {
  constexpr std::string_view kNames[] = {
      "Undefined", "NoneType", "bool",        "int",      "int",       "float",
      "str",       "list",     "tuple",       "view",     "generator", "dict",
      "Namespace", "Macro",    "LoopContext", "function", "method"};
  return kNames[static_cast<size_t>(kind)];
}

std::string QuotedType(const Value& value) {
  return std::string("'").append(TypeName(value)).append("'");
}

std::string_view TypeName(const Value& value) {
  return TypeName(value.kind);
}

}  // namespace kuiper::jinja
