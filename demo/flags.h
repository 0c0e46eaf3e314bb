// The flags of the programs: one row each, which says how the flag is written, what it may be, what
// --help says, and where its value goes. How arguments are read is args.h.
#pragma once

#include <string>

#include "demo/options.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/command_line/args.h"

namespace kuiper::demo {

// The title under which the flags stand that say how a model is computed.
inline constexpr const char kConfigurationGroup[] = "KV cache and execution";

// The flags that `program` takes; their values go to `options`, which must outlive the table.
FlagTable FlagsOf(FlagPrograms program, Options& options);

// Adds the aliases, what the flags of `program` are called otherwise than those of others, and
// which of them are common.
void AddNames(FlagPrograms program, FlagTable* table);

// Adds the names that llama.cpp has for flags, and its flags that are not there.
void AddOtherFlags(FlagPrograms program, Options& options, FlagTable* table);

// The flag of a parameter, without dashes: "top-k".
std::string FlagOf(const Parameter& parameter);

}  // namespace kuiper::demo
