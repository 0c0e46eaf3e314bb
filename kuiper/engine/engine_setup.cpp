// MakeEngineParts and Engine::Plan: check that model, tokenizer and options match, plan memory, and
// only then load weights.
#include <algorithm>
#include <bit>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/base/parallel.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/engine_memory.h"
#include "kuiper/engine/engine_parts.h"
#include "kuiper/engine/memory_planner.h"

namespace kuiper {
namespace {

constexpr int kDefaultContext = 8192;

Status CheckConfig(const EngineConfig& config) {
  KU_RETURN_IF_ERROR(CheckWeightOptions(WeightsOf(config), config.device));
  auto bad = [](const std::string& what) { return Status(StatusCode::kInvalidArgument, what); };
  const int page = config.page_size;
  if (page < 1 || page > 256 || !std::has_single_bit(static_cast<unsigned>(page))) {
    return bad("block size " + std::to_string(page) + " is not a power of two from 1 to 256");
  }
  if (config.max_context < 0) return bad("the context length must not be negative");
  if (config.max_num_seqs < 1) return bad("at least one sequence must be allowed");
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    return bad("a step of " + std::to_string(config.max_num_batched_tokens) +
               " tokens is too small for " + std::to_string(config.max_num_seqs) + " sequences");
  }
  if (config.prompt_rows < 0 || config.prompt_rows > config.max_num_batched_tokens) {
    return bad("rows of prompts must be from 0 to the tokens of a step");
  }
  if (!(config.latency_target_ms > 0)) return bad("the latency target must be above 0 ms");
  const double share = config.memory_utilization.value_or(1);
  if (!(share > 0 && share <= 1)) {
    return bad("memory utilization must be in (0, 1]");
  }
  if (config.num_blocks.has_value() && *config.num_blocks < 1) {
    return bad("at least one block is needed");
  }
  if (!config.paged && config.preemption == Preemption::kSwap) {
    return bad(Param("preemption") + " swap needs " + Param("paged_attention") +
               ": a contiguous cache is not swapped");
  }
  if (config.prefix_cache_tokens < 0) return bad("the prefix cache must not be negative");
  if (config.image_max_tokens.value_or(0) < 0 || config.vision_cache_tokens.value_or(0) < 0) {
    return bad("numbers of tokens of pictures must not be negative");
  }
  constexpr int kMaxThreads = 1024;
  if (config.ops.num_threads < 0 || config.ops.num_threads > kMaxThreads) {
    return bad("the number of threads must be from 0 (one per core) to " +
               std::to_string(kMaxThreads));
  }
  return OkStatus();
}

Status ResolveContext(const DecoderConfig& model, EngineConfig* config) {
  const int limit = model.rope.max_position;
  if (config->max_context > limit) {
    return Status(StatusCode::kInvalidArgument,
                  "a context of " + std::to_string(config->max_context) +
                      " exceeds the model's limit of " + std::to_string(limit),
                  "use " + Param("max_context") + " " + std::to_string(limit) + " or less");
  }
  if (config->max_context == 0) config->max_context = std::min(kDefaultContext, limit);
  return OkStatus();
}

// kLatency: a mixed step must not read the weights twice, once for prefill rows and once for decode
// rows. So prompts use the kernels of decode steps.
StatusOr<std::unique_ptr<Ops>> MakeEngineOps(const EngineConfig& config) {
  OpsOptions options = config.ops;
  if (config.policy == SchedulingPolicy::kLatency) options.determinism = Determinism::kStrict;
  return MakeOps(config.device, options);
}

// Answers end at each token that generation_config.json, config.json or the tokenizer's files name.
// A chat model may name its end-of-turn token in only one of them.
std::vector<int32_t> EosOf(const Model& model, const Tokenizer* tokenizer) {
  std::vector<int32_t> eos = model.eos();
  const std::optional<int32_t> own = tokenizer == nullptr ? std::nullopt : tokenizer->eos();
  if (own.has_value() && std::find(eos.begin(), eos.end(), *own) == eos.end()) eos.push_back(*own);
  return eos;
}

void LogEos(const std::vector<int32_t>& eos, const Tokenizer* tokenizer) {
  std::string text;
  for (const int32_t id : eos) {
    if (!text.empty()) text += id == eos.back() ? " and " : ", ";
    if (tokenizer != nullptr) text += std::string(tokenizer->Bytes(id)) + " ";
    text += "(" + std::to_string(id) + ")";
  }
  LogInfo(eos.empty() ? "no file of the model names a token that ends answers"
                      : "answers end at " + text);
}

void MakeStepLoop(EngineParts& s) {
  const EngineConfig& config = s.config;
  const Scheduler::Limits limits{.max_seqs = config.max_num_seqs,
                                 .max_step_tokens = config.max_num_batched_tokens,
                                 .max_prompt_rows = config.prompt_rows,
                                 .max_context = config.max_context,
                                 .num_axes = s.model->config().decoder.rope.num_axes(),
                                 .policy = config.policy,
                                 .latency_target_ms = config.latency_target_ms,
                                 .pass_rows = s.ops->device().traits().pass_rows,
                                 .on_full = config.on_full,
                                 .preemption = config.preemption,
                                 .group_decodes = *config.cascade_attention};
  EncoderCache* sources = s.pictures != nullptr ? &s.pictures->cache() : nullptr;
  s.scheduler = std::make_unique<Scheduler>(limits, s.storage->pool(), s.storage->reuse(),
                                            s.storage->host_pages(), sources);
  if (s.storage->swap() != nullptr && config.preemption == Preemption::kAuto) {
    s.scheduler->set_costs({.page_ms = s.storage->swap()->MeasurePageMs()});
  }
  AnswerRules rules{.tokenizer = s.tokenizer,
                    .eos = EosOf(*s.model, s.tokenizer),
                    .vocab = s.runner->model().vocab,
                    .vocab_limit = s.runner->vocab_limit(),
                    .max_context = config.max_context,
                    .max_seqs = s.scheduler->limits().max_seqs,
                    .max_prompt_rows = config.prompt_rows,
                    .on_full = config.on_full};
  s.requests = std::make_unique<RequestTable>(std::move(rules), *s.scheduler, s.pictures.get());
  const bool run_ahead = config.run_ahead.value_or(s.ops->device().traits().is_asynchronous);
  s.steps = std::make_unique<StepLoop>(*s.scheduler, *s.storage, s.pictures.get(), *s.runner,
                                       *s.requests, run_ahead, s.config.on_encoding);
}

// Makes the parts that run a loaded model, from its runner to the step loop.
Status MakeRunningParts(EngineParts& s, const KvShape& kv) {
  const DecoderConfig& decoder = s.model->config().decoder;
  const int vocab = s.tokenizer != nullptr ? s.tokenizer->max_id() + 1 : decoder.vocab;
  const bool cascade = Cascades(s.config, decoder.dtype, kv, *s.ops);
  s.config.cascade_attention = cascade;
  const Decoder& model_decoder = s.model->decoder();
  const ModelRunner::Config runner =
      RunnerConfig(s.config, s.model->config(), kv, vocab, cascade, model_decoder.quantized());
  const VisionLimits vision = VisionLimitsOf(s.config, s.model->config());
  s.config.image_max_tokens = vision.frame_tokens;
  s.config.vision_cache_tokens = vision.cache_tokens;
  const auto find_rows = [parts = &s](int64_t source) {
    return parts->pictures != nullptr ? parts->pictures->Rows(source) : Tensor();
  };
  KU_ASSIGN_OR_RETURN(s.runner, ModelRunner::Create(*s.ops, model_decoder, runner, find_rows));
  if (vision.max_patches > 0) {
    if (s.own_model != nullptr) KU_RETURN_IF_ERROR(s.model->vision()->Reserve(vision.max_patches));
    s.pictures = std::make_unique<PictureStore>(
        *s.ops, *s.model->vision(), *s.model->config().vision_tokens, vision.cache_tokens);
  }
  if (s.config.warm_up.value_or(s.ops->device().traits().is_asynchronous)) {
    KU_RETURN_IF_ERROR(s.runner->WarmUp());
  }
  s.config.prefix_cache_tokens =
      std::min(s.config.prefix_cache_tokens, int64_t{s.plan.num_pages} * kv.page_size);
  KU_ASSIGN_OR_RETURN(s.storage, KvStorage::Create(s.config, s.ops->device(), s.runner->kv()));
  MakeStepLoop(s);
  return OkStatus();
}

// Configures an engine for one contiguous sequence that computes as `other` does.
EngineConfig ContiguousConfig(const EngineConfig& other, int num_tokens, int64_t picture_tokens) {
  constexpr int kMaxStepTokens = 128;  // delays `other` by a decode step or two
  EngineConfig config = other;
  config.paged = config.prefix_cache = config.use_graph = config.prompt_logits = false;
  config.warm_up = config.cascade_attention = config.run_ahead = false;
  config.max_context = std::min(num_tokens, other.max_context);
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = std::min(kMaxStepTokens, other.max_num_batched_tokens);
  if (picture_tokens == 0) config.image_max_tokens = 0;
  config.vision_cache_tokens = picture_tokens;
  config.preemption = Preemption::kRecompute;
  config.num_blocks = {};
  config.kv_cache_bytes = {};
  config.on_kv_event = {};
  config.progress = {};
  return config;
}

}  // namespace

std::vector<Device> Engine::Devices() {
  return UsableDevices();
}

Status Engine::CheckDevice(Device device) {
  return IsUsable(device) ? OkStatus() : MakeOps(device, {}).status();
}

StatusOr<int> Engine::MaxContext(const EngineConfig& config, const OpenedModel& model) {
  EngineConfig resolved = config;
  KU_RETURN_IF_ERROR(CheckConfig(resolved));
  KU_RETURN_IF_ERROR(ResolveContext(model.config.decoder, &resolved));
  return resolved.max_context;
}

StatusOr<MemoryPlan> Engine::Plan(const EngineConfig& config, const OpenedModel& model) {
  EngineConfig resolved = config;
  KU_RETURN_IF_ERROR(CheckConfig(resolved));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeEngineOps(config));
  KU_RETURN_IF_ERROR(ResolveContext(model.config.decoder, &resolved));
  KvShape kv;
  return MakePlan(resolved, model, *ops, &kv);
}

StatusOr<MemoryTable> Engine::PlanTable(const EngineConfig& config, const OpenedModel& model) {
  EngineConfig resolved = config;
  KU_RETURN_IF_ERROR(CheckConfig(resolved));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeEngineOps(config));
  KU_RETURN_IF_ERROR(ResolveContext(model.config.decoder, &resolved));
  return MakePlanTable(resolved, model, *ops);
}

StatusOr<std::unique_ptr<EngineParts>> MakeEngineParts(const EngineConfig& config,
                                                       OpenedModel model,
                                                       std::unique_ptr<Tokenizer> tokenizer) {
  const Clock::time_point begin = Clock::now();
  auto s = std::make_unique<EngineParts>();
  s->config = config;
  KU_RETURN_IF_ERROR(CheckConfig(config));
  KU_ASSIGN_OR_RETURN(s->own_ops, MakeEngineOps(config));
  s->ops = s->own_ops.get();
  KU_RETURN_IF_ERROR(ResolveContext(model.config.decoder, &s->config));
  if (tokenizer == nullptr) {
    KU_ASSIGN_OR_RETURN(tokenizer, Engine::ReadTokenizer(config, model));
  }
  s->tokenizer = tokenizer.get();
  s->own_tokenizer = std::move(tokenizer);
  KvShape kv;
  KU_ASSIGN_OR_RETURN(s->plan, MakePlan(s->config, model, *s->ops, &kv));
  LogInfo(s->plan.Describe());

  LoadOptions load;
  load.max_context = s->config.max_context;
  load.weights = WeightsOf(config);
  load.mapped = UseOfMapped(config.weight_storage, s->plan, config.expected_work);
  load.num_threads = NumThreads(config.ops.num_threads);
  if (config.progress) {
    load.progress = [&config](int64_t done, int64_t total) {
      config.progress(static_cast<size_t>(done), static_cast<size_t>(total));
    };
  }
  KU_ASSIGN_OR_RETURN(s->own_model, LoadModel(std::move(model), *s->ops, load));
  s->model = s->own_model.get();
  LogEos(EosOf(*s->model, s->tokenizer), s->tokenizer);
  KU_RETURN_IF_ERROR(MakeRunningParts(*s, kv));
  s->load_ms = MillisecondsSince(begin);
  return s;
}

size_t UsedBytes(const EngineParts& s) {
  return s.plan.total_bytes() - s.plan.kv_bytes + s.runner->kv().bytes();
}

StatusOr<std::unique_ptr<EngineParts>> MakeContiguousParts(EngineParts& other, int num_tokens,
                                                           int64_t picture_tokens, OnEncoding ask) {
  auto s = std::make_unique<EngineParts>();
  s->tokenizer = other.tokenizer;
  s->ops = other.ops;
  s->model = other.model;
  // The new engine slides at the same length as a sequence of the other engine.
  if (other.config.on_full == OnFull::kSlide) {
    num_tokens = std::min(num_tokens, other.scheduler->window());
  }
  s->config = ContiguousConfig(other.config, num_tokens, picture_tokens);
  s->config.on_encoding = std::move(ask);
  s->config.kv_format = other.runner->kv().shape().format;
  const WeightPlan weights{.matrix_type = s->model->config().decoder.dtype,
                           .bytes = 0,  // already loaded
                           .quantized = s->model->decoder().quantized()};
  MemoryRequest request = RequestOf(s->config, s->model->config(), weights, *s->ops);
  request.encoder_bytes = 0;  // already reserved
  request.utilization = 1;
  for (const bool again : {false, true}) {
    if (again) other.storage->ReleaseUnused();
    const size_t budget = other.plan.budget_bytes;
    request.available_bytes = budget - std::min(UsedBytes(other), budget);
    KU_ASSIGN_OR_RETURN(s->plan, CountMemory(request));
    if (s->plan.fits()) break;
  }
  if (!s->plan.fits()) {
    return Status(StatusCode::kResourceExhausted,
                  "a run without pages needs " + std::to_string(s->plan.total_bytes() >> 10) +
                      " KB more, and the memory plan leaves " +
                      std::to_string(request.available_bytes >> 10) + " KB at the moment",
                  "lower " + Param("num_blocks") + " or " + Param("kv_cache_memory"));
  }
  request.kv.num_pages = s->plan.num_pages + 1;
  KU_RETURN_IF_ERROR(MakeRunningParts(*s, request.kv));
  return s;
}

}  // namespace kuiper
