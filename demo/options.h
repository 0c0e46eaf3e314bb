// Options of one run of a program: the destination of the flags' values (flags.h), and the checks
// that they fit together. All later code uses Options and never sees a flag.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/command_line/args.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/request.h"
#include "kuiper/io/chat_message.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/quant/quantize_model.h"
#include "kuiper/report/text_writer.h"
#include "kuiper/server/kv_publisher.h"
#include "kuiper/server/reasoning_field.h"

namespace kuiper::demo {

// Programs, and sets of the programs that accept a flag.
enum class FlagPrograms : unsigned {
  kText = 1,   // one answer or a chat: qwen_infer, qwen3_infer
  kBatch = 2,  // kuiper_batch
  kEval = 4,   // kuiper eval
  kQuantize = 8,
  kVision = 16,    // one answer or a chat about images: qwen3_vl_infer
  kAnyModel = 32,  // one answer or a chat: kuiper run, kuiper chat
  kServe = 64,     // kuiper_server
  kSees = kVision | kAnyModel,
  kSeesOrBatch = kSees | kBatch,
  kPictures = kSeesOrBatch | kServe,
  kPrompts = kText | kSees,
  kOnce = kPrompts | kBatch,  // programs that end by themselves
  kMany = kBatch | kServe,
  kAnswers = kOnce | kServe,
  kRuns = kAnswers | kEval,  // programs with an engine
  kAll = kRuns | kQuantize,
};

constexpr bool Contains(FlagPrograms set, FlagPrograms program) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(program)) != 0;
}

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class ColorMode { kAuto, kNever, kAlways };
enum class Task {
  kAnswer,
  kChat,
  kTokenize,
  kPrintPrompt,
  kDryRun,
  kVerifyPaged,
  kBenchmark,
  kBatch,
  kEval,
  kQuantize,
  kServe
};

// Options of kuiper eval.
struct EvalOptions {
  std::string text_file;
  std::vector<std::string> against;  // flags of further configurations, one text each
  std::optional<int> window;         // tokens; absent: 512 or the context
  std::optional<int> stride;         // tokens; absent: half of the window
  std::optional<int64_t> limit;      // tokens of the text; absent: all
};

// Options of kuiper quantize.
struct QuantizeFlags {
  std::string output;
  QuantizationScheme scheme;
  bool asymmetric = true;
  bool activation_aware = true;
  std::string text_file;  // "" = kCalibrationText
  int limit = 8192;       // maximum tokens of the text
};

// The address and the limits of kuiper_server.
struct ServeFlags {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string config_file, unix_socket, port_file;
  std::vector<std::string> names;  // empty: the model's name
  std::string api_key_file, cors_origin;
  int max_connections = 4096;
  int max_queue = 4096;
  size_t max_body = 32 << 20;
  size_t max_queue_memory = size_t{256} << 20;
  size_t max_picture_memory = size_t{512} << 20;
  int max_request_megapixels = 256, max_decoding_megapixels = 64;     // in units of 2^20 pixels
  double request_timeout = 0, drain_timeout = 30, release_after = 0;  // seconds
  int max_output_tokens = 0;
  int answer_memory = 1 << 20;
  std::string metrics_prefix = "kuiper";
  ReasoningField reasoning_field = ReasoningField::kBoth;
  KvPublisherSettings kv_events;
};

struct Options {
  Options();

  ParsedArgs args;                 // the parsed arguments
  std::vector<std::string> notes;  // notes about flags without effect
  Task task = Task::kAnswer;
  // Flags that select the task, at most one of them.
  struct {
    bool chat = false, tokenize = false, print_prompt = false, dry_run = false,
         verify_paged = false, benchmark = false;
  } wants;
  // Destinations of flags that are accepted but ignored.
  struct {
    bool on = false;
    int number = 0;
    std::string text;
  } unused;

  std::string batch_input, batch_output;
  bool strict = false;  // a batch ends with an error if one request failed
  std::optional<std::string> prompt, prompt_file, messages_file;
  std::optional<std::string> system_prompt;  // absent: the chat template's own
  bool raw = false;
  std::optional<bool> think;             // absent: the chat template's own
  std::vector<std::string> media_paths;  // paths of --image and --video; `media` has both in order
  std::vector<ContentPart> media;
  ImageOptions image;
  std::optional<double> video_fps;
  std::string now_text;
  std::optional<std::tm> now;  // value of --now; absent: the local time
  bool show_thinking = false;

  Request request;  // parameters of every answer, without the prompt
  bool use_generation_config = false;
  bool drop_oldest = false;

  EngineConfig engine;           // without the device, which is chosen later
  std::optional<Device> device;  // absent: CUDA if usable, else the CPU

  std::optional<bool> stream;
  int max_history = 10;
  bool keep_thinking = false;
  std::string session_file;
  OutputFormat format = OutputFormat::kText;
  bool quiet = false, verbose = false;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;
  bool stats = true;
  std::string stats_file;
  ColorMode color = ColorMode::kAuto;

  std::vector<int> benchmark_prompts = {256, 512, 1024, 2048, 4096};
  int benchmark_decode = 1024;
  int repetitions = 1;
  EvalOptions eval;
  bool wants_json = false;  // JSON output of kuiper eval
  QuantizeFlags quantize;
  ServeFlags serve;
  std::vector<Options> others;          // from EvalOptions::against, each a complete configuration
  std::string trace_file, tables_file;  // for a paged KV cache
  std::string tokens_file;
  std::string logits_file;

  // True if the task answers requests.
  bool answers() const {
    return task == Task::kAnswer || task == Task::kChat || task == Task::kBatch;
  }
  bool json() const { return format == OutputFormat::kJson || format == OutputFormat::kJsonLines; }
};

// Reads and checks the arguments. With --help or --version, only `args` is valid. Errors:
// kInvalidArgument, kInput.
StatusOr<Options> ReadOptions(const std::vector<std::string>& arguments,
                              FlagPrograms program = FlagPrograms::kText);

// True if these arguments of `program` request JSON output, even if other arguments are wrong: the
// error is then reported as JSON as well.
bool AsksForJson(const std::vector<std::string>& arguments,
                 FlagPrograms program = FlagPrograms::kText);

}  // namespace kuiper::demo
