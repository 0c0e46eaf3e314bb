// The weights of a model as one list: their names, shapes and roles, and where each goes. An
// architecture writes its list in a file of its own (qwen.cpp); loading, counting, memory plans,
// made-up values and the messages about missing and unused tensors derive from it. Knows neither
// files nor devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/tensor.h"
#include "kuiper/model/config.h"

namespace kuiper {

struct DecoderWeights;
struct Linear;
struct VisionWeights;
struct WeightMatrix;

// What a weight is in the network, and so which part of it one of several ranks needs.
enum class WeightRole {
  kNorm,        // [n], or a table of positions: all of it
  kNormBias,    // [n]: all of it
  kColumn,      // [out, in] and its bias [out]: some of the outputs
  kRow,         // [out, in]: some of the inputs; its bias [out] is added by one rank
  kVocabulary,  // [vocab, hidden]: some of the tokens
};

struct Weight {
  std::string name = {};            // "<prefix>.weight" or "<prefix>.bias", as in the files
  std::string alias = {};           // some files have it under this name; empty = none
  std::vector<int64_t> shape = {};  // [out, in], or [n] of a norm or bias
  // As the files have it, where that is not `shape`; the same values in the same order.
  std::vector<int64_t> stored_shape = {};
  WeightRole role = WeightRole::kNorm;
  // Its places among the DecoderWeights: as a tensor (the embedding, norms, biases), as the matrix
  // of a linear layer, or as both (an embedding that is also the head).
  Tensor* tensor = nullptr;
  WeightMatrix* matrix = nullptr;
  Linear* linear = nullptr;     // that the matrix is a part of; null: it is dense in every file
  bool is_vision = false;       // of the vision tower, which no step of the decoder reads
  const char* if_missing = "";  // a hint for people whose file lacks it

  bool is_matrix() const { return shape.size() == 2; }
  // The head: the matrix behind the last layer, perhaps the embedding as well.
  bool is_head() const { return role == WeightRole::kVocabulary && matrix != nullptr; }
  int64_t num_values() const { return is_matrix() ? shape[0] * shape[1] : shape[0]; }
};

struct WeightManifest {
  // In the order of loading. The embedding comes first: its type is the model's.
  std::vector<Weight> weights;
  // Tensors whose names end so may be in a file and are not needed.
  std::string ignored_suffix;

  // For the authors of lists.
  void AddNorm(const std::string& prefix, int64_t size, Tensor* place);
  // A further part of `linear`, with its bias when it has one.
  void AddPart(const std::string& prefix, WeightRole role, int out, int in, bool bias,
               Linear* linear);
};

// The weights of a model. `into` is laid out for them and must outlive the list; so is `vision`,
// for those of the vision tower, which are left out without it.
WeightManifest ListWeights(const ModelConfig& config, DecoderWeights* into,
                           VisionWeights* vision = nullptr);

}  // namespace kuiper
