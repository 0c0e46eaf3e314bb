// How well ways of running a model predict a text: a table for people, an object for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/evaluation.h"

namespace kuiper {

// A way of running a model, and how well it predicted the text.
struct EvalRow {
  std::string model;  // its name
  std::string flags;  // in which it differs from the first row; "" in that one
  EvaluatedEngine sums;
  RunFacts ran;

  // "tiny-qwen3: 300 tokens predicted in 0.1 s, 3000.0 tokens/s"
  std::string Summary() const;
};

struct EvalResult {
  std::string text_file = {};
  int64_t num_tokens = 0;  // of the text
  int window = 0, stride = 0;
  bool interrupted = false;
  std::vector<EvalRow> rows = {};  // the first one is the reference
  Status error = {};
};

// Lines of at most 80 characters, but for the names of files and the flags as they were given.
std::string EvalTable(const EvalResult& result);
// One line without its newline; numbers that there are none of are null.
std::string EvalJson(const EvalResult& result, Speller spell);

}  // namespace kuiper
