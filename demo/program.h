// What differs between the text programs: their names and the models they run.
#pragma once

#include <optional>
#include <string>

#include "demo/options.h"
#include "kuiper/engine/engine.h"

namespace kuiper::demo {

struct Program {
  const char* name;                   // "qwen3_infer"
  const char* models;                 // "Qwen3 text models"
  std::optional<ModelFamily> family;  // absent: every text model
  ChatFamily chat_family;             // for --tokenize where no config.json tells
  FlagPrograms flags = FlagPrograms::kText;
};

// Runs a whole program and returns its exit code.
int RunProgram(const Program& program, int argc, char** argv);

// "error: PATH holds a Llama model; qwen3_infer runs Qwen3 text models".
Status CheckModelFamily(const Program& program, const std::string& path, const ModelConfig& config);

// The last part of a model path without the extension of a file: "Qwen3-8B-awq".
std::string ModelName(const std::string& path);

// What --help prints.
std::string HelpText(const Program& program);

}  // namespace kuiper::demo
