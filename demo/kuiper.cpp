// kuiper COMMAND ARGUMENTS, and the programs that are links to this one under other names: the name
// it is called by selects the program.
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "demo/console.h"
#include "demo/program.h"
#include "kuiper/base/text.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/standard_streams.h"

namespace kuiper::demo {
namespace {

using enum FlagPrograms;

// The names of the links, which scripts use.
constexpr Program kPrograms[] = {
    {.name = "qwen_infer", .model_type = "qwen2"},
    {.name = "qwen3_infer"},
    {.name = "qwen3_vl_infer", .model_type = "qwen3_vl", .flags = kVision},
    {.name = "kuiper_batch", .flags = kBatch},
    {.name = "kuiper_server", .flags = kServe},
};

struct Command {
  const char* name;
  const char* what;
  Program program;
};

constexpr Command kCommands[] = {
    {"run", "one answer", {.name = "kuiper run", .flags = kAnyModel}},
    {"chat", "a conversation", {.name = "kuiper chat", .flags = kAnyModel}},
    {"batch", "many requests from a file", {.name = "kuiper batch", .flags = kBatch}},
    {"serve", "answers over HTTP", {.name = "kuiper serve", .flags = kServe}},
    {"bench", "measure prefill and decode", {.name = "kuiper_bench"}},
    {"eval", "how well configurations predict a text", {.name = "kuiper eval", .flags = kEval}},
    {"quantize",
     "make a model directory with weights of 4 or 8 bits",
     {.name = "kuiper quantize", .flags = kQuantize}},
};

// Runs kuiper_bench, which contains code that the other programs do not need. It is in the folder
// of this program if installed, and in tools/ of a build.
int Bench(const char* name, const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(name)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::error_code error;
  const auto dir = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& path : {dir / name, dir / ".." / "tools" / name}) {
    execv(path.c_str(), argv.data());  // returns only if the file does not exist
  }
  Console().Error(Status(StatusCode::kInternal,
                         "cannot run kuiper_bench: " + std::string(std::strerror(errno)),
                         "it is built with the target kuiper_bench"));
  return kExitInternal;
}

int RunCommand(const Command& command, std::vector<std::string> arguments) {
  const std::string_view name = command.name;
  if (name == "bench") return Bench(command.program.name, arguments);
  if (name == "chat") arguments.insert(arguments.begin(), "--interactive");
  return RunProgram(command.program, arguments);
}

// Returns "run, chat and batch".
std::string CommandList() {
  std::string list;
  for (const Command& command : kCommands) {
    const bool is_last = &command == std::end(kCommands) - 1;
    list += std::string(list.empty() ? "" : is_last ? " and " : ", ") + command.name;
  }
  return list;
}

std::string Help() {
  std::string text = "usage: kuiper COMMAND MODEL [options]\n\n";
  for (const Command& command : kCommands) {
    text += "  " + std::string(command.name) + std::string(10 - std::strlen(command.name), ' ') +
            command.what + "\n";
  }
  return text +
         "\nkuiper COMMAND --help lists the options of a command. MODEL is a Hugging Face\n"
         "directory, a .safetensors file or a packed .bin.\n";
}

int Unknown(const std::string& word) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const bool wants_model = word == "pull" || word == "download";
  const std::string nearest = wants_model ? "" : NearestName(word, names);
  Console().Error(Status(StatusCode::kInvalidArgument,
                         word.empty() ? "no command given" : "unknown command " + Quoted(word),
                         wants_model ? "tools/get_model.sh downloads models"
                         : nearest.empty()
                             ? "the commands are " + CommandList() + ": kuiper run MODEL \"TEXT\""
                             : "did you mean kuiper " + nearest + "?"));
  return kExitUsage;
}

int RunKuiper(const std::vector<std::string>& arguments) {
  OccupyStandardStreams();
  const std::string word = arguments.empty() ? "" : arguments[0];
  if (word == "help" && arguments.size() > 1) return RunKuiper({arguments[1], "--help"});
  const bool wants_help = word == "--help" || word == "-h" || word == "help";
  if (wants_help || word == "--version") {
    Console console;
    console.Answer(wants_help ? Help() : VersionText("kuiper"));
    if (console.output_status().ok()) return kExitOk;
    console.Error(console.output_status());
    return kExitInternal;
  }
  for (const Command& command : kCommands) {
    if (word == command.name) return RunCommand(command, {arguments.begin() + 1, arguments.end()});
  }
  return Unknown(word);
}

int Main(const std::filesystem::path& called, const std::vector<std::string>& arguments) {
  const std::string name = called.filename();
  for (const Program& program : kPrograms) {
    if (name == program.name) return RunProgram(program, arguments);
  }
  return RunKuiper(arguments);
}

}  // namespace
}  // namespace kuiper::demo

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return kuiper::demo::Main(argc > 0 ? argv[0] : "", arguments);
}
