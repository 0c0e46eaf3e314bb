// What kuiper_bench --scenario NAME measures of many sequences at once, as lines of a report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/run.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/model/opened_model.h"

namespace kuiper::tools {

// Decode steps over the number of sequences, and the tokens as multiples of those of the first row
// of the same context.
Status BenchThroughput(Engine& engine, Machine& machine, const Workload& w, Report* report);

// Tokens of a user's question after the system prompt.
constexpr int kQuestionTokens = 32;

// Time to the first token of a question behind each of these system prompts, with an empty prefix
// cache and with one that another question has filled. Medians of `repetitions` pairs.
Status BenchPrefix(Engine& engine, const std::vector<int>& system_prompts, int repetitions,
                   Report* report);

// A user's tokens while another's prompt is computed, with each engine in turn: the time between
// two tokens, its median before the prompt came and its percentiles meanwhile, and the other's time
// to the first token. `names` of the engines stand in the rows.
Status BenchLatency(const std::vector<std::string>& names, const std::vector<Engine*>& engines,
                    const Workload& w, Report* report);

// Time of a decode step of that many questions behind one system prompt, with and without cascade
// attention: medians of `w.repetitions` pairs of `w.steps` steps. Both engines have a prefix cache.
Status BenchCascade(Engine& with, Engine& without, const Workload& w, Report* report);

// How much of the KV cache memory that sequences hold is empty.
struct MemoryLoad {
  int requests = 200;      // all there from the beginning
  int rows = 8;            // memory: this many sequences of max_context tokens
  int max_context = 4096;  // tokens of one sequence
  std::vector<int> page_sizes = {16};
};

// Runs the load through the scheduler alone, in pages of each size and in contiguous rows of the
// same memory. Writes a line per step to the file `csv` unless it is "".
Status BenchMemory(const MemoryLoad& load, const std::string& csv, Report* report);

// What the scenarios without an engine need of a command line.
struct KernelBench {
  Device device;
  OpsOptions ops;
  std::optional<DType> dtype;  // absent: as the model has it
  std::optional<KvFormat> kv_format;
  std::vector<int> page_sizes = {16};
  Workload workload;
};

// The attention of decode steps by itself, in the heads and layers of a model: paged and
// contiguous, each context and batch size of the workload. What does not fit is left out with a
// note.
Status BenchAttention(const DecoderConfig& config, const KernelBench& bench, Report* report);

// Whole decode steps, paged beside contiguous in turns, of sequences whose pages lie in random
// order: their keys and values are made up, so no prompt is computed. What does not fit is left
// out with a note.
Status BenchLayout(OpenedModel opened, const KernelBench& bench, const WeightOptions& weights,
                   Report* report);

// The vision tower of a model: the time and the FLOPs of each stage for square pictures with these
// sides in pixels.
Status BenchVision(OpenedModel opened, Device device, const OpsOptions& options,
                   std::optional<DType> dtype, const std::vector<int>& sides, int repetitions,
                   Report* report);

// Answers the lines of stdin until it ends. A context has as many steps as the workload measures.
void BenchTurns(Engine& engine, Machine& machine, const Workload& w);

// The time to load a tokenizer, and to encode and decode a text with it.
Status BenchTokenizer(const std::string& tokenizer_path, const std::string& text_path,
                      int repetitions, Report* report);

// The time of Schedule and Commit per decode step for each number of sequences, and that of
// building the step's batch for cascade attention, with the prefix cache on: prompts of 512 tokens,
// half of them shared, pages of 16 tokens.
Status BenchScheduler(const std::vector<int>& batches, int steps, Report* report);

}  // namespace kuiper::tools
