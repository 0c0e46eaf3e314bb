#include "kuiper/engine/engine.h"

#include <algorithm>
#include <utility>

#include "kuiper/engine/engine_parts.h"
#include "kuiper/engine/prompt_logits.h"

namespace kuiper {

Engine::Engine(std::unique_ptr<EngineParts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config) {
  KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModel(config.model_path));
  return Create(config, std::move(model));
}

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config, OpenedModel model,
                                                 std::unique_ptr<Tokenizer> tokenizer) {
  KU_ASSIGN_OR_RETURN(auto parts, MakeEngineParts(config, std::move(model), std::move(tokenizer)));
  return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

StatusOr<std::unique_ptr<Engine>> Engine::MakeContiguousEngine(int num_tokens,
                                                               int64_t picture_tokens,
                                                               OnEncoding on_encoding) {
  KU_ASSIGN_OR_RETURN(
      auto parts, MakeContiguousParts(*parts_, num_tokens, picture_tokens, std::move(on_encoding)));
  return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

StatusOr<int64_t> Engine::Add(Request request) {
  return parts_->requests->Add(std::move(request));
}

void Engine::Abort(int64_t request, std::optional<int> sample) {
  parts_->requests->Abort(request, sample);
}

bool Engine::HasWork() const {
  return !parts_->requests->empty();
}

std::vector<TokenEvent> Engine::Step() {
  parts_->steps->Step();
  return parts_->requests->TakeEvents();
}

StatusOr<Completion> Engine::Take(int64_t request, int sample) {
  return parts_->requests->Take(request, sample);
}

StatusOr<Completion> Engine::Generate(Request request,
                                      const std::function<bool(const TokenEvent&)>& on_event) {
  auto bad = [](const char* what) {
    return Status(StatusCode::kInvalidArgument, what, "use Add and Step");
  };
  if (HasWork()) return bad("Generate runs alone, and there are other requests");
  if (request.num_samples > 1) return bad("Generate gives one answer, not num_samples");
  KU_ASSIGN_OR_RETURN(const int64_t id, Add(std::move(request)));
  while (HasWork()) {
    for (const TokenEvent& event : Step()) {
      if (on_event && !on_event(event)) Abort(id);
    }
  }
  return Take(id);
}

Status Engine::Logits(const std::vector<int32_t>& prompt,
                      const std::function<void(int position, const float* logits)>& on_row,
                      int first, std::vector<VisionInput> images) {
  auto bad = [](const char* what) { return Status(StatusCode::kInvalidArgument, what); };
  if (!parts_->config.prompt_logits) return bad("the engine was created without prompt_logits");
  if (HasWork()) return bad("Logits runs alone, and there are requests");
  Request request;
  request.prompt = prompt;
  KU_RETURN_IF_ERROR(CheckRequest(request, model_config().decoder.vocab));
  const int num_tokens = static_cast<int>(prompt.size());
  if (num_tokens > config().max_context) return ContextExceeded(num_tokens, config().max_context);
  return ComputeLogits(*parts_, prompt, std::move(images), on_row, first);
}

StatusOr<std::vector<float>> Engine::EncodePicture(VisionInput picture) {
  if (parts_->pictures == nullptr) return NoVision();
  return parts_->pictures->Encode(std::move(picture));
}

void Engine::ClearPrefixCache() {
  parts_->storage->ClearReuse();
}

void Engine::ReleaseUnusedMemory() {
  parts_->storage->ReleaseUnused();
}

StatusOr<std::vector<int32_t>> Engine::block_table(int64_t request, int sample) const {
  return parts_->requests->PagesOf(request, sample);
}

StatusOr<int> Engine::num_computed(int64_t request) const {
  return parts_->requests->NumComputed(request);
}

KvStats Engine::kv_stats() const {
  KvStats stats = parts_->storage->Stats();
  const Scheduler::Stats& scheduler = parts_->scheduler->stats();
  stats.preempted_recompute = scheduler.preempted_recompute;
  stats.preempted_swap = scheduler.preempted_swap;
  stats.pages_swapped_out = scheduler.pages_swapped_out;
  stats.pages_swapped_in = scheduler.pages_swapped_in;
  stats.slides = scheduler.slides;
  return stats;
}

const Tokenizer* Engine::tokenizer() const {
  return parts_->tokenizer;
}
const ModelConfig& Engine::model_config() const {
  return parts_->model->config();
}
const GenerationConfig& Engine::generation_config() const {
  return parts_->model->generation();
}
const EngineConfig& Engine::config() const {
  return parts_->config;
}
const MemoryPlan& Engine::memory_plan() const {
  return parts_->plan;
}
size_t Engine::memory_in_use() const {
  return UsedBytes(*parts_);
}
DType Engine::weight_type() const {
  return model_config().decoder.dtype;
}
KvFormat Engine::kv_format() const {
  return parts_->runner->kv().shape().format;
}
size_t Engine::weight_bytes_per_token() const {
  return parts_->model->decode_bytes();
}
std::string Engine::device_description() const {
  return parts_->ops->device().Description();
}
RunFacts Engine::run_facts() const {
  const KvShape& kv = parts_->runner->kv().shape();
  const DecodeGraph& graph = parts_->runner->graph();
  const PictureStore* pictures = parts_->pictures.get();
  return {.device = device_description(),
          .dtype = weight_type(),
          .kv_format = kv.format,
          .paged = config().paged,
          .page_size = kv.page_size,
          .attention = parts_->ops->AttentionFor(weight_type(), kv.format, kv.head_dim),
          .steps_recorded = graph.num_captured(),
          .steps_replayed = graph.num_replayed(),
          .steps_eager = graph.num_eager(),
          .pictures_encoded = pictures == nullptr ? 0 : pictures->num_encoded(),
          .encode_ms = pictures == nullptr ? 0 : pictures->encode_ms()};
}
double Engine::load_ms() const {
  return parts_->load_ms;
}
std::string Engine::ChangedFile() const {
  return parts_->model->ChangedFile();
}

}  // namespace kuiper
