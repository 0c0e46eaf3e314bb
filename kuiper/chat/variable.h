// Text that people write -> a variable, checked: the values of flags, of /set, of the fields of a
// request and of a server's settings have one set of ranges and error messages. Knows none of them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kuiper/base/device.h"
#include "kuiper/base/status.h"

namespace kuiper {

// A variable whose values have names; made by OneOf.
struct NamedValues {
  std::vector<std::string> names;
  std::vector<std::string> refused;  // names of what is not there yet
  std::function<void(size_t)> set;   // by the place in `names`
  std::function<size_t()> get;
};

// OneOf(&kind, {{"fast", Kind::kFast}, {"small", Kind::kSmall}})
template <typename T>
NamedValues OneOf(T* variable,
                  std::initializer_list<std::pair<const char*, std::type_identity_t<T>>> values,
                  std::vector<std::string> refused = {}) {
  std::vector<T> of;
  NamedValues named{{}, std::move(refused), {}, {}};
  for (const auto& [name, value] : values) {
    named.names.push_back(name);
    of.push_back(value);
  }
  named.set = [variable, of](size_t i) { *variable = of.at(i); };
  named.get = [variable, of] {
    size_t i = 0;
    while (i + 1 < of.size() && of[i] != *variable) ++i;
    return i;
  };
  return named;
}

// The type says what may be written. Lists of numbers are separated by commas, as are entries
// "KEY:NUMBER" of a map, whose keys are whole numbers from 0; a list of strings takes one more with
// each value. What is optional stays absent until it is set.
using Variable =
    std::variant<bool*, int*, int64_t*, uint64_t*, float*, double*, std::string*, std::vector<int>*,
                 std::vector<std::string>*, std::map<int, float>*, std::optional<bool>*,
                 std::optional<int>*, std::optional<int64_t>*, std::optional<uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, Device*,
                 std::optional<Device>*, NamedValues>;

// What a number may be. A uint64 of at least -1 may be any negative number, which is stored as
// 2^64-1 and is the only way to write that.
struct Limits {
  double min = 0;
  double max = INT32_MAX;
  bool above_min = false;             // min itself is too small
  bool power_of_two = false;          // and whole
  bool bytes = false;                 // with an optional K, M or G
  std::optional<int> automatic = {};  // an int may be the word "auto", which stands for this
  const char* absent = nullptr;       // the word by which what is optional becomes absent
  std::optional<int> minus_one = {};  // an int may be -1, which stands for this
};

// Stores the value of `text`. kInvalidArgument, naming the variable as `spelled`.
Status SetVariable(const Variable& variable, const Limits& limits, const std::string& spelled,
                   const std::string& text);
// The value as SetVariable reads it, sizes as in "1G"; "" for what is absent or empty.
std::string VariableText(const Variable& variable, const Limits& limits = {});

// true and false, on and off, yes and no, 1 and 0.
bool IsSwitch(const Variable& variable);
// What a list of variables writes for the value: "N", "F", "SIZE", "on|off"; "" for a switch, which
// needs none, and for texts.
std::string ValueName(const Variable& variable, const Limits& limits);

}  // namespace kuiper
