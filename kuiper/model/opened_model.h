// A model opened for reading: headers and texts are read and checked. Weights are not read, with
// one exception: an embedding and an LM head that may be the same (tie_word_embeddings) if both are
// in the files. A program opens a model once per run, inspects it, and passes it to Engine::Plan
// and Engine::Create. Independent of devices.
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

// How weights are converted at load.
struct WeightOptions {
  std::optional<DType> dtype;  // convert the dense matrices to this float type
  bool int8_head = false;      // quantise the LM head to INT8, unless it is already packed
  // Layers with integer weights also quantise their activations to INT8. CPU only; an error if
  // there is no such layer.
  bool int8_activations = false;
};

// Checks that the device's backend supports these options.
Status CheckWeightOptions(const WeightOptions& options, Device device);

// Types and memory of the weights.
struct WeightPlan {
  // Type of dense matrices and compute type of packed ones; norms and biases keep the type of the
  // files.
  DType matrix_type;
  size_t bytes;            // memory of all weights; tied embeddings count once
  bool quantized = false;  // at least one layer is packed; the LM head does not count
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
  // Returns a hash of the configurations and WeightSource::Digest, which identifies the model.
  uint64_t Hash() const;
  // Inspects all packed matrices and the types of the dense ones. Returns kModel if the source
  // lacks one of these tensors or contradicts config.json.
  StatusOr<WeightPlan> PlanWeights(const WeightOptions& options) const;
};

// Opens a Hugging Face directory, a .safetensors file, or a container packed by kuiper_pack. Sets
// config.decoder.tie_embeddings from the files, whatever config.json says. docs/command_line.md
// lists the kModel errors.
StatusOr<OpenedModel> OpenModel(const std::string& path);
// Returns a model with random weights in the shapes and type of a config.json, to measure speed and
// memory without its files. Its matrices have no data (WeightSource::Get).
StatusOr<OpenedModel> MakeRandomModel(const std::string& config_path);

}  // namespace kuiper
