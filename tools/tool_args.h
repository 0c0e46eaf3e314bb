// The command line of the small tools: positionals and --name VALUE or --name=VALUE or --switch, in
// any order, with the exit codes and the error form of the programs (docs/command_line.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/device.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"

namespace kuiper::tools {

struct Option {
  const char* name;        // without "--"
  const char* value_name;  // "" for a switch
  const char* help;
};

struct Args {
  std::vector<std::string> positionals;
  std::map<std::string, std::string, std::less<>> values;  // a switch has the value ""

  bool has(std::string_view name) const { return values.contains(name); }
  std::string text(std::string_view name, const std::string& fallback) const;
};

// The command line of a tool.
struct Usage {
  const char* text;
  std::vector<Option> options;
  size_t min_positionals, max_positionals;
};

// What main() returns: reads the arguments and calls `run`, or answers --help and --version on
// stdout. A Status that is not OK becomes "error: ...", the hint, and the exit code.
int RunTool(int argc, char** argv, const Usage& usage, Status (*run)(const Args& args));

// An integer within [min, max].
StatusOr<int> ParseInt(const Args& args, std::string_view name, int fallback, int min, int max);
// Comma-separated positive integers.
StatusOr<std::vector<int>> ParseIntList(const Args& args, std::string_view name,
                                        const std::string& fallback);

// One of the names, or `fallback`.
template <typename T>
StatusOr<T> ParseChoice(const Args& args, std::string_view name, T fallback,
                        const std::vector<std::pair<const char*, T>>& choices) {
  if (!args.has(name)) return fallback;
  std::string names;
  for (const auto& [choice, value] : choices) {
    if (args.text(name, "") == choice) return value;
    names += (names.empty() ? "" : ", ") + std::string(choice);
  }
  return Status(StatusCode::kInvalidArgument, "--" + std::string(name) + ": '" +
                                                  args.text(name, "") + "' is not one of " + names);
}

// --device cpu | simt | cuda:N; the CPU when it is not given.
StatusOr<Device> ParseDevice(const Args& args);
// --dtype auto | fp16 | bf16 | fp32; absent for auto.
StatusOr<std::optional<DType>> ParseType(const Args& args);

}  // namespace kuiper::tools
