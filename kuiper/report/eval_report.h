// How well model configurations predict a text: a table for users, a JSON object for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/evaluation.h"

namespace kuiper {

// A configuration of a model, and how well it predicted the text.
struct EvalRow {
  std::string model;  // its name
  std::string flags;  // flags that differ from those of the first row; "" for that row
  EvaluatedEngine sums;
  RunFacts ran;

  // "tiny-qwen3: 300 tokens predicted in 0.1 s, 3000.0 tokens/s"
  std::string Summary() const;
};

struct EvalResult {
  std::string text_file = {};
  int64_t num_tokens = 0;  // length of the text
  int window = 0, stride = 0;
  bool interrupted = false;
  std::vector<EvalRow> rows = {};  // the first one is the reference
  Status error = {};
};

// Returns lines of at most 80 characters, except for file names and flags as they were given.
std::string EvalTable(const EvalResult& result);
// Returns one line without its newline; missing numbers are null.
std::string EvalJson(const EvalResult& result, Speller spell);

}  // namespace kuiper
