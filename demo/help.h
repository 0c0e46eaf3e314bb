// What --help and --version print.
#pragma once

#include <string>

#include "demo/program.h"

namespace kuiper::demo {

std::string HelpText(const Program& program);
std::string VersionText(const Program& program);

}  // namespace kuiper::demo
