// What differs between the text programs: their names and what they do with a model.
#pragma once

#include <string>
#include <vector>

#include "demo/options.h"
#include "kuiper/engine/engine.h"

namespace kuiper::demo {

struct Program {
  const char* name;        // "qwen3_infer"
  ChatFamily chat_family;  // for --tokenize where no config.json tells
  FlagPrograms flags = FlagPrograms::kText;
};

// Runs a whole program and returns its exit code. `arguments` come without the program's name.
int RunProgram(const Program& program, const std::vector<std::string>& arguments);
int RunProgram(const Program& program, int argc, char** argv);

// The last part of a model path without the extension of a file: "Qwen3-8B-awq".
std::string ModelName(const std::string& path);

// What --help prints, or --help all.
std::string HelpText(const Program& program, bool all);

}  // namespace kuiper::demo
