// What kuiper_bench --scenario NAME measures of many sequences at once; tables on stdout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/model/opened_model.h"
#include "tools/kuiper_bench_run.h"

namespace kuiper::tools {

// Decode rows as tokens per second over the number of sequences, and as multiples of the first row
// of the same context.
void PrintThroughput(const std::vector<Row>& rows);

// Tokens of a user's question after the system prompt.
constexpr int kQuestionTokens = 32;

// Time to the first token of a question behind each of these system prompts, with an empty prefix
// cache and with one that another question has filled. Medians of `repetitions` pairs.
Status BenchPrefix(Engine& engine, const std::vector<int>& system_prompts, int repetitions);

// A user's tokens while another's prompt is computed, with each engine in turn: the time between
// two tokens, its median before the prompt came and its percentiles meanwhile, and the other's time
// to the first token. `names` of the engines stand in the rows.
Status BenchLatency(const std::vector<std::string>& names, const std::vector<Engine*>& engines,
                    const Workload& w);

// Time of a decode step of that many questions behind one system prompt, with and without cascade
// attention: medians of `w.repetitions` pairs of `w.steps` steps. Both engines have a prefix cache.
Status BenchCascade(Engine& with, Engine& without, const Workload& w);

// How much of the KV cache memory that sequences hold is empty.
struct MemoryLoad {
  int requests = 200;      // all there from the beginning
  int rows = 8;            // memory: this many sequences of max_context tokens
  int max_context = 4096;  // tokens of one sequence
};

// Runs the load through the scheduler alone, in pages of 16 tokens and in contiguous rows of the
// same memory. Writes a line per step to the file `csv` unless it is "".
Status BenchMemory(const MemoryLoad& load, const std::string& csv);

// The attention of decode steps by itself, in the heads and layers of a model: paged and
// contiguous, each context and batch size of the workload. What does not fit is left out with a
// note.
Status BenchAttention(const DecoderConfig& config, Device device, const OpsOptions& options,
                      DType weights, KvFormat kv, const Workload& workload);

// The vision tower of a model: the time and the FLOPs of each stage for square pictures with these
// sides in pixels.
Status BenchVision(OpenedModel opened, Device device, const OpsOptions& options,
                   std::optional<DType> dtype, const std::vector<int>& sides, int repetitions);

// Prints the time of Schedule and Commit per decode step for each number of sequences, with the
// prefix cache on: prompts of 512 tokens, half of them shared, pages of 16 tokens.
void BenchScheduler(const std::vector<int>& batches, int steps);

}  // namespace kuiper::tools
