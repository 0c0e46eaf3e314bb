#include "tools/tool_args.h"

#include <glog/logging.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "demo/exit_code.h"
#include "demo/standard_streams.h"
#include "demo/start_log.h"
#include "kuiper/engine/engine.h"

namespace kuiper::tools {
namespace {

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, what);
}

[[noreturn]] void PrintHelp(const Usage& usage) {
  std::printf("usage: %s\n\n", usage.text);
  for (const Option& option : usage.options) {
    const std::string left = std::string("--") + option.name +
                             (option.value_name[0] != '\0' ? " " : "") + option.value_name;
    std::printf("  %-28s %s\n", left.c_str(), option.help);
  }
  std::printf("  %-28s %s\n  %-28s %s\n", "--help", "this text", "--version",
              "version, commit and compiled devices");
  std::exit(0);
}

std::optional<int64_t> ToInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

StatusOr<Args> ParseArgs(int argc, char** argv, const Usage& usage) {
  Args args;
  bool only_positionals = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (only_positionals || arg.size() < 2 || arg[0] != '-') {
      args.positionals.push_back(arg);
      continue;
    }
    if (arg == "--") {
      only_positionals = true;
      continue;
    }
    if (arg == "--help" || arg == "-h") PrintHelp(usage);
    if (arg == "--version") {
      std::printf("%s\n", Engine::Version().c_str());
      std::exit(0);
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    const Option* option = nullptr;
    for (const Option& candidate : usage.options) {
      if (name == std::string("--") + candidate.name) option = &candidate;
    }
    if (option == nullptr) return Bad("unknown option " + name);
    const bool is_switch = option->value_name[0] == '\0';
    if (is_switch && equals != std::string::npos) return Bad(name + " takes no value");
    if (!is_switch && equals == std::string::npos && i + 1 == argc) {
      return Bad(name + " needs a value");
    }
    args.values[option->name] = is_switch                     ? ""
                                : equals != std::string::npos ? arg.substr(equals + 1)
                                                              : argv[++i];
  }
  const size_t count = args.positionals.size();
  if (count < usage.min_positionals || count > usage.max_positionals) {
    return Status(StatusCode::kInvalidArgument,
                  count < usage.min_positionals ? "too few arguments" : "too many arguments",
                  std::string("usage: ") + usage.text);
  }
  return args;
}

}  // namespace

std::string Args::text(std::string_view name, const std::string& fallback) const {
  const auto it = values.find(name);
  return it != values.end() ? it->second : fallback;
}

StatusOr<int> ParseInt(const Args& args, std::string_view name, int fallback, int min, int max) {
  if (!args.has(name)) return fallback;
  const std::string text = args.text(name, "");
  const std::optional<int64_t> value = ToInt(text);
  if (!value.has_value() || *value < min || *value > max) {
    return Bad("--" + std::string(name) + ": '" + text + "' is not an integer from " +
               std::to_string(min) + " to " + std::to_string(max));
  }
  return static_cast<int>(*value);
}

StatusOr<std::vector<int>> ParseIntList(const Args& args, std::string_view name,
                                        const std::string& fallback) {
  const std::string text = args.text(name, fallback);
  std::vector<int> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int64_t> value = ToInt(std::string_view(text).substr(begin, end - begin));
    if (!value.has_value() || *value < 1 || *value > 1'000'000) {
      return Bad("--" + std::string(name) + ": '" + text +
                 "' is not a list of integers from 1 to 1000000");
    }
    values.push_back(static_cast<int>(*value));
    begin = end + 1;
  }
  return values;
}

StatusOr<Device> ParseDevice(const Args& args) {
  const std::string text = args.text("device", "cpu");
  if (text == "cpu") return Device{DeviceType::kCPU, 0};
  if (text == "simt") return Device{DeviceType::kSimt, 0};
  if (text.starts_with("cuda:")) {
    const std::optional<int64_t> index = ToInt(std::string_view(text).substr(5));
    if (index.has_value() && *index >= 0 && *index < 256) {
      return Device{DeviceType::kCUDA, static_cast<int>(*index)};
    }
  }
  return Bad("--device: '" + text + "' is not one of cpu, simt, cuda:N");
}

StatusOr<std::optional<DType>> ParseType(const Args& args) {
  using Type = std::optional<DType>;
  return ParseChoice<Type>(
      args, "dtype", Type(),
      {{"auto", Type()}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}, {"fp32", DType::kF32}});
}

int RunTool(int argc, char** argv, const Usage& usage, Status (*run)(const Args& args)) {
  demo::OccupyStandardStreams();
  demo::StartLog(argv[0], google::GLOG_WARNING, false);
  const StatusOr<Args> args = ParseArgs(argc, argv, usage);
  const Status status = args.ok() ? run(*args) : args.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.message(demo::FlagName).c_str());
  if (!status.hint().empty())
    std::fprintf(stderr, "hint: %s\n", status.hint(demo::FlagName).c_str());
  return demo::ExitCodeOf(status.code());
}

}  // namespace kuiper::tools
