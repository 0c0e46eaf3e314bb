// argv -> checked values, in front of gflags: abbreviations, aliases, short options, positionals
// anywhere, nearest match for typing errors. Knows flag_table.h and nothing about what flags mean.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "demo/flag_table.h"
#include "kuiper/base/status.h"

namespace kuiper::demo {

struct ParsedArgs {
  std::vector<std::string> positionals;
  // Flag name -> its values in the form gflags takes; more than one only for kTextList.
  std::map<std::string, std::vector<std::string>> values;
  bool help = false;
  bool version = false;

  bool given(std::string_view name) const { return values.contains(std::string(name)); }
};

// `args` without the program's name. Stops at the first --help or --version. kInvalidArgument.
StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args,
                               FlagPrograms program = FlagPrograms::kText);

// Copies the values into the gflags variables of flags.h.
void StoreFlags(const ParsedArgs& args);

// Whether these arguments ask for JSON output, even if other ones are wrong: then the error is
// reported as JSON as well.
bool AsksForJson(const std::vector<std::string>& args);

}  // namespace kuiper::demo
