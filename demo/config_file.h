// Flags in a file: one per line, as NAME = VALUE, or NAME alone for a switch; # begins a comment.
#pragma once

#include <string>
#include <vector>

#include "demo/options.h"

namespace kuiper::demo {

// The arguments with those of the file that --config names in front of them, so that the command
// line counts more. kInput when the file cannot be read; kInvalidArgument, with its line, for what
// is no flag of `program`.
StatusOr<std::vector<std::string>> WithConfigFile(const std::vector<std::string>& arguments,
                                                  FlagPrograms program);

}  // namespace kuiper::demo
