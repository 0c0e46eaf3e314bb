// The public API: requests in, tokens out. An Engine owns one model, one KV cache and one scheduler
// and runs any number of requests at once, step by step; docs/examples/generate.cpp is a program.
//
// Threads: calls to one Engine may come from different threads, but must not overlap; the caller
// ensures this. Different Engines share no mutable state except the machine. So they may be
// created, used and destroyed in different threads at the same time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/device.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/memory_plan.h"
#include "kuiper/engine/picture_prompt.h"
#include "kuiper/engine/policy.h"
#include "kuiper/engine/request.h"
#include "kuiper/engine/run_facts.h"
#include "kuiper/io/template_files.h"
#include "kuiper/io/tokenizer.h"
#include "kuiper/kv/kv_event.h"
#include "kuiper/kv/prefix_event.h"
#include "kuiper/model/config.h"
#include "kuiper/model/opened_model.h"
#include "kuiper/ops/kv_format.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper {

// Storage of weights that the CPU could read directly from the mapped file. A mapped file is shared
// with other programs; copies in huge pages are read faster. kAuto: see UseOfMapped in
// engine_memory.h.
enum class WeightStorage { kAuto, kMapped, kCopied };

// Upper bounds of the work of an engine over its lifetime.
struct ExpectedWork {
  int64_t prompt_tokens = 0;
  int64_t decode_steps = 0;
};

struct EngineConfig {
  std::string model_path;      // Hugging Face directory, .safetensors, or .bin of kuiper_pack
  std::string tokenizer_path;  // "" = from the model directory or container
  Device device;
  OpsOptions ops;
  std::optional<DType> dtype;     // weights are converted to it; absent = as stored
  bool int8_head = false;         // quantise the LM head while it is loaded
  bool int8_activations = false;  // see WeightOptions::int8_activations
  WeightStorage weight_storage = WeightStorage::kAuto;
  // kAuto copies no weights if the work ends before the copy pays off; absent = unknown.
  std::optional<ExpectedWork> expected_work;
  std::optional<KvFormat> kv_format;  // absent = the type of the weights
  bool need_tokenizer = true;         // false: ids in, ids out; the tokenizer may be missing

  bool paged = true;    // block-table KV cache; otherwise one contiguous row per sequence
  int page_size = 16;   // tokens per page, a power of two from 1 to 256
  int max_context = 0;  // tokens of one sequence; 0 = min(8192, the model's limit)
  int max_num_seqs = 1;
  int max_num_batched_tokens = 512;  // tokens of one step; longer prompts run in chunks
  bool prompt_logits = false;        // for Logits(): memory for the rows of a whole step
  // Logits rows of prompts per step, for Request::num_prompt_logprobs: at most this many tokens of
  // such prompts are computed per step. 0: no memory, and such requests are refused.
  int prompt_rows = 0;
  bool use_graph = false;  // capture the decode step once per batch size and replay it
  // Compute a few tokens before the first request, so that its first token takes no longer than
  // those of later requests. Absent = on devices, which load kernels when these are first launched.
  std::optional<bool> warm_up;
  // Attention of a decode step reads pages that several sequences share once for all of them; the
  // results are the same, bit for bit. Absent = on the CPU and where attention runs on tensor
  // cores.
  std::optional<bool> cascade_attention;
  // Asynchronous scheduling: launch a step before the host has the previous step's tokens, unless
  // the host must process them first. Absent = on devices.
  std::optional<bool> run_ahead;
  // For models with a vision encoder: most tokens of an image, or of a frame of a video. The
  // encoder reserves memory for this many. 0: no pictures are accepted, and no memory is reserved.
  // Absent = 1024; clamped to the context.
  std::optional<int64_t> image_max_tokens;
  // Tokens of pictures whose encoder output is kept at a time, also for pictures that come again;
  // absent = max_context. A request with more picture tokens is refused. A request waits while
  // other requests use this memory.
  std::optional<int64_t> vision_cache_tokens;

  bool prefix_cache = false;
  int64_t prefix_cache_tokens = 65536;  // clamped to the pool

  SchedulingPolicy policy = SchedulingPolicy::kThroughput;
  double latency_target_ms = 50;  // kLatency: of a step that also computes prompts; above 0
  OnFull on_full = OnFull::kPreempt;
  Preemption preemption = Preemption::kRecompute;
  // Host memory for kSwap and kAuto, clamped to the size of the pool; allocated at creation.
  size_t swap_bytes = size_t{1} << 30;

  // Share of the available memory that may be used. Absent = 0.9, or 0.8 on a GPU that shares the
  // host's memory.
  std::optional<double> memory_utilization;
  std::optional<int> num_blocks;
  std::optional<size_t> kv_cache_bytes;

  // Called for each change of a page of a paged KV cache (kv/kv_event.h, kv/page_map.h), until the
  // engine is destroyed; may be empty.
  KvObserver on_kv_event;
  // Called for each change of a paged prefix cache (kv/prefix_event.h), until the engine is
  // destroyed; may be empty.
  PrefixObserver on_prefix_event;

  OnEncoding on_encoding;  // may be empty

  // Called while weights are read: bytes so far, bytes in total.
  std::function<void(size_t done, size_t total)> progress;
};

// State of the pool and counters of the prefix cache; for /cache, /paged, JSON and logs.
struct KvStats {
  bool paged = true;
  int page_size = 0;
  int layers = 0;
  int pages_total = 0, pages_used = 0, pages_free = 0, pages_shared = 0, pages_evictable = 0;
  int pages_peak = 0;         // most pages in use at one time
  size_t bytes_reserved = 0;  // allocated
  size_t bytes_touched = 0;   // pages of it that were ever used
  bool prefix_cache = false;
  int64_t lookups = 0, hits = 0, tokens_requested = 0, tokens_hit = 0, evicted_pages = 0;
  int64_t preempted_recompute = 0, preempted_swap = 0;
  int64_t pages_swapped_out = 0, pages_swapped_in = 0;
  int swap_pages_total = 0, swap_pages_used = 0;
  int64_t slides = 0;  // times a sequence dropped its oldest half
};

struct EngineParts;

class Engine {
 public:
  // "kuiper 0.1.0 (commit 012e9e0), devices: cpu (Highway 1.2.0: AVX3, AVX2, SSE4, SCALAR)"; a
  // release archive has no commit.
  static std::string Version();
  // Devices that this build and this machine can compute on, the CPU first.
  static std::vector<Device> Devices();
  // kUnavailable, with the reason, if the device cannot be used. Queries no other device: a query
  // initialises a GPU, which takes some of its memory.
  static Status CheckDevice(Device device);
  // Reads only the tokenizer: config.tokenizer_path, else that of the model's directory or
  // container.
  static StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(const EngineConfig& config);
  // Also checks it against this model: kTokenizer if the two do not match. Null if there is none
  // and none is needed. With MaxContext, a caller can count a prompt's tokens before weights are
  // read.
  static StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(const EngineConfig& config,
                                                            const OpenedModel& model);
  // Returns the effective EngineConfig::max_context. kInvalidArgument beyond the model's limit.
  static StatusOr<int> MaxContext(const EngineConfig& config, const OpenedModel& model);
  // Reads the chat template that came with the tokenizer, else with the model.
  static StatusOr<TemplateFiles> ReadTemplate(const EngineConfig& config);
  // Plans memory without loading weights. Same errors as Create up to that point.
  static StatusOr<MemoryPlan> Plan(const EngineConfig& config, const OpenedModel& model);
  // Plans for each type of keys and values; plans may exceed the memory.
  static StatusOr<MemoryTable> PlanTable(const EngineConfig& config, const OpenedModel& model);
  // Reads the tokenizer if `tokenizer` is null.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineConfig& config, OpenedModel model,
                                                  std::unique_ptr<Tokenizer> tokenizer = nullptr);
  // Opens config.model_path and makes an engine for it.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineConfig& config);
  // Makes an engine for one sequence of num_tokens tokens, picture_tokens of them pictures, on a
  // contiguous KV cache of its own. It shares this engine's weights and working memory. So this
  // engine must outlive it, and both must be called from one thread at a time; their steps may
  // alternate. kResourceExhausted if this engine's memory plan currently leaves too little memory.
  // `on_encoding` is called for requests of the new engine.
  StatusOr<std::unique_ptr<Engine>> MakeContiguousEngine(int num_tokens, int64_t picture_tokens = 0,
                                                         OnEncoding on_encoding = {});
  ~Engine();

  // kContextExceeded if the prompt leaves no room in the context. kResourceExhausted if it can
  // never fit the pool. kInvalidArgument for bad parameters or ids outside the vocabulary. Each
  // beam counts as a sequence (max_num_seqs); beams share pages as samples do.
  StatusOr<int64_t> Add(Request request);
  // Ends a sample of the request, or all samples, with kInterrupt at the next Step. Unknown or
  // ended samples are ignored. A beam search ends as a whole, with the answers so far.
  void Abort(int64_t request, std::optional<int> sample = std::nullopt);
  bool HasWork() const;
  // Runs one step of all runnable requests: Schedule, Run, Commit. Returns first the requests that
  // ended without a token, then one event per new token in the order of the batch, then the answers
  // of ended beam searches.
  std::vector<TokenEvent> Step();
  // Returns the result of a finished sample once; later calls return kInvalidArgument.
  StatusOr<Completion> Take(int64_t request, int sample = 0);

  // Adds a request with one sample and runs it to its end. `on_event` may be empty; returning false
  // aborts. kInvalidArgument while there are other requests.
  StatusOr<Completion> Generate(Request request,
                                const std::function<bool(const TokenEvent&)>& on_event = {});
  // Computes the logits of every position of a prompt from `first` on. Calls on_row for each;
  // logits [vocab] f32 is valid during the call. `images` as in Request. kInvalidArgument without
  // EngineConfig::prompt_logits, and while there are requests.
  Status Logits(const std::vector<int32_t>& prompt,
                const std::function<void(int position, const float* logits)>& on_row, int first = 0,
                std::vector<VisionInput> images = {});
  // Returns the vision encoder's output for a picture, [tokens, 1 + K, hidden]. Each token has its
  // embedding and the values added to it after each of the first K layers. kInvalidArgument if
  // pictures are not accepted; other errors as in Add.
  StatusOr<std::vector<float>> EncodePicture(VisionInput picture);

  const Tokenizer* tokenizer() const;  // null when the model has none (ids in, ids out)
  const ModelConfig& model_config() const;
  const GenerationConfig& generation_config() const;
  const EngineConfig& config() const;  // with max_context etc. as they really are
  const MemoryPlan& memory_plan() const;
  // The part of the plan that is allocated now: the KV cache grows with its use.
  size_t memory_in_use() const;
  DType weight_type() const;
  KvFormat kv_format() const;
  size_t weight_bytes_per_token() const;  // bytes of weights one decode step reads
  std::string device_description() const;
  double load_ms() const;
  // Returns a weight file that steps still read and that was written to or truncated after the
  // model was opened; "" if there is none. Answers since then may be wrong.
  std::string ChangedFile() const;
  RunFacts run_facts() const;

  KvStats kv_stats() const;
  // Pages of a sample in order of position, from its generation until it is taken; then
  // Completion::pages has them. kInvalidArgument if there is no such sample.
  StatusOr<std::vector<int32_t>> block_table(int64_t request, int sample = 0) const;
  // Prompt tokens of a request that are computed or reused so far; valid while no answer has ended.
  // kInvalidArgument if there is no such request.
  StatusOr<int> num_computed(int64_t request) const;
  // Forgets all reusable prefixes.
  void ClearPrefixCache();
  // Frees KV cache memory after the last page in use by a request or the prefix cache, in whole
  // slabs (docs/kv_cache.md). It is allocated again when needed. Does nothing in contiguous mode.
  void ReleaseUnusedMemory();

 private:
  explicit Engine(std::unique_ptr<EngineParts> parts);
  std::unique_ptr<EngineParts> parts_;
};

}  // namespace kuiper
