// Values of the template language, with Python's semantics. They are small, copied freely, and
// point into a Heap that owns all their data and frees it at once. A Heap bounds the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/jinja/text.h"

namespace kuiper::jinja {

struct Node;
struct List;
struct Dict;
struct Macro;
struct Loop;
struct Method;
struct Builtin;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer of the data beyond 64 bits; supports printing and comparison with itself
  kFloat,
  kString,
  kList,
  kTuple,
  kView,       // the result of items(), keys() and values()
  kGenerator,  // the result of map, select and the like; it can be read once
  kDict,
  kNamespace,
  kMacro,
  kLoop,
  kGlobal,  // a global function
  kMethod,  // a method with the value that it belongs to
};

struct Value {
  Kind kind = Kind::kUndefined;
  // kUndefined: the kind of the value that lacks the attribute or element.
  Kind owner = Kind::kUndefined;
  // Number or truth value: computed from data.
  bool from_data = false;
  bool is_markup = false;  // kString: HTML, see markup.h
  union {
    int64_t integer = 0;  // kBool, kInt
    double real;
    const Text* text;  // kString, kBigInt
    List* list;        // kList, kTuple, kView, kGenerator
    Dict* dict;        // kDict, kNamespace
    const Macro* macro;
    Loop* loop;
    const Method* method;
    const Node* node;        // kUndefined: the expression without a value; may be null
    const Builtin* builtin;  // kGlobal
  };

  static Value None() { return Of(Kind::kNone, 0); }
  static Value Bool(bool value, bool data = false) { return Of(Kind::kBool, value ? 1 : 0, data); }
  static Value Int(int64_t value, bool data = false) { return Of(Kind::kInt, value, data); }
  static Value Float(double value, bool data = false);
  static Value String(const Text* text, Kind kind = Kind::kString);
  static Value OfList(List* list, Kind kind = Kind::kList);
  static Value OfDict(Dict* dict, Kind kind = Kind::kDict);
  static Value Undefined(const Node* node, Kind owner = Kind::kUndefined);

  bool Is(Kind k) const { return kind == k; }
  bool IsSequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  bool HasList() const { return kind >= Kind::kList && kind <= Kind::kGenerator; }
  // A bool counts as a number, as in Python.
  bool IsInteger() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool IsNumber() const { return IsInteger() || kind == Kind::kFloat; }
  double AsDouble() const { return kind == Kind::kFloat ? real : static_cast<double>(integer); }
  std::string_view bytes() const { return text->bytes(); }
  Origin origin() const { return from_data ? kData : kTemplate; }

 private:
  static Value Of(Kind kind, int64_t integer, bool data = false);
};

struct List {
  std::vector<Value> items;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in insertion order

  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;
};

struct Method {
  Value self;
  std::string_view name;
};

// Owns everything that values point to. Not thread-safe.
class Heap {
 public:
  explicit Heap(size_t max_bytes) : max_bytes_(max_bytes) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // `bytes` must outlive the heap.
  const Text* Refer(std::string_view bytes, Origin origin);
  const Text* Copy(std::string_view bytes, Origin origin);
  const Text* Copy(const TextBuilder& builder);
  const Text* Slice(const Text& text, size_t begin, size_t size);
  // Takes linear time in total if the same text is extended repeatedly.
  const Text* Concat(const Text& a, const Text& b);
  Value Str(std::string_view bytes, Origin origin) { return Value::String(Copy(bytes, origin)); }

  List* NewList() { return Keep(&lists_); }
  Dict* NewDict() { return Keep(&dicts_); }
  const Method* NewMethod(const Value& self, std::string_view name);
  void Push(List* list, const Value& value);
  // Sets the value of a key, replacing an existing one.
  void Set(Dict* dict, const Value& key, const Value& value);

  // The strings of `node` are not copied: `node` must outlive the heap.
  Value FromJson(const JsonNode& node, Origin origin);

  size_t bytes_left() const { return used_ < max_bytes_ ? max_bytes_ - used_ : 0; }
  // True if a request did not fit; values created since then may be truncated.
  bool is_full() const { return full_; }
  size_t max_bytes() const { return max_bytes_; }
  TextBuilder Builder() const { return TextBuilder(bytes_left()); }
  bool Charge(size_t bytes);

 private:
  template <typename T>
  T* Keep(std::deque<T>* store) {
    Charge(sizeof(T));
    return &store->emplace_back();
  }
  // Returns `size` bytes; null if the heap is full.
  char* Allocate(size_t size);
  std::span<const Run> KeepRuns(std::span<const Run> runs);

  size_t max_bytes_;
  size_t used_ = 0;
  bool full_ = false;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* tip_ = nullptr;  // start of the free part of the last block
  size_t block_left_ = 0;
  std::deque<Text> texts_;
  std::deque<std::vector<Run>> runs_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Method> methods_;
};

// Python's bool(value).
bool IsTrue(const Value& value);
// Python's ==.
bool AreEqual(const Value& a, const Value& b);
// Returns -1, 0 or 1; 2 if Python cannot order the values.
int Compare(const Value& a, const Value& b);
// True if the value can be a key of a dict.
bool IsHashable(const Value& value);
// Returns Python's name of the type, e.g. "dict".
std::string_view TypeName(const Value& value);
std::string_view TypeName(Kind kind);
std::string QuotedType(const Value& value);  // 'dict'

}  // namespace kuiper::jinja
