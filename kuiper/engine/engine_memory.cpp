#include "kuiper/engine/engine_memory.h"

#include <algorithm>

#include "kuiper/engine/picture_store.h"

namespace kuiper {
namespace {

int MaxOutputs(const EngineConfig& config) {
  const int of_requests = config.max_num_seqs + config.prompt_rows;
  return config.prompt_logits ? std::max(config.max_num_batched_tokens, of_requests) : of_requests;
}

// Tokens of an image: slightly more than the programs' default number of pixels gives.
constexpr int64_t kDefaultImageTokens = 1024;

}  // namespace

// On by default where it costs nothing if no pages are shared. On a device, flash1 would have to
// use larger blocks for decode steps.
bool Cascades(const EngineConfig& config, DType weights, const KvShape& kv, const Ops& ops) {
  const bool is_free = config.device.type == DeviceType::kCPU ||
                       ops.AttentionFor(weights, kv.format, kv.head_dim) == AttentionKind::kFlash2;
  return config.paged && config.max_num_seqs > 1 && config.cascade_attention.value_or(is_free);
}

VisionLimits VisionLimitsOf(const EngineConfig& config, const ModelConfig& model) {
  const int64_t frame =
      std::min<int64_t>(config.image_max_tokens.value_or(kDefaultImageTokens), config.max_context);
  if (!model.vision.has_value() || frame == 0) return {};
  return {.frame_tokens = frame,
          .max_patches = static_cast<int>(frame * model.vision->merge_unit()),
          .cache_tokens = config.vision_cache_tokens.value_or(config.max_context)};
}

ModelRunner::Config RunnerConfig(const EngineConfig& config, const ModelConfig& model,
                                 const KvShape& kv, int vocab_limit, bool cascade, bool quantized) {
  const VisionLimits vision = VisionLimitsOf(config, model);
  return {.kv = kv,
          .paged = config.paged,
          .max_context = config.max_context,
          .max_seqs = config.max_num_seqs,
          .max_step_tokens = config.max_num_batched_tokens,
          .max_outputs = MaxOutputs(config),
          .max_samples = config.max_num_seqs,
          .num_axes = model.decoder.rope.num_axes(),
          .vocab_limit = vocab_limit,
          .use_graph = config.use_graph,
          .cascade = cascade,
          .quantized = quantized,
          .others = vision.max_patches > 0
                        ? VisionEncoder::Limits(*model.vision, vision.max_patches)
                        : OpsLimits()};
}

WeightOptions WeightsOf(const EngineConfig& config) {
  return {.dtype = config.dtype,
          .int8_head = config.int8_head,
          .int8_activations = config.int8_activations};
}

namespace {

// Kernel scratch, the RoPE table and the arrays of a step.
size_t WorkspaceBytes(const EngineConfig& config, const ModelConfig& model,
                      const WeightPlan& weights, const KvShape& kv, const Ops& ops) {
  const DecoderConfig& d = model.decoder;
  const size_t rope = sizeof(float) * config.max_context * d.head_dim;
  const ModelRunner::Config runner =
      RunnerConfig(config, model, kv, d.vocab, Cascades(config, weights.matrix_type, kv, ops),
                   weights.quantized);
  const MemorySize arrays = ModelRunner::ArraySize(d, runner);
  return rope + arrays.device + (ops.device().traits().unified_memory ? arrays.host : 0) +
         ops.ScratchBytes(ModelRunner::LimitsOf(d, runner));
}

// Adds the vision encoder's memory without its weights.
void CountVision(const EngineConfig& config, const ModelConfig& model, DType activation_type,
                 const DeviceTraits& device, MemoryRequest* request) {
  const VisionLimits limits = VisionLimitsOf(config, model);
  if (limits.max_patches == 0) return;
  const MemorySize workspace =
      VisionEncoder::WorkspaceBytes(*model.vision, activation_type, limits.max_patches);
  request->encoder_bytes = workspace.device + (device.unified_memory ? workspace.host : 0);
  request->picture_bytes =
      limits.cache_tokens * PictureStore::RowBytes(*model.vision, activation_type);
}

}  // namespace

MemoryRequest RequestOf(const EngineConfig& config, const ModelConfig& model,
                        const WeightPlan& weights, const Ops& ops) {
  const DecoderConfig& d = model.decoder;
  const KvShape kv = {.layers = d.layers,
                      .kv_heads = d.kv_heads,
                      .head_dim = d.head_dim,
                      .num_pages = 0,
                      .page_size = config.paged ? config.page_size : config.max_context,
                      .format = config.kv_format.value_or(KvFormat::Of(weights.matrix_type))};
  MemoryRequest request;
  request.weight_bytes = weights.bytes;
  request.activation_bytes = ActivationBytes(d, ops.ActivationType(weights.matrix_type),
                                             config.max_num_batched_tokens, MaxOutputs(config));
  request.workspace_bytes = WorkspaceBytes(config, model, weights, kv, ops);
  const DeviceTraits device = ops.device().traits();
  CountVision(config, model, ops.ActivationType(weights.matrix_type), device, &request);
  const bool swaps = config.paged && config.preemption != Preemption::kRecompute;
  request.swap_bytes = swaps ? config.swap_bytes : 0;
  request.swaps_to_host = !device.unified_memory;
  const int num_graphs =
      config.use_graph ? DecodeGraph::NumBuckets(config.max_num_seqs, config.paged) : 0;
  request.graph_bytes = device.graph_bytes * num_graphs;
  request.kv = kv;
  request.paged = config.paged;
  request.max_context = config.max_context;
  request.max_seqs = config.max_num_seqs;
  request.available_bytes = ops.device().FreeBytes();
  const bool integrated = device.is_asynchronous && device.unified_memory;
  request.utilization = config.memory_utilization.value_or(integrated ? 0.8 : 0.9);
  request.num_blocks = config.paged ? config.num_blocks : std::nullopt;
  request.kv_cache_bytes = config.paged ? config.kv_cache_bytes : std::nullopt;
  return request;
}

StatusOr<MemoryPlan> MakePlan(const EngineConfig& config, const OpenedModel& model, const Ops& ops,
                              KvShape* kv) {
  KU_ASSIGN_OR_RETURN(const WeightPlan weights, model.PlanWeights(WeightsOf(config)));
  const MemoryRequest request = RequestOf(config, model.config, weights, ops);
  KU_ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(request));
  *kv = request.kv;
  kv->num_pages = plan.num_pages + 1;
  return plan;
}

StatusOr<MemoryTable> MakePlanTable(const EngineConfig& config, const OpenedModel& model,
                                    const Ops& ops) {
  KU_ASSIGN_OR_RETURN(const WeightPlan weights, model.PlanWeights(WeightsOf(config)));
  const MemoryRequest chosen = RequestOf(config, model.config, weights, ops);
  MemoryTable table{.rows = {},
                    .fits = PlanMemory(chosen).status(),
                    .paged = config.paged,
                    .page_size = chosen.kv.page_size,
                    .max_context = config.max_context,
                    .max_num_seqs = config.max_num_seqs,
                    .model_limit = model.config.decoder.rope.max_position};
  for (const KvFormat::Entry& entry : KvFormat::kTable) {
    EngineConfig changed = config;
    changed.kv_format = KvFormat{entry.kind};
    const auto request_of = [&](int context) {
      changed.max_context = context;
      MemoryRequest request = RequestOf(changed, model.config, weights, ops);
      request.available_bytes = chosen.available_bytes;  // free memory may change
      return request;
    };
    const MemoryRequest request = request_of(config.max_context);
    MemoryTable::Row row{.format = request.kv.format,
                         .is_chosen = request.kv.format == chosen.kv.format,
                         .kv_bytes_per_1k = 1024 * request.kv.token_bytes()};
    const StatusOr<MemoryPlan> plan = CountMemory(request);
    if (!plan.ok() && row.is_chosen) return plan.status();
    if (!plan.ok()) continue;  // for example, the bytes hold no block
    row.plan = *plan;
    row.largest_context = LargestContext(table.model_limit, request_of);
    table.rows.push_back(row);
  }
  return table;
}

MappedWeights UseOfMapped(WeightStorage storage, const MemoryPlan& plan,
                          const std::optional<ExpectedWork>& work) {
  constexpr size_t kWorthCopying = size_t{64} << 20;
  constexpr int64_t kStepsThatPay = 64, kPromptTokensOfAStep = 32;
  if (storage == WeightStorage::kMapped) return MappedWeights::kRead;
  if (storage == WeightStorage::kCopied) return MappedWeights::kCopy;
  const bool pays =
      !work.has_value() ||
      work->decode_steps + work->prompt_tokens / kPromptTokensOfAStep >= kStepsThatPay;
  const size_t without_kv = plan.total_bytes() - plan.kv_bytes;
  const bool copies = pays && plan.weight_bytes >= kWorthCopying &&
                      without_kv + plan.weight_bytes <= plan.budget_bytes;
  return copies ? MappedWeights::kCopy : MappedWeights::kRead;
}

}  // namespace kuiper
