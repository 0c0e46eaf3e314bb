// Flags in a file: one per line, as NAME = VALUE, or NAME alone for a switch; # begins a comment.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/command_line/args.h"

namespace kuiper {

// The arguments with those of the file that `flag` of `table` names in front of them, so that the
// command line counts more. kInput when the file cannot be read; kInvalidArgument, with its line,
// for what is no flag. The variables of the table are used to check values.
StatusOr<std::vector<std::string>> WithConfigFile(const std::vector<std::string>& arguments,
                                                  const FlagTable& table, const std::string& flag);

}  // namespace kuiper
