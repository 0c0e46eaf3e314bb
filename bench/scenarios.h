// The scenarios of kuiper_bench --scenario NAME with many sequences; each adds lines to a report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/run.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/model/opened_model.h"

namespace kuiper::tools {

// Measures decode steps for each number of sequences. The tokens are also given as multiples of
// those of the first row with the same context.
Status BenchThroughput(Engine& engine, Machine& machine, const Workload& w, Report* report);

// Tokens of a user's question after the system prompt.
constexpr int kQuestionTokens = 32;

// Measures the time to the first token of a question that follows each of these system prompts. The
// prefix cache is either empty or has been filled by another question. Medians of `repetitions`
// pairs.
Status BenchPrefix(Engine& engine, const std::vector<int>& system_prompts, int repetitions,
                   Report* report);

// Measures a user's tokens while another user's prompt is computed, with the engines in
// alternation. Reports the time between two tokens (its median before the prompt and its
// percentiles during it), and the other user's time to the first token. `names` of the engines
// appear in the rows.
Status BenchLatency(const std::vector<std::string>& names, const std::vector<Engine*>& engines,
                    const Workload& w, Report* report);

// Measures a decode step of many questions after one system prompt, with and without cascade
// attention: medians of `w.repetitions` pairs of `w.steps` steps. Both engines have a prefix cache.
Status BenchCascade(Engine& with, Engine& without, const Workload& w, Report* report);

// A load to measure how much of the KV cache memory held by sequences is empty.
struct MemoryLoad {
  int requests = 200;      // all requests arrive at the beginning
  int rows = 8;            // memory size: this many sequences of max_context tokens
  int max_context = 4096;  // tokens of one sequence
  std::vector<int> page_sizes = {16};
};

// Runs the load through the scheduler by itself, in pages of each size and in contiguous rows of
// the same memory. Writes a line per step to the file `csv` unless it is "".
Status BenchMemory(const MemoryLoad& load, const std::string& csv, Report* report);

// Command-line values for the scenarios without an engine.
struct KernelBench {
  Device device;
  OpsOptions ops;
  std::optional<DType> dtype;  // absent: the model's type
  std::optional<KvFormat> kv_format;
  std::vector<int> page_sizes = {16};
  Workload workload;
};

// Measures the attention of decode steps by itself, with the heads and layers of a model: paged and
// contiguous, for each context and batch size of the workload. What does not fit in memory is left
// out with a note.
Status BenchAttention(const DecoderConfig& config, const KernelBench& bench, Report* report);

// Measures whole decode steps in alternating runs, paged and contiguous. The pages of a sequence
// are in random order. Keys and values are random, so no prompt is computed. What does not fit in
// memory is left out with a note.
Status BenchLayout(OpenedModel opened, const KernelBench& bench, const WeightOptions& weights,
                   Report* report);

// Measures the vision encoder of a model: the time and the FLOPs of each stage, for square images
// with these sides in pixels.
Status BenchVision(OpenedModel opened, Device device, const OpsOptions& options,
                   std::optional<DType> dtype, const std::vector<int>& sides, int repetitions,
                   Report* report);

// Serves the commands on stdin until it ends. Each context is measured for as many steps as the
// workload says.
void BenchTurns(Engine& engine, Machine& machine, const Workload& w);

// Measures the time to load a tokenizer, and to encode and decode a text with it.
Status BenchTokenizer(const std::string& tokenizer_path, const std::string& text_path,
                      int repetitions, Report* report);

// Measures Schedule and Commit per decode step for each number of sequences, and the building of
// the step's batch for cascade attention. The prefix cache is on, prompts have 512 tokens, half of
// them shared, and pages 16 tokens.
Status BenchScheduler(const std::vector<int>& batches, int steps, Report* report);

}  // namespace kuiper::tools
