// The command line of the small tools: flags and positional arguments as in the programs
// (kuiper/command_line/args.h), with the same exit codes and error format (docs/command_line.md).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/device.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/command_line/args.h"
#include "kuiper/engine/engine.h"

namespace kuiper::tools {

// The command line of a tool.
struct Usage {
  const char* text;
  std::vector<Flag> flags;
  size_t min_positionals, max_positionals;
};

// Returns the result for main(): stores the values of the flags and calls `run`, or answers --help
// and --version on stdout. A Status that is not OK is printed as "error: ..." with its hint, and
// determines the exit code.
int RunTool(int argc, char** argv, const Usage& usage,
            const std::function<Status(const ParsedArgs& args)>& run);

// --device cpu | simt | cuda:N.
Flag DeviceFlag(Device* device);
// --lm-head-dtype auto | int8.
Flag HeadTypeFlag(bool* int8_head);
// --activation-dtype auto | int8.
Flag ActivationTypeFlag(bool* int8_activations);
Flag CpuTargetFlag(std::string* name);
// --weights auto | mapped | copied.
Flag WeightsFlag(WeightStorage* storage);
// --kv-cache-dtype auto or the name of a format; absent for auto.
Flag KvFormatFlag(std::optional<KvFormat>* format);
// --dtype auto | fp16 | bf16 | fp32; absent for auto.
Flag TypeFlag(std::optional<DType>* type, const char* help);

}  // namespace kuiper::tools
