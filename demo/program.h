// What differs between the programs: their names and what they do with a model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "demo/options.h"
#include "kuiper/engine/engine.h"

namespace kuiper::demo {

struct Program {
  const char* name;                  // "qwen3_infer"
  const char* model_type = "qwen3";  // for --tokenize without a config.json
  FlagPrograms flags = FlagPrograms::kText;
};

// Runs a whole program and returns its exit code. `arguments` come without the program's name.
int RunProgram(const Program& program, const std::vector<std::string>& arguments);

// The last part of a model path without the extension of a file: "Qwen3-8B-awq".
std::string ModelName(const std::string& path);

// What --help prints, or --help all.
std::string HelpText(const Program& program, bool all);

// What --version prints: the library's version, after the name of a program that is not kuiper.
std::string VersionText(std::string_view program);

}  // namespace kuiper::demo
