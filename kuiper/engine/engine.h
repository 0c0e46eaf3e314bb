// The public API: requests in, tokens out. An Engine owns one model, one KV cache and one scheduler
// and runs any number of requests at once, step by step; docs/examples/generate.cpp is a program.
//
// Threads: calls to one Engine come from one thread at a time, whichever that is; the caller sees
// to it that they do not overlap. Different Engines share nothing that changes but the machine, so
// they may be created, used and destroyed in different threads at the same time.
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

// Where weights lie that the CPU could use where their file is mapped: other programs share a
// mapped file, copies in huge pages are read faster. kAuto: as UseOfMapped of engine_memory.h.
enum class WeightStorage { kAuto, kMapped, kCopied };

// What an engine will compute before it goes, at most.
struct ExpectedWork {
  int64_t prompt_tokens = 0;
  int64_t decode_steps = 0;
};

struct EngineConfig {
  std::string model_path;      // Hugging Face directory, .safetensors, or .bin of kuiper_pack
  std::string tokenizer_path;  // "" = from the model directory or container
  Device device;
  OpsOptions ops;
  std::optional<DType> dtype;     // weights are converted; absent = as stored
  bool int8_head = false;         // quantise the head while it is loaded
  bool int8_activations = false;  // as WeightOptions::int8_activations
  WeightStorage weight_storage = WeightStorage::kAuto;
  // kAuto copies no weights for work that ends before the copy has paid; absent = nobody knows.
  std::optional<ExpectedWork> expected_work;
  std::optional<KvFormat> kv_format;  // absent = the type of the weights
  bool need_tokenizer = true;         // false: ids in, ids out; a missing tokenizer is no error

  bool paged = true;    // block-table KV cache; otherwise one contiguous row per sequence
  int page_size = 16;   // tokens per page, a power of two from 1 to 256
  int max_context = 0;  // tokens of one sequence; 0 = min(8192, the model's limit)
  int max_num_seqs = 1;
  int max_num_batched_tokens = 512;  // tokens of one step; longer prompts run in chunks
  bool prompt_logits = false;        // Logits() will be called: memory for a whole step's rows
  // Rows of logits that prompts may have in a step, for Request::num_prompt_logprobs: so many
  // tokens of such prompts are computed at a time. 0 takes no memory and no such requests.
  int prompt_rows = 0;
  bool use_graph = false;  // record the decode step once per batch size and replay it
  // Compute a few tokens before the first request, so that its first token takes no longer than
  // that of later ones; absent = on devices, which load kernels when they are first launched.
  std::optional<bool> warm_up;
  // Attention of a decode step reads pages that several sequences share once for all of them; the
  // bits are those without it. Absent = on the CPU and where attention runs on tensor cores.
  std::optional<bool> cascade_attention;
  // Launch a step before the tokens of the one before it have reached the host, where the host has
  // nothing to do with them first; absent = on devices.
  std::optional<bool> run_ahead;
  // Of models that see: the most tokens of an image, or of a frame of a video. The encoder has
  // memory for so many; 0 takes no pictures, and no memory. Absent = 1024; clamped to the context.
  std::optional<int64_t> image_max_tokens;
  // Tokens of pictures whose rows from the encoder are kept, beside each other and for pictures
  // that come again; absent = max_context. A request with more of them is refused; one that has to
  // wait for those of others waits.
  std::optional<int64_t> vision_cache_tokens;

  bool prefix_cache = false;
  int64_t prefix_cache_tokens = 65536;  // clamped to the pool

  SchedulingPolicy policy = SchedulingPolicy::kThroughput;
  double latency_target_ms = 50;  // kLatency: of a step that decodes beside a prompt; above 0
  OnFull on_full = OnFull::kPreempt;
  Preemption preemption = Preemption::kRecompute;
  // Host memory for kSwap and kAuto, at most as much as the pool; allocated at creation.
  size_t swap_bytes = size_t{1} << 30;

  // Share of the available memory that may be used; absent = 0.9, and 0.8 on a GPU whose memory is
  // the host's.
  std::optional<double> memory_utilization;
  std::optional<int> num_blocks;
  std::optional<size_t> kv_cache_bytes;

  // Told what becomes of each page of a paged KV cache (kv/kv_event.h, kv/page_map.h), until the
  // engine is destroyed; empty: nobody watches.
  KvObserver on_kv_event;
  // Told what the prefix cache of a paged KV cache holds (kv/prefix_event.h), as long.
  PrefixObserver on_prefix_event;

  OnEncoding on_encoding;  // may be empty

  // Called while weights are read: bytes so far, bytes in all.
  std::function<void(size_t done, size_t total)> progress;
};

// Pages of the pool and what the prefix cache did; for /cache, /paged, JSON and logs.
struct KvStats {
  bool paged = true;
  int page_size = 0;
  int layers = 0;
  int pages_total = 0, pages_used = 0, pages_free = 0, pages_shared = 0, pages_evictable = 0;
  int pages_peak = 0;         // most pages in use at one time
  size_t bytes_reserved = 0;  // allocated
  size_t bytes_touched = 0;   // of that, pages that were ever used
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
  // What this build and this machine can compute on, the CPU first.
  static std::vector<Device> Devices();
  // kUnavailable, and why, for a device that cannot be used. Asks no other one: asking a GPU makes
  // it ready for work, which takes some of its memory.
  static Status CheckDevice(Device device);
  // The tokenizer alone: config.tokenizer_path, else the one in the model's directory or container.
  static StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(const EngineConfig& config);
  // The same for this model, kTokenizer when the two do not match; null when none is there and
  // none is needed. With MaxContext a caller can count a prompt before weights are read.
  static StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizer(const EngineConfig& config,
                                                            const OpenedModel& model);
  // EngineConfig::max_context as it will really be. kInvalidArgument beyond the model's limit.
  static StatusOr<int> MaxContext(const EngineConfig& config, const OpenedModel& model);
  // The chat template that came with the tokenizer, else with the model.
  static StatusOr<TemplateFiles> ReadTemplate(const EngineConfig& config);
  // Plans memory and loads nothing. Same errors as Create up to there.
  static StatusOr<MemoryPlan> Plan(const EngineConfig& config, const OpenedModel& model);
  // The same for each type of keys and values; a plan that does not fit is no error.
  static StatusOr<MemoryTable> PlanTable(const EngineConfig& config, const OpenedModel& model);
  // Reads the tokenizer unless it is given.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineConfig& config, OpenedModel model,
                                                  std::unique_ptr<Tokenizer> tokenizer = nullptr);
  // Opens config.model_path first.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineConfig& config);
  // An engine for one sequence of so many tokens, of pictures among them, on a contiguous KV cache
  // of its own. It computes with this engine's weights and working memory: this one must outlive
  // it, and one thread at a time calls both; their steps may alternate. kResourceExhausted when the
  // memory plan of this one does not leave its memory at the moment. `on_encoding` is asked of its
  // requests.
  StatusOr<std::unique_ptr<Engine>> ContiguousBeside(int num_tokens, int64_t picture_tokens = 0,
                                                     OnEncoding on_encoding = {});
  ~Engine();

  // kContextExceeded when the prompt leaves no room in the context, kResourceExhausted when it can
  // never fit the pool, kInvalidArgument for bad parameters or ids outside the vocabulary. Beams
  // need a seat each (max_num_seqs) and share pages as samples do.
  StatusOr<int64_t> Add(Request request);
  // Ends a sample of the request, or all of them, with kInterrupt at the next Step; what is unknown
  // or has ended is ignored. A beam search ends as a whole, with the answers so far.
  void Abort(int64_t request, std::optional<int> sample = std::nullopt);
  bool HasWork() const;
  // One step of all runnable requests: Schedule, Run, Commit. Requests that ended without a token
  // come first, then one event per new token in the order of the batch, then the answers of beam
  // searches that ended.
  std::vector<TokenEvent> Step();
  // The result of a finished sample, which can be taken once; else kInvalidArgument.
  StatusOr<Completion> Take(int64_t request, int sample = 0);

  // Adds the request, of one sample, and runs it to its end. `on_event` may be empty; returning
  // false aborts. kInvalidArgument while there are other requests.
  StatusOr<Completion> Generate(Request request,
                                const std::function<bool(const TokenEvent&)>& on_event = {});
  // Logits of every position of a prompt from `first` on, row by row: logits [vocab] f32 is valid
  // during the call; `images` as in Request. kInvalidArgument without EngineConfig::prompt_logits,
  // and while there are requests.
  Status Logits(const std::vector<int32_t>& prompt,
                const std::function<void(int position, const float* logits)>& on_row, int first = 0,
                std::vector<VisionInput> images = {});
  // What the vision tower makes of a picture, [tokens, 1 + K, hidden]: the embedding of each token,
  // and what is added to it behind each of the first K layers. kInvalidArgument where none are
  // taken, and as Add.
  StatusOr<std::vector<float>> EncodePicture(VisionInput picture);

  const Tokenizer* tokenizer() const;  // null when the model has none (ids in, ids out)
  const ModelConfig& model_config() const;
  const GenerationConfig& generation_config() const;
  const EngineConfig& config() const;  // with max_context etc. as they really are
  const MemoryPlan& memory_plan() const;
  // Of the plan, what is allocated now: the KV cache grows with its use.
  size_t memory_in_use() const;
  DType weight_type() const;
  KvFormat kv_format() const;
  size_t weight_bytes_per_token() const;  // bytes of weights one decode step reads
  std::string device_description() const;
  double load_ms() const;
  // A file of weights that was written to or truncated since the model was opened, and that steps
  // still read; "" when there is none. Answers since then may be wrong.
  std::string ChangedFile() const;
  RunFacts run_facts() const;

  KvStats kv_stats() const;
  // Pages of a sample in order of position, while it is generated and until it is taken;
  // Completion::pages has them then. kInvalidArgument when there is no such sample.
  StatusOr<std::vector<int32_t>> block_table(int64_t request, int sample = 0) const;
  // Tokens of a request's prompt that are computed or reused so far, while no answer has ended.
  // kInvalidArgument when there is no such request.
  StatusOr<int> num_computed(int64_t request) const;
  // Forgets all reusable prefixes.
  void ClearPrefixCache();
  // Gives memory of the KV cache back that lies behind the last page in use, by a request or by the
  // prefix cache, in whole slabs (docs/kv_cache.md); it is allocated again when it is needed. Does
  // nothing in contiguous mode.
  void ReleaseUnusedMemory();

 private:
  explicit Engine(std::unique_ptr<EngineParts> parts);
  std::unique_ptr<EngineParts> parts_;
};

}  // namespace kuiper
