#include "tools/tool_args.h"

#include <glog/logging.h>

#include <cstdio>

#include "demo/engine_choices.h"
#include "demo/exit_code.h"
#include "demo/standard_streams.h"
#include "demo/start_log.h"
#include "kuiper/base/append_file.h"
#include "kuiper/engine/engine.h"

namespace kuiper::tools {
namespace {

Status Run(const std::vector<std::string>& arguments, const Usage& usage,
           const std::function<Status(const demo::ParsedArgs& args)>& run) {
  const demo::FlagTable table{usage.flags, {}};
  const std::string help = demo::FlagsHelp(table);  // of the defaults, which parsing overwrites
  KU_ASSIGN_OR_RETURN(const demo::ParsedArgs args, demo::ParseArgs(arguments, table));
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
            const std::function<Status(const demo::ParsedArgs& args)>& run) {
  demo::OccupyStandardStreams();
  demo::StartLog(argv[0], google::GLOG_WARNING, false);
  Status status = Run({argv + 1, argv + argc}, usage, run);
  if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    status = WriteFailed("to standard output");
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.message(demo::FlagName).c_str());
  if (!status.hint().empty())
    std::fprintf(stderr, "hint: %s\n", status.hint(demo::FlagName).c_str());
  return demo::ExitCodeOf(status.code());
}

demo::Flag DeviceFlag(Device* device) {
  return demo::MakeFlag("device", device, "where to compute");
}

demo::Flag KvFormatFlag(std::optional<KvFormat>* format) {
  return demo::MakeFlag("kv-cache-dtype", demo::KvFormatChoices(format),
                        "type of keys and values (default: that of the weights)");
}

demo::Flag TypeFlag(std::optional<DType>* type, const char* help) {
  return demo::MakeFlag("dtype", demo::WeightTypeChoices(type), help);
}

demo::Flag HeadTypeFlag(bool* int8_head) {
  return demo::MakeFlag("lm-head-dtype", demo::HeadTypeChoices(int8_head),
                        "quantise the last matrix while it is loaded (default: auto, as stored)");
}

demo::Flag WeightsFlag(WeightStorage* storage) {
  return demo::MakeFlag(
      "weights", demo::WeightStorageChoices(storage),
      "CPU: weights of a file in the mapped file, or copied from it (default: auto, "
      "copied if there is room)");
}

}  // namespace kuiper::tools
