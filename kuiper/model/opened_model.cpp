#include "kuiper/model/opened_model.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"
#include "kuiper/model/decoder.h"
#include "kuiper/model/file_weights.h"
#include "kuiper/model/manifest.h"

namespace kuiper {

OpenedModel::OpenedModel() = default;
OpenedModel::~OpenedModel() = default;
OpenedModel::OpenedModel(OpenedModel&&) noexcept = default;
OpenedModel& OpenedModel::operator=(OpenedModel&&) noexcept = default;

const ModelFiles& OpenedModel::files() const {
  return source->files();
}

uint64_t OpenedModel::Hash() const {
  return Fnv1a64OfText(files().generation_config_json, Fnv1a64OfText(files().config_json));
}

Status OpenedModel::CheckSupported() const {
  if (config.supported) return OkStatus();
  return Status(
      StatusCode::kModel,
      files().path + " holds a " + FamilyName(config.family) +
          " model, which this version cannot run",
      config.family == ModelFamily::kQwen3VL ? "images are not available in this version" : "");
}

StatusOr<WeightPlan> OpenedModel::PlanWeights(std::optional<DType> dtype) const {
  DecoderWeights unused;
  const std::vector<Weight> weights = ListWeights(config, &unused).weights;
  const auto norm = std::find_if(weights.begin(), weights.end(),
                                 [](const Weight& w) { return w.role == WeightRole::kNorm; });
  KU_ASSIGN_OR_RETURN(const Tensor stored_embedding, source->Get(weights.front()));
  KU_ASSIGN_OR_RETURN(const Tensor stored_norm, source->Get(*norm));
  WeightPlan plan{.matrix_type = dtype.value_or(stored_embedding.dtype), .bytes = 0};
  for (const Weight& w : weights) {
    const DType type = w.is_matrix() ? plan.matrix_type : stored_norm.dtype;
    plan.bytes += static_cast<size_t>(w.num_values()) * DTypeBytes(type);
  }
  return plan;
}

namespace {

// A layer behind the last one of the configuration: the files are those of another, deeper network.
Status CheckLayers(const OpenedModel& model) {
  constexpr std::string_view kLayers = "layers.";
  for (const std::string& name : model.source->Unused()) {
    const size_t at = name.find(kLayers);
    if (at == std::string::npos) continue;
    int layer = 0;
    const char* const begin = name.data() + at + kLayers.size();
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
    if (error != std::errc() || *end != '.' || layer < model.config.decoder.layers) continue;
    return Status(StatusCode::kModel,
                  model.files().path + ": config.json says " +
                      std::to_string(model.config.decoder.layers) +
                      " layers, but there is a tensor of another: " + Quoted(name),
                  "config.json and weights must come from the same model");
  }
  return OkStatus();
}

// How many weights of the list the source has.
int64_t CountFound(const FileWeights& source, const ModelConfig& config) {
  DecoderWeights unused;
  const std::vector<Weight> weights = ListWeights(config, &unused).weights;
  return std::count_if(weights.begin(), weights.end(),
                       [&](const Weight& weight) { return source.items().contains(weight.name); });
}

}  // namespace

StatusOr<OpenedModel> OpenModel(const std::string& path) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<FileWeights> source, FileWeights::Open(path));
  const ModelFiles& files = source->files();
  // The parsers name the file; here is where it lies.
  const auto located = [&](const Status& status) {
    const char* separator = files.path == files.dir ? "/" : ": ";
    return Status(status.code(), files.path + separator + status.message(), status.hint());
  };
  OpenedModel model;
  StatusOr<ModelConfig> config = ParseModelConfig(files.config_json);
  if (!config.ok()) return located(config.status());
  model.config = std::move(config).value();
  if (!files.generation_config_json.empty()) {
    StatusOr<GenerationConfig> generation = ParseGenerationConfig(files.generation_config_json);
    if (!generation.ok()) return located(generation.status());
    model.generation = std::move(generation).value();
  }
  if (model.config.supported) {
    ModelConfig bare = model.config;
    bare.bare_names = true;
    model.config.bare_names = CountFound(*source, bare) > CountFound(*source, model.config);
  }
  model.source = std::move(source);
  if (model.config.supported) KU_RETURN_IF_ERROR(CheckLayers(model));
  return model;
}

}  // namespace kuiper
