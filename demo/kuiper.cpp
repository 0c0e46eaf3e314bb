// The front door: kuiper COMMAND ARGUMENTS. Each command is a program that has a name of its own,
// too.
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

struct Command {
  const char* name;
  const char* what;
  int (*run)(const std::vector<std::string>& arguments);
};

int Run(const std::vector<std::string>& arguments) {
  return RunProgram(
      {.name = "kuiper run", .chat_family = ChatFamily::kQwen3, .flags = FlagPrograms::kAnyModel},
      arguments);
}

int Chat(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"--interactive"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunProgram(
      {.name = "kuiper chat", .chat_family = ChatFamily::kQwen3, .flags = FlagPrograms::kAnyModel},
      all);
}

int Batch(const std::vector<std::string>& arguments) {
  return RunProgram(
      {.name = "kuiper batch", .chat_family = ChatFamily::kQwen3, .flags = FlagPrograms::kBatch},
      arguments);
}

int Serve(const std::vector<std::string>& arguments) {
  return RunProgram(
      {.name = "kuiper serve", .chat_family = ChatFamily::kQwen3, .flags = FlagPrograms::kServe},
      arguments);
}

int Eval(const std::vector<std::string>& arguments) {
  return RunProgram(
      {.name = "kuiper eval", .chat_family = ChatFamily::kQwen3, .flags = FlagPrograms::kEval},
      arguments);
}

int Quantize(const std::vector<std::string>& arguments) {
  return RunProgram({.name = "kuiper quantize",
                     .chat_family = ChatFamily::kQwen3,
                     .flags = FlagPrograms::kQuantize},
                    arguments);
}

// kuiper_bench measures what programs do not need; it lies beside this program where that is
// installed, and in tools/ where it was built.
int Bench(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  std::string name = "kuiper_bench";
  argv.push_back(name.data());
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::error_code error;
  const auto dir = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& path : {dir / name, dir / ".." / "tools" / name}) {
    execv(path.c_str(), argv.data());  // returns only if there is none
  }
  Console().Error(Status(StatusCode::kInternal,
                         "cannot run kuiper_bench: " + std::string(std::strerror(errno)),
                         "it is built with the target kuiper_bench"));
  return kExitInternal;
}

constexpr Command kCommands[] = {
    {"run", "one answer", Run},
    {"chat", "a conversation", Chat},
    {"batch", "many requests from a file", Batch},
    {"serve", "answers over HTTP", Serve},
    {"bench", "measure prefill and decode", Bench},
    {"eval", "how well configurations predict a text", Eval},
    {"quantize", "make a model directory with weights of 4 or 8 bits", Quantize},
};

// "run, chat and batch"
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
  const std::string nearest = NearestName(word, names);
  Console().Error(Status(StatusCode::kInvalidArgument,
                         word.empty() ? "no command given" : "unknown command " + Quoted(word),
                         nearest.empty()
                             ? "the commands are " + CommandList() + ": kuiper run MODEL -p TEXT"
                             : "did you mean kuiper " + nearest + "?"));
  return kExitUsage;
}

int Main(const std::vector<std::string>& arguments) {
  OccupyStandardStreams();
  const std::string word = arguments.empty() ? "" : arguments[0];
  if (word == "help" && arguments.size() > 1) return Main({arguments[1], "--help"});
  const bool wants_help = word == "--help" || word == "-h" || word == "help";
  if (wants_help || word == "--version") {
    Console console;
    console.Answer(wants_help ? Help() : "kuiper, " + Engine::Version() + "\n");
    if (console.output_status().ok()) return kExitOk;
    console.Error(console.output_status());
    return kExitInternal;
  }
  for (const Command& command : kCommands) {
    if (word == command.name) return command.run({arguments.begin() + 1, arguments.end()});
  }
  return Unknown(word);
}

}  // namespace
}  // namespace kuiper::demo

int main(int argc, char** argv) {
  return kuiper::demo::Main(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
