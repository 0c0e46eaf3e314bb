#include "kuiper/model/opened_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/hash.h"
#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/decoder.h"
#include "kuiper/model/file_weights.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/quantized/int8_rows.h"
#include "kuiper/model/vision_encoder.h"

namespace kuiper {

OpenedModel::OpenedModel() = default;
OpenedModel::~OpenedModel() = default;
OpenedModel::OpenedModel(OpenedModel&&) noexcept = default;
OpenedModel& OpenedModel::operator=(OpenedModel&&) noexcept = default;

const ModelFiles& OpenedModel::files() const {
  return source->files();
}

uint64_t OpenedModel::Hash() const {
  const std::string text = files().config_json + files().generation_config_json;
  return Fnv1a64OfText(HashText(source->Digest()), Fnv1a64OfText(text));
}

namespace {

// Checks that the parts of one linear layer have the same format: one kernel computes them all.
Status CheckParts(const std::string& path, const Weight& first, const WeightFormat& first_format,
                  const Weight& weight, const WeightFormat& format) {
  if (format == first_format) return OkStatus();
  return Status(StatusCode::kModel,
                path + ": " + Quoted(first.name) + " and " + Quoted(weight.name) +
                    " are quantised in different ways, which is not supported",
                "use a checkpoint that quantises all projections of a layer alike");
}

// Returns the format of an LM head that is quantised while it is loaded.
StatusOr<WeightFormat> PlanInt8Head(const Weight& head) {
  if (head.shape[1] % WeightFormat::kQuantum == 0) return Int8RowsFormat();
  return Status(StatusCode::kModel,
                "a head of INT8 needs a hidden_size that is a multiple of 32; this model's is " +
                    std::to_string(head.shape[1]));
}

}  // namespace

Status CheckWeightOptions(const WeightOptions& options, Device device) {
  if (!options.int8_activations || device.type == DeviceType::kCPU) return OkStatus();
  return Status(
      StatusCode::kInvalidArgument,
      Param("activation_dtype") + " int8 is for the CPU, and the model goes to " +
          DeviceName(device),
      "leave " + Param("activation_dtype") + " at auto, or use " + Param("device") + " cpu");
}

StatusOr<WeightPlan> OpenedModel::PlanWeights(const WeightOptions& options) const {
  DecoderWeights unused;
  VisionWeights unused_vision;
  const std::vector<Weight> weights = ListWeights(config, &unused, &unused_vision).weights;
  const auto norm = std::find_if(weights.begin(), weights.end(),
                                 [](const Weight& w) { return w.role == WeightRole::kNorm; });
  KU_ASSIGN_OR_RETURN(const Tensor stored_embedding, source->Get(weights.front()));
  KU_ASSIGN_OR_RETURN(const Tensor stored_norm, source->Get(*norm));
  WeightPlan plan{.matrix_type = options.dtype.value_or(stored_embedding.dtype), .bytes = 0};
  std::map<const Linear*, std::pair<const Weight*, WeightFormat>> first_parts;
  bool has_integers = false;
  for (const Weight& w : weights) {
    const DType type = w.is_matrix() ? plan.matrix_type : stored_norm.dtype;
    WeightFormat format = WeightFormat::Dense(type);
    int64_t bytes = w.num_values() * static_cast<int64_t>(DTypeBytes(type));
    if (w.linear != nullptr) {
      KU_ASSIGN_OR_RETURN(const std::optional<PackedMatrix> packed, source->GetPacked(w));
      if (packed.has_value()) {
        format = packed->format;
        bytes = packed->bytes();
        plan.quantized = plan.quantized || !w.is_head();
        has_integers = has_integers || format.has_integers();
      }
      const auto [first, is_first] = first_parts.try_emplace(w.linear, &w, format);
      KU_RETURN_IF_ERROR(
          CheckParts(files().path, *first->second.first, first->second.second, w, format));
    }
    if (options.int8_head && w.is_head() && !format.is_quantized()) {
      KU_ASSIGN_OR_RETURN(const WeightFormat head, PlanInt8Head(w));
      bytes = (w.tensor != nullptr ? bytes : 0) + head.Bytes(w.shape[0], w.shape[1]);
      has_integers = true;
    }
    plan.bytes += static_cast<size_t>(bytes);
  }
  if (options.int8_activations && !has_integers) {
    return Status(StatusCode::kInvalidArgument,
                  Param("activation_dtype") + " int8 is for weights of INT4 or INT8, and " +
                      files().path + " has none",
                  "leave " + Param("activation_dtype") +
                      " at auto, or quantise the last matrix: " + Param("lm_head_dtype") + " int8");
  }
  return plan;
}

namespace {

// Checks that the files have no layers beyond the configuration's last one: they would belong to a
// deeper network.
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

// Refuses scales other than 1 by which keys and values are divided in an FP8 cache: the KV formats
// here have none.
Status CheckKvScales(const FileWeights& source) {
  for (const auto& [name, item] : source.items()) {
    if (!IsKvScale(name)) continue;
    const std::string_view bytes = item.file->Bytes(*item.entry);
    const std::optional<DType> dtype = item.entry->type->dtype;
    float scale = 0.0f;
    const bool is_number =
        dtype.has_value() && IsFloat(*dtype) && bytes.size() == DTypeBytes(*dtype);
    if (is_number && ConvertFloats(&scale, DType::kF32, bytes.data(), *dtype, 1) && scale == 1.0f) {
      continue;
    }
    return Status(StatusCode::kModel,
                  item.file->path() + ": tensor " + Quoted(name) +
                      " scales the KV cache by other than 1.0, which is not supported",
                  "use a checkpoint without kv_cache_scheme");
  }
  return OkStatus();
}

// Returns how many weights of the list the source has.
int64_t CountFound(const FileWeights& source, const ModelConfig& config) {
  DecoderWeights unused;
  const std::vector<Weight> weights = ListWeights(config, &unused).weights;
  return std::count_if(weights.begin(), weights.end(),
                       [&](const Weight& weight) { return source.items().contains(weight.name); });
}

// Checks for weights that the index lists but no file has.
Status CheckListed(FileWeights& source, const ModelConfig& config) {
  if (source.absent().empty()) return OkStatus();
  DecoderWeights unused;
  VisionWeights unused_vision;
  for (const Weight& weight : ListWeights(config, &unused, &unused_vision).weights) {
    const auto absent = source.absent().find(weight.name);
    if (absent == source.absent().end() || source.items().contains(weight.alias)) continue;
    if (weight.linear != nullptr) {
      KU_ASSIGN_OR_RETURN(const std::optional<PackedMatrix> packed, source.GetPacked(weight));
      if (packed.has_value()) continue;
    }
    return Status(StatusCode::kModel,
                  source.files().path + ": tensor " + Quoted(weight.name) + " is not in " +
                      absent->second + ", where the index has it",
                  "download or copy all shards of the model");
  }
  return OkStatus();
}

// True if the LM head is the embedding, by the rule of transformers 5: if the files have a
// different head, it is not tied, whatever config.json says.
StatusOr<bool> IsTied(FileWeights& source, ModelConfig config) {
  if (!config.decoder.tie_embeddings) return false;
  config.decoder.tie_embeddings = false;
  DecoderWeights unused;
  const std::vector<Weight> weights = ListWeights(config, &unused).weights;
  const auto head = std::find_if(weights.begin(), weights.end(),
                                 [](const Weight& weight) { return weight.is_head(); });
  KU_ASSIGN_OR_RETURN(const std::optional<PackedMatrix> packed, source.GetPacked(*head));
  const auto own = source.items().find(head->name);
  const auto embedding = source.items().find(weights.front().name);
  const bool has_other =
      packed.has_value() || (own != source.items().end() && embedding != source.items().end() &&
                             !source.AreEqual(own->second, embedding->second));
  if (has_other) {
    LogWarning(source.files().path + ": " + Quoted(head->name) +
               " is not the embedding and is used, though tie_word_embeddings of config.json says "
               "that they are one");
  }
  return !has_other;
}

}  // namespace

StatusOr<OpenedModel> OpenModel(const std::string& path) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<FileWeights> source, FileWeights::Open(path));
  const ModelFiles& files = source->files();
  // The parsers report the file name only; this adds its path.
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
  ModelConfig bare = model.config;
  bare.lacks_model_prefix = true;
  model.config.lacks_model_prefix = CountFound(*source, bare) > CountFound(*source, model.config);
  source->set_quantization(model.config.quantization);
  KU_RETURN_IF_ERROR(CheckKvScales(*source));
  KU_ASSIGN_OR_RETURN(model.config.decoder.tie_embeddings, IsTied(*source, model.config));
  KU_RETURN_IF_ERROR(CheckListed(*source, model.config));
  model.source = std::move(source);
  KU_RETURN_IF_ERROR(CheckLayers(model));
  return model;
}

}  // namespace kuiper
