// Filters, tests, global functions and methods, as tables of functions of the same type.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/jinja/ast.h"
#include "kuiper/jinja/runtime.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

using Keywords = std::vector<std::pair<std::string_view, Value>>;

// One call of a builtin. With named parameters, `args` has one element per parameter; an argument
// that was not given is undefined and has no node.
struct Call {
  Runtime& run;
  const Node& node;  // for messages
  Value self;        // what the filter, test or method is applied to
  std::vector<Value> args;
  Keywords keywords;

  Heap& heap() const;
  bool Fail(const std::string& message) const;
  bool Given(size_t i) const { return !(args[i].Is(Kind::kUndefined) && args[i].node == nullptr); }
  // Reads an optional parameter; a value of another type fails with a message that names it.
  bool Integer(size_t i, const char* name, int64_t* value) const;
  bool Flag(size_t i) const { return Given(i) && IsTrue(args[i]); }
  // Reads a string parameter; any other value fails with a message that names it.
  bool String(size_t i, const char* name, const Text** text) const;
  // Returns `self` as Python's str() prints it.
  const Text* SelfText() const;
};

struct Builtin {
  std::string_view name;
  // Names separated by commas; "*" accepts any arguments.
  std::string_view parameters;
  int required;
  bool (*function)(Call& call, Value* result);
};

// Return null if there is none.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindGlobal(std::string_view name);
// Finds methods of strings, dicts, lists and tuples.
const Builtin* FindMethod(Kind kind, std::string_view name);

// Assigns the given arguments to the parameters of `builtin`, as Python does.
bool Bind(const Builtin& builtin, Call* call);

bool CallBuiltin(Runtime& run, const Builtin& builtin, const Node& node, const Value& self,
                 std::vector<Value> args, Keywords keywords, Value* result);
// Call a builtin by name, for filters that apply other filters or tests.
bool CallFilter(Runtime& run, std::string_view name, const Node& node, const Value& self,
                std::vector<Value> args, Keywords keywords, Value* result);
bool CallTest(Runtime& run, std::string_view name, const Node& node, const Value& self,
              std::vector<Value> args, bool* result);

// Looks up an attribute as filters name it: "a", "a.b", or a number. Undefined parts become
// `otherwise`, if given.
bool Lookup(Call& call, const Value& item, const Value& attribute, Value* result,
            const Value* otherwise = nullptr);

// For the files of this folder only.
const Builtin* FindTextFilter(std::string_view name);
const Builtin* FindListFilter(std::string_view name);
const Builtin* FindSortFilter(std::string_view name);
const Builtin* FindStringMethod(std::string_view name);
const Builtin* FindSplitMethod(std::string_view name);
template <size_t kSize>
const Builtin* FindIn(const Builtin (&table)[kSize], std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace kuiper::jinja
