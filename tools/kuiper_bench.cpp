// Prefill and decode speed against what the machine can do. Yardsticks (read bandwidth, peak
// multiply-add rate) are measured by bursts right before and after each piece of work, because
// shared machines change speed from second to second; ratios are medians of such pairs.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/io/token_stream.h"
#include "kuiper/kernels/cpu/cpu_peaks.h"
#include "tools/kuiper_bench_model.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr const char* kUsage = "kuiper_bench MODEL | kuiper_bench --invent CONFIG.json [options]";

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Floating-point operations of a prompt: multiply-adds count as two, attention is causal, and only
// the last position goes through the head.
double PrefillFlops(const DecoderConfig& d, double tokens) {
  const double layer = static_cast<double>(d.hidden) * d.qkv_size() +
                       static_cast<double>(d.q_size()) * d.hidden + 3.0 * d.hidden * d.intermediate;
  const double attention = 2.0 * d.q_size() * tokens * (tokens + 1) / 2;
  return 2 * (d.layers * (layer * tokens + attention) + static_cast<double>(d.vocab) * d.hidden);
}

// Peak resident memory of this process so far, in bytes.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    int64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
    std::getline(status, key);
  }
  return 0;
}

// The weights as the kernels see them, for the bandwidth bursts: the same pages of the same file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info = {};
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
      size_ = static_cast<size_t>(info.st_size);
      void* data = mmap(nullptr, size_, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
      data_ = data == MAP_FAILED ? nullptr : static_cast<const char*>(data);
    }
    if (fd >= 0) close(fd);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
  }
  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

struct Row {
  std::string phase;  // "prefill" or "decode"
  int tokens = 0;     // prompt length, or context at the start of decoding
  int batch = 1;
  double milliseconds = 0;  // of the prompt, or of one step
  double tokens_per_second = 0;
  double rate = 0;       // GFLOP/s or GB/s
  double yardstick = 0;  // of the machine, in the same unit
  double ratio = 0;
};

Request MakeRequest(const Engine& engine, int tokens, int new_tokens, int seed) {
  Request request;
  const int vocab = engine.model_config().decoder.vocab;
  for (int64_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>((i * 7919 + seed * 104729 + 1) % vocab));
  }
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  return request;
}

class Bench {
 public:
  Bench(Engine& engine, ThreadPool& pool, const MappedFile& weights, int repetitions)
      : engine_(engine), pool_(pool), weights_(weights), repetitions_(repetitions) {}

  StatusOr<Row> Prefill(int tokens) {
    const double flops = PrefillFlops(engine_.model_config().decoder, tokens);
    std::vector<double> seconds, peaks, ratios;
    for (int r = 0; r <= repetitions_; ++r) {
      const double before = Peak();
      KU_ASSIGN_OR_RETURN(const Completion c, engine_.Generate(MakeRequest(engine_, tokens, 1, r)));
      const double peak = (before + Peak()) / 2;
      if (r == 0) continue;  // touches memory for the first time
      seconds.push_back(c.prefill_ms / 1e3);
      peaks.push_back(peak);
      ratios.push_back(flops / seconds.back() / peak);
    }
    const double s = Median(seconds);
    return Row{"prefill",           tokens,        1, s * 1e3, tokens / s, flops / s / 1e9,
               Median(peaks) / 1e9, Median(ratios)};
  }

  StatusOr<Row> Decode(int context, int batch, int steps) {
    const double weight_bytes = static_cast<double>(engine_.weight_bytes_per_token());
    constexpr int kGroup = 4;  // steps between two bursts
    const int groups = std::max(1, steps / kGroup) * repetitions_;
    std::vector<int64_t> ids;
    for (int b = 0; b < batch; ++b) {
      KU_ASSIGN_OR_RETURN(const int64_t id,
                          engine_.Add(MakeRequest(engine_, context, (groups + 2) * kGroup + 2, b)));
      ids.push_back(id);
    }
    int running = 0;  // requests that have their first token
    while (running < batch) {
      for (const TokenEvent& event : engine_.Step()) running += event.token >= 0 ? 1 : 0;
      if (!engine_.HasWork()) return Status(StatusCode::kInternal, "the requests ended early");
    }
    std::vector<double> seconds, bandwidths, ratios;
    for (int g = 0; g <= groups; ++g) {
      const double before = Bandwidth();
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < kGroup; ++i) engine_.Step();
      const double s = SecondsSince(begin) / kGroup;
      const double bandwidth = (before + Bandwidth()) / 2;
      if (g == 0) continue;
      seconds.push_back(s);
      bandwidths.push_back(bandwidth);
      ratios.push_back(weight_bytes / s / bandwidth);
    }
    for (const int64_t id : ids) engine_.Abort(id);
    while (engine_.HasWork()) engine_.Step();
    for (const int64_t id : ids) engine_.Take(id);
    const double s = Median(seconds);
    return Row{"decode",
               context,
               batch,
               s * 1e3,
               batch / s,
               weight_bytes / s / 1e9,
               Median(bandwidths) / 1e9,
               Median(ratios)};
  }

 private:
  double Peak() { return MeasurePeakFlops(pool_, engine_.weight_type(), 0.01); }

  double Bandwidth() {
    // A different part each time, so that no cache has it.
    const size_t bytes = std::min<size_t>(weights_.size(), size_t{128} << 20);
    if (offset_ + bytes > weights_.size()) offset_ = 0;
    const char* data = weights_.data() + offset_;
    offset_ += bytes;
    return MeasureReadBandwidth(pool_, data, bytes);
  }

  Engine& engine_;
  ThreadPool& pool_;
  const MappedFile& weights_;
  int repetitions_;
  size_t offset_ = 0;
};

void PrintTable(const std::vector<Row>& rows) {
  std::printf("%-8s %7s %6s %10s %11s %14s %14s %6s\n", "phase", "tokens", "batch", "ms",
              "tokens/s", "rate", "machine", "ratio");
  for (const Row& row : rows) {
    const char* unit = row.phase == "prefill" ? "GFLOP/s" : "GB/s";
    std::printf("%-8s %7d %6d %10.2f %11.1f %6.1f %-7s %6.1f %-7s %5.1f%%\n", row.phase.c_str(),
                row.tokens, row.batch, row.milliseconds, row.tokens_per_second, row.rate, unit,
                row.yardstick, unit, row.ratio * 100);
  }
}

Json ToJson(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    const bool prefill = row.phase == "prefill";
    list.push_back({{"phase", row.phase},
                    {"tokens", row.tokens},
                    {"batch", row.batch},
                    {"ms", row.milliseconds},
                    {"tokens_per_s", row.tokens_per_second},
                    {prefill ? "gflops" : "gbps", row.rate},
                    {prefill ? "machine_gflops" : "machine_gbps", row.yardstick},
                    {"ratio", row.ratio}});
  }
  return list;
}

// Encoding and streaming decoding of a text on one core, best of `repetitions`.
Status BenchTokenizer(const std::string& tokenizer_path, const std::string& text_path,
                      int repetitions) {
  std::ifstream in(text_path, std::ios::binary);
  if (!in) return Status(StatusCode::kInput, "cannot read " + text_path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const Clock::time_point load_begin = Clock::now();
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(tokenizer_path));
  const double load = SecondsSince(load_begin);
  double encode = 1e9, decode = 1e9;
  std::vector<int32_t> ids;
  for (int r = 0; r < repetitions; ++r) {
    Clock::time_point begin = Clock::now();
    ids = tokenizer->Encode(text);
    encode = std::min(encode, SecondsSince(begin));
    begin = Clock::now();
    if (DecodeTokens(*tokenizer, ids).empty()) return Status(StatusCode::kInput, "no text");
    decode = std::min(decode, SecondsSince(begin));
  }
  const double megabytes = text.size() / 1e6;
  std::printf(
      "tokenizer: load %.0f ms, encode %.1f MB/s, decode %.1f MB/s (%.2f MB, %zu ids, 1 core)\n",
      load * 1e3, megabytes / encode, megabytes / decode, megabytes, ids.size());
  return OkStatus();
}

// What to measure.
struct Workload {
  std::vector<int> prompts, batches, contexts;
  int steps = 0, repetitions = 0, threads = 0;
};

StatusOr<Workload> ParseWorkload(const Args& args) {
  Workload w;
  KU_ASSIGN_OR_RETURN(w.prompts, ParseIntList(args, "prompt-tokens", "128,512"));
  KU_ASSIGN_OR_RETURN(w.batches, ParseIntList(args, "batch", "1,2,4,8"));
  KU_ASSIGN_OR_RETURN(w.contexts, ParseIntList(args, "context", "16"));
  KU_ASSIGN_OR_RETURN(const int64_t steps, ParseInt(args, "decode-steps", 16, 4, 4096));
  KU_ASSIGN_OR_RETURN(const int64_t repetitions, ParseInt(args, "repetitions", 3, 1, 100));
  KU_ASSIGN_OR_RETURN(const int64_t threads, ParseInt(args, "threads", 0, 0, 1024));
  w.steps = static_cast<int>(steps);
  w.repetitions = static_cast<int>(repetitions);
  w.threads = static_cast<int>(threads);
  return w;
}

StatusOr<std::vector<Row>> Measure(Engine& engine, const MappedFile& weights, const Workload& w) {
  ThreadPool pool(w.threads);
  Bench bench(engine, pool, weights, w.repetitions);
  std::vector<Row> rows;
  for (const int context : w.contexts) {
    for (const int batch : w.batches) {
      KU_ASSIGN_OR_RETURN(const Row row, bench.Decode(context, batch, w.steps));
      rows.push_back(row);
    }
  }
  for (const int tokens : w.prompts) {
    KU_ASSIGN_OR_RETURN(const Row row, bench.Prefill(tokens));
    rows.push_back(row);
  }
  return rows;
}

Status BenchModel(const Args& args, const Workload& w, EngineConfig config) {
  config.need_tokenizer = false;
  config.paged = !args.has("no-paged-attention");
  config.ops.num_threads = w.threads;
  config.max_num_seqs = *std::max_element(w.batches.begin(), w.batches.end());
  config.max_num_batched_tokens = 512;
  const int longest = *std::max_element(w.prompts.begin(), w.prompts.end());
  const int context = *std::max_element(w.contexts.begin(), w.contexts.end());
  config.max_context = std::max(longest + 2, context + (w.steps * w.repetitions + 3) * 4);
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(config));

  // Memory is read before the yardsticks map the weights a second time.
  KU_ASSIGN_OR_RETURN(const Completion warm_up,
                      engine->Generate(MakeRequest(*engine, longest, 2, 0)));
  const int64_t peak_resident = PeakResidentBytes();
  const KvStats kv = engine->kv_stats();

  const std::string weights_path = LargestWeightsFile(config.model_path);
  const MappedFile weights(weights_path);
  if (weights.data() == nullptr) {
    return Status(StatusCode::kModel, "cannot map " + weights_path + " to measure the bandwidth");
  }
  KU_ASSIGN_OR_RETURN(const std::vector<Row> rows, Measure(*engine, weights, w));

  std::printf("%s\n%s, %s, %s KV cache\n", Engine::Version().c_str(),
              engine->device_description().c_str(), DTypeName(engine->weight_type()),
              config.paged ? "paged" : "contiguous");
  PrintTable(rows);
  std::printf(
      "memory after %d tokens: weights file %.1f MB, KV touched %.1f MB, peak resident %.1f MB\n",
      warm_up.prompt_tokens + 2, weights.size() / 1e6, kv.bytes_touched / 1e6, peak_resident / 1e6);
  if (!args.has("json")) return OkStatus();
  const Json json = {{"version", Engine::Version()},
                     {"device", engine->device_description()},
                     {"dtype", DTypeName(engine->weight_type())},
                     {"layout", config.paged ? "paged" : "contiguous"},
                     {"rows", ToJson(rows)},
                     {"weights_file_bytes", weights.size()},
                     {"kv_bytes_touched", kv.bytes_touched},
                     {"peak_resident_bytes", peak_resident}};
  std::ofstream out(args.text("json", ""));
  out << json.dump(2) << "\n";
  if (!out.flush()) return Status(StatusCode::kInternal, "cannot write " + args.text("json", ""));
  return OkStatus();
}

Status Run(const Args& args) {
  KU_ASSIGN_OR_RETURN(const Workload workload, ParseWorkload(args));
  if (args.has("text")) {
    return BenchTokenizer(
        args.text("tokenizer", args.positionals.empty() ? "" : args.positionals[0]),
        args.text("text", ""), workload.repetitions);
  }
  if (args.has("invent") == !args.positionals.empty()) {
    return Status(StatusCode::kInvalidArgument, "give either MODEL or --invent CONFIG.json",
                  std::string("usage: ") + kUsage);
  }
  KU_ASSIGN_OR_RETURN(const std::optional<DType> dtype, ParseType(args));
  EngineConfig config;
  InventedModel invented;
  if (args.has("invent")) {
    std::error_code error;
    std::string temporary = std::filesystem::temp_directory_path(error).string();
    if (error) temporary = ".";
    KU_RETURN_IF_ERROR(
        invented.Make(args.text("invent", ""), dtype, args.text("scratch", temporary)));
    config.model_path = invented.dir();
  } else {
    config.model_path = args.positionals[0];
    config.dtype = dtype;
  }
  return BenchModel(args, workload, config);
}

int Main(int argc, char** argv) {
  const auto args = ParseArgs(
      argc, argv, kUsage,
      {{"invent", "CONFIG.json", "random weights in the shapes of this config"},
       {"scratch", "DIR", "keeps the invented weights meanwhile (default: the temporary folder)"},
       {"dtype", "T", "auto, fp16, bf16 or fp32 (default: as stored or configured)"},
       {"prompt-tokens", "LIST", "prefill lengths (default: 128,512)"},
       {"batch", "LIST", "sequences decoded together (default: 1,2,4,8)"},
       {"context", "LIST", "tokens before decoding starts (default: 16)"},
       {"decode-steps", "N", "steps per repetition (default: 16)"},
       {"repetitions", "N", "default: 3"},
       {"threads", "N", "default: one per core"},
       {"no-paged-attention", "", "contiguous KV cache"},
       {"text", "FILE", "measure the tokenizer of MODEL on this text instead"},
       {"tokenizer", "PATH", "with --text: this tokenizer"},
       {"json", "FILE", "write the results as JSON"}},
      0, 1);
  if (!args.ok()) return Fail(args.status());
  const Status status = Run(*args);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  return kuiper::tools::Main(argc, argv);
}
