// Parses and checks text values of variables. Flags, /set, request fields and server settings share
// its ranges and error messages.
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
  std::vector<std::string> refused;  // names of values that are not supported yet
  std::function<void(size_t)> set;   // takes an index into `names`
  std::function<size_t()> get;
};

// Example: OneOf(&kind, {{"fast", Kind::kFast}, {"small", Kind::kSmall}})
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

// The type determines the syntax. Commas separate the numbers of a list and the entries
// "KEY:NUMBER" of a map, whose keys are whole numbers from 0. Each value of a list of strings adds
// one string. An optional stays absent until it is set.
using Variable =
    std::variant<bool*, int*, int64_t*, uint64_t*, float*, double*, std::string*, std::vector<int>*,
                 std::vector<std::string>*, std::map<int, float>*, std::optional<bool>*,
                 std::optional<int>*, std::optional<int64_t>*, std::optional<uint64_t>*,
                 std::optional<double>*, std::optional<std::string>*, Device*,
                 std::optional<Device>*, NamedValues>;

// The allowed values of a number. If `min` of a uint64 is -1, any negative number is allowed and
// stored as 2^64-1; there is no other way to write that value.
struct Limits {
  double min = 0;
  double max = INT32_MAX;
  bool above_min = false;             // exclude min itself
  bool power_of_two = false;          // must be a whole power of two
  bool bytes = false;                 // allow a suffix K, M or G
  std::optional<int> automatic = {};  // allow "auto" for an int, which means this value
  const char* absent = nullptr;       // the word that makes an optional absent
  std::optional<int> minus_one = {};  // allow -1 for an int, which means this value
};

// Stores the value of `text`. kInvalidArgument; its message names the variable as `spelled`.
Status SetVariable(const Variable& variable, const Limits& limits, const std::string& spelled,
                   const std::string& text);
// Returns the value as SetVariable reads it, sizes as in "1G"; "" if it is absent or empty.
std::string VariableText(const Variable& variable, const Limits& limits = {});

// True for switches, which take true and false, on and off, yes and no, 1 and 0.
bool IsSwitch(const Variable& variable);
// Returns the placeholder of the value in a list of variables: "N", "F", "SIZE", "on|off". Returns
// "" for a switch, which needs no value, and for texts.
std::string ValueName(const Variable& variable, const Limits& limits);

}  // namespace kuiper
