#include "tools/tool_args.h"

#include <glog/logging.h>

#include <cstdio>

#include "kuiper/base/append_file.h"
#include "kuiper/chat/engine_choices.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/command_line/standard_streams.h"
#include "kuiper/command_line/start_log.h"
#include "kuiper/engine/engine.h"

namespace kuiper::tools {
namespace {

Status Run(const std::vector<std::string>& arguments, const Usage& usage,
           const std::function<Status(const ParsedArgs& args)>& run) {
  const FlagTable table{usage.flags, {}};
  const std::string help = FlagsHelp(table);  // made before parsing, which overwrites the defaults
  KU_ASSIGN_OR_RETURN(const ParsedArgs args, ParseArgs(arguments, table));
  if (args.help) {
    std::printf("usage: %s\n\n%s", usage.text, help.c_str());
    return OkStatus();
  }
  if (args.version) {
    std::printf("%s\n", Engine::Version().c_str());
    return OkStatus();
  }
  const size_t count = args.positionals.size();
  if (count < usage.min_positionals || count > usage.max_positionals) {
    return Status(StatusCode::kInvalidArgument,
                  count < usage.min_positionals ? "too few arguments" : "too many arguments",
                  std::string("usage: ") + usage.text);
  }
  return run(args);
}

}  // namespace

int RunTool(int argc, char** argv, const Usage& usage,
            const std::function<Status(const ParsedArgs& args)>& run) {
  OccupyStandardStreams();
  EndWithLostFiles();
  StartLog(argv[0], google::GLOG_WARNING, false);
  Status status = Run({argv + 1, argv + argc}, usage, run);
  if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    status = WriteFailed("to standard output");
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.message(FlagName).c_str());
  if (!status.hint().empty()) std::fprintf(stderr, "hint: %s\n", status.hint(FlagName).c_str());
  return ExitCodeOf(status.code());
}

Flag DeviceFlag(Device* device) {
  return MakeFlag("device", device, "where to compute");
}

Flag KvFormatFlag(std::optional<KvFormat>* format) {
  return MakeFlag("kv-cache-dtype", KvFormatChoices(format),
                  "type of keys and values (default: that of the weights)");
}

Flag TypeFlag(std::optional<DType>* type, const char* help) {
  return MakeFlag("dtype", WeightTypeChoices(type), help);
}

Flag HeadTypeFlag(bool* int8_head) {
  return MakeFlag("lm-head-dtype", HeadTypeChoices(int8_head),
                  "quantise the last matrix while it is loaded (default: auto, as stored)");
}

Flag ActivationTypeFlag(bool* int8_activations) {
  return MakeFlag("activation-dtype", ActivationTypeChoices(int8_activations),
                  "CPU, weights of INT4 and INT8: x in integers of 8 bits (default: auto, of 16)");
}

Flag CpuTargetFlag(std::string* name) {
  return MakeFlag("cpu-target", name,
                  "CPU kernels of this instruction set, e.g. AVX2 (default: the best)", {}, "NAME");
}

Flag WeightsFlag(WeightStorage* storage) {
  return MakeFlag("weights", WeightStorageChoices(storage),
                  "CPU: weights of a file in the mapped file, or copied from it (default: auto, "
                  "copied if there is room)");
}

}  // namespace kuiper::tools
