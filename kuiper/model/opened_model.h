// A model opened for reading: headers and texts are read and checked. No weight is touched, but for
// an embedding and a head that may be one (tie_word_embeddings) and are both in the files. A
// program opens a model once per run, looks at what it is, and gives it to Engine::Plan and
// Engine::Create. Knows nothing of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/model/config.h"

namespace kuiper {

struct ModelFiles;
class WeightSource;

// What weights become.
struct WeightOptions {
  std::optional<DType> dtype;  // convert the dense matrices to this float type
  bool int8_head = false;      // quantise the head to codes of 8 bits, unless it is packed already
  // Layers with codes of integers round activations to integers of 8 bits. CPU only; an error if
  // there is no such layer.
  bool int8_activations = false;
};

// Whether the backend of this device can do that.
Status CheckWeightOptions(const WeightOptions& options, Device device);

// What weights take in memory.
struct WeightPlan {
  DType matrix_type;  // of dense ones, and the numeric type of packed ones; norms and biases keep
                      // the type that the files have
  size_t bytes;       // of all weights, tied embeddings once
  bool quantized = false;  // a layer is packed; the head does not count
};

struct OpenedModel {
  OpenedModel();
  ~OpenedModel();
  OpenedModel(OpenedModel&&) noexcept;
  OpenedModel& operator=(OpenedModel&&) noexcept;

  std::unique_ptr<WeightSource> source;
  ModelConfig config;
  GenerationConfig generation;

  const ModelFiles& files() const;
  // Of the configurations and WeightSource::Digest, by which another model can be told from this
  // one.
  uint64_t Hash() const;
  // Looks at all packed matrices, and at the types of the dense ones. kModel when the source lacks
  // what it looks at or holds it otherwise than config.json says.
  StatusOr<WeightPlan> PlanWeights(const WeightOptions& options) const;
};

// A Hugging Face directory, a .safetensors file, or a container packed by kuiper_pack.
// config.decoder.tie_embeddings is what the files show, whatever config.json says. kModel errors as
// docs/command_line.md lists them.
StatusOr<OpenedModel> OpenModel(const std::string& path);
// A model that nobody trained, in the shapes and the type of a config.json: speed and memory can be
// measured without its files. Its matrices have no data (WeightSource::Get).
StatusOr<OpenedModel> InventModel(const std::string& config_path);

}  // namespace kuiper
