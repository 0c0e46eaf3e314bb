// The table of architectures: how Hugging Face names one, what its config.json may say, and which
// list of weights it has. A further architecture is a row, and a list when its tensors differ.
#pragma once

#include <span>
#include <string>

#include "kuiper/model/config.h"
#include "kuiper/model/manifest.h"

namespace kuiper {

// Which layers a config.json can make slide: none, those it names or those from max_window_layers
// on, all.
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
  const char* weight_prefix;  // of the decoder's tensors but the head; begins with "model."
  bool sees;  // has a vision tower, beside which the decoder's keys stand in text_config
  WeightManifest (*list_weights)(const DecoderConfig& config, const std::string& prefix,
                                 DecoderWeights* into);
};

std::span<const Architecture> Architectures();

// qwen.cpp
WeightManifest ListQwenWeights(const DecoderConfig& config, const std::string& prefix,
                               DecoderWeights* into);
// vision_weights.cpp
void AddVisionWeights(const VisionTowerConfig& config, const std::string& prefix,
                      VisionWeights* into, WeightManifest* list);

}  // namespace kuiper
