// The weights of a model as one list: their names, shapes and roles, and the destination of each.
// Each architecture defines its list in its own file (qwen.cpp). Loading, counting, memory plans,
// random weights and the messages about missing and unused tensors use the list. Depends on neither
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

// The role of a weight in the network. It determines which part of the weight each of several ranks
// needs.
enum class WeightRole {
  kNorm,        // [n], or a position table: all of it
  kNormBias,    // [n]: all of it
  kColumn,      // [out, in] and its bias [out]: some of the outputs
  kRow,         // [out, in]: some of the inputs; its bias [out] is added by one rank
  kVocabulary,  // [vocab, hidden]: some of the tokens
};

struct Weight {
  std::string name = {};            // "<prefix>.weight" or "<prefix>.bias", as in the files
  std::string alias = {};           // alternative name in some files; empty: none
  std::vector<int64_t> shape = {};  // [out, in], or [n] of a norm or bias
  // Shape in the files if it is not `shape`; the values and their order are the same.
  std::vector<int64_t> stored_shape = {};
  WeightRole role = WeightRole::kNorm;
  // Destinations in DecoderWeights. A weight is loaded as a tensor (the embedding, norms, biases),
  // as the matrix of a linear layer, or as both (an embedding that is also the LM head).
  Tensor* tensor = nullptr;
  WeightMatrix* matrix = nullptr;
  // The layer that the matrix is part of; null if it is dense in every file.
  Linear* linear = nullptr;
  bool is_vision = false;       // belongs to the vision encoder, which no decoder step reads
  const char* if_missing = "";  // hint for users whose file lacks the weight

  bool is_matrix() const { return shape.size() == 2; }
  // True for the LM head, the matrix after the last layer. It may also be the embedding.
  bool is_head() const { return role == WeightRole::kVocabulary && matrix != nullptr; }
  int64_t num_values() const { return is_matrix() ? shape[0] * shape[1] : shape[0]; }
};

struct WeightManifest {
  // In loading order. The embedding comes first: its type becomes the model's.
  std::vector<Weight> weights;
  // Tensors whose names end with this suffix are expected in some files and not needed.
  std::string ignored_suffix;

  // Helpers for the functions that define lists.
  void AddNorm(const std::string& prefix, int64_t size, Tensor* place);
  // Adds a further part to `linear`, with its bias if `bias`.
  void AddPart(const std::string& prefix, WeightRole role, int out, int in, bool bias,
               Linear* linear);
};

// Returns the weights of a model. The destinations `into` and `vision` must outlive the list. If
// `vision` is null, the weights of the vision encoder are left out.
WeightManifest ListWeights(const ModelConfig& config, DecoderWeights* into,
                           VisionWeights* vision = nullptr);

}  // namespace kuiper
