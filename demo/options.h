// What one run of a text program shall do: the flags, typed and checked against each other. Built
// once from gflags; everything behind it takes Options and never sees a flag.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "demo/args.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/request.h"

namespace kuiper::demo {

enum class OutputFormat { kText, kRaw, kJson, kJsonLines };
enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class ColorMode { kAuto, kNever, kAlways };
enum class Task { kAnswer, kChat, kTokenize, kDryRun, kVerifyPaged, kBenchmark, kBatch };

// What /set may change during a chat.
struct Generation {
  SamplingParams sampling;
  int max_tokens = 256;
  int reasoning_budget = -1;
};

struct Options {
  Task task = Task::kAnswer;

  std::string batch_input, batch_output;
  std::optional<std::string> prompt, prompt_file, messages_file;
  std::optional<std::string> system_prompt;  // absent: the chat template's own
  bool raw = false;
  std::optional<bool> think;  // absent: the chat template's own
  bool show_thinking = false;

  Generation generation;
  bool use_generation_config = false;
  std::set<std::string> sampling_given;  // flags that outrank generation_config.json
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int logprobs = 0;
  int num_samples = 1;
  int beam_width = 1;
  float length_penalty = 1.f;
  bool drop_oldest = false;

  EngineConfig engine;                       // without the device
  std::optional<Device> device;              // absent: CUDA if usable, else the CPU
  bool graph_given = false;                  // --cuda-graph was written out
  std::optional<int64_t> prefix_cache_size;  // as given

  std::optional<bool> stream;
  int max_history = 10;
  bool keep_thinking = false;
  std::string session_file;
  OutputFormat format = OutputFormat::kText;
  bool quiet = false;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;
  bool stats = true;
  std::string stats_file;
  ColorMode color = ColorMode::kAuto;

  std::vector<int> benchmark_prompts;
  int benchmark_decode = 1024;
  int repetitions = 1;
  std::string tokens_file;
  std::string logits_file;

  std::vector<std::string> notes;  // about flags without effect

  bool json() const { return format == OutputFormat::kJson || format == OutputFormat::kJsonLines; }
};

// `args` are stored in the flags already (StoreFlags). kInvalidArgument for what does not go
// together.
StatusOr<Options> OptionsFromFlags(const ParsedArgs& args,
                                   FlagPrograms program = FlagPrograms::kText);

// Takes over what the model's generation_config.json says and the user did not.
void ApplyGenerationConfig(const GenerationConfig& config, Options* options);

}  // namespace kuiper::demo
