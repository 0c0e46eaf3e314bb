// The table of supported architectures. Each row gives its Hugging Face names, what its config.json
// may contain, and its list of weights. To add an architecture, add a row, and a list if its
// tensors differ.
#pragma once

#include <span>
#include <string>

#include "kuiper/model/config.h"
#include "kuiper/model/manifest.h"

namespace kuiper {

// Which layers may use sliding-window attention according to config.json: none; those that
// layer_types names or those from max_window_layers on; all.
enum class SlidingLayers { kNone, kByLayer, kAll };

struct Architecture {
  const char* name;
  const char* model_type;
  ModelFamily family;
  bool qkv_bias;            // always has biases on q, k, v (and only there)
  bool has_attention_bias;  // config key attention_bias: q, k, v and o
  bool has_mlp_bias;        // config key mlp_bias
  bool qk_norm;
  int default_head_dim;  // 0: hidden_size / num_attention_heads
  SlidingLayers sliding;
  // Prefix of all decoder tensors except the LM head; begins with "model.".
  const char* weight_prefix;
  bool has_vision;  // has a vision encoder; the decoder's keys are then in text_config
  WeightManifest (*list_weights)(const DecoderConfig& config, const std::string& prefix,
                                 DecoderWeights* into);
};

std::span<const Architecture> Architectures();

// qwen.cpp
WeightManifest ListQwenWeights(const DecoderConfig& config, const std::string& prefix,
                               DecoderWeights* into);
// vision_weights.cpp
void AddVisionWeights(const VisionEncoderConfig& config, const std::string& prefix,
                      VisionWeights* into, WeightManifest* list);

}  // namespace kuiper
