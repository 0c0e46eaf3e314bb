// The command line of the small tools: positionals and --name VALUE or --name=VALUE or --switch, in
// any order, with the exit codes and the error form of the programs (docs/command_line.md).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
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

// Call first: it also readies the standard streams and leaves only warnings of the log, on stderr.
// Answers --help and --version on stdout and ends the process with 0. kInvalidArgument for unknown
// options, missing values and a wrong number of positionals.
StatusOr<Args> ParseArgs(int argc, char** argv, const char* usage,
                         const std::vector<Option>& options, size_t min_positionals,
                         size_t max_positionals);

// An integer within [min, max].
StatusOr<int64_t> ParseInt(const Args& args, std::string_view name, int64_t fallback, int64_t min,
                           int64_t max);
// Comma-separated positive integers.
StatusOr<std::vector<int>> ParseIntList(const Args& args, std::string_view name,
                                        const std::string& fallback);

// --device cpu | simt | cuda:N; the CPU when it is not given.
StatusOr<Device> ParseDevice(const Args& args);
// --dtype auto | fp16 | bf16 | fp32; absent for auto.
StatusOr<std::optional<DType>> ParseType(const Args& args);

// Prints "error: ..." and the hint on stderr and returns the exit code.
int Fail(const Status& status);

}  // namespace kuiper::tools
