// Properties that differ between the programs: their names and what they do with a model.
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

// Runs a whole program and returns its exit code. `arguments` excludes the program's name.
int RunProgram(const Program& program, const std::vector<std::string>& arguments);

// Returns the last part of a model path without the file extension: "Qwen3-8B-awq".
std::string ModelName(const std::string& path);

// Returns the text of --help, or of --help all.
std::string HelpText(const Program& program, bool all);

// Returns the text of --version: the library's version, after the program's name if that is not
// kuiper.
std::string VersionText(std::string_view program);

}  // namespace kuiper::demo
