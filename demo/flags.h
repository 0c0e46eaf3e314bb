// The flags of the programs, one row each: spelling, allowed values, help text, and the destination
// of the value. args.h parses the arguments.
#pragma once

#include <string>

#include "demo/options.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/command_line/args.h"

namespace kuiper::demo {

// The title in --help of the flags that define how a model is computed.
inline constexpr const char kConfigurationGroup[] = "KV cache and execution";

// Returns the flags of `program`. Their values go to `options`, which must outlive the table.
FlagTable FlagsOf(FlagPrograms program, Options& options);

// Adds the aliases and the names that only `program` uses, and marks the common flags.
void AddNames(FlagPrograms program, FlagTable* table);

// Adds llama.cpp's names for flags, and errors for its flags that are not supported here.
void AddOtherFlags(FlagPrograms program, Options& options, FlagTable* table);

// Returns the flag of a parameter, without dashes: "top-k".
std::string FlagOf(const Parameter& parameter);

}  // namespace kuiper::demo
