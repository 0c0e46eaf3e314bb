// Reads flags from a file: one per line, as NAME = VALUE, or NAME alone for a switch; # begins a
// comment.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/command_line/args.h"

namespace kuiper {

// Returns the arguments, preceded by those of the file that `flag` of `table` names, so that the
// command line takes precedence. kInput if the file cannot be read; kInvalidArgument, with the
// line, if a line is not a flag. The variables of the table are overwritten to check values.
StatusOr<std::vector<std::string>> WithConfigFile(const std::vector<std::string>& arguments,
                                                  const FlagTable& table, const std::string& flag);

}  // namespace kuiper
