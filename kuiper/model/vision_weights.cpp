// The weights of Qwen3-VL's vision encoder.
#include <string>

#include "kuiper/model/architecture.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/vision_encoder.h"

namespace kuiper {
namespace {

void AddLinear(const std::string& prefix, int out, int in, Linear* linear, WeightManifest* list) {
  list->AddPart(prefix, WeightRole::kColumn, out, in, /*bias=*/true, linear);
}

void AddLayerNorm(const std::string& prefix, int64_t size, LayerNormWeights* w,
                  WeightManifest* list) {
  list->AddNorm(prefix, size, &w->weight);
  list->weights.push_back({.name = prefix + ".bias",
                           .shape = {size},
                           .role = WeightRole::kNormBias,
                           .tensor = &w->bias});
}

void AddBlock(const VisionEncoderConfig& c, const std::string& prefix, VisionBlockWeights* w,
              WeightManifest* list) {
  AddLayerNorm(prefix + "norm1", c.hidden, &w->attn_norm, list);
  AddLayerNorm(prefix + "norm2", c.hidden, &w->mlp_norm, list);
  AddLinear(prefix + "attn.qkv", 3 * c.hidden, c.hidden, &w->qkv, list);
  AddLinear(prefix + "attn.proj", c.hidden, c.hidden, &w->proj, list);
  AddLinear(prefix + "mlp.linear_fc1", c.intermediate, c.hidden, &w->fc1, list);
  AddLinear(prefix + "mlp.linear_fc2", c.hidden, c.intermediate, &w->fc2, list);
}

void AddMerger(const VisionEncoderConfig& c, const std::string& prefix, int norm_size,
               VisionMergerWeights* w, WeightManifest* list) {
  AddLayerNorm(prefix + "norm", norm_size, &w->norm, list);
  AddLinear(prefix + "linear_fc1", c.merged_hidden(), c.merged_hidden(), &w->fc1, list);
  AddLinear(prefix + "linear_fc2", c.out_hidden, c.merged_hidden(), &w->fc2, list);
}

}  // namespace

void AddVisionWeights(const VisionEncoderConfig& c, const std::string& prefix, VisionWeights* w,
                      WeightManifest* list) {
  const size_t first = list->weights.size();
  AddLinear(prefix + "patch_embed.proj", c.hidden, c.patch_values(), &w->patch_embed, list);
  // A convolution whose stride equals its kernel size, which is a matrix product.
  list->weights[first].stored_shape = {c.hidden, VisionEncoderConfig::kChannels, c.temporal_patch,
                                       c.patch, c.patch};
  list->weights.push_back({.name = prefix + "pos_embed.weight",
                           .shape = {int64_t{c.position_side} * c.position_side, c.hidden},
                           .tensor = &w->positions});
  w->blocks.resize(c.depth);
  for (int i = 0; i < c.depth; ++i) {
    AddBlock(c, prefix + "blocks." + std::to_string(i) + ".", &w->blocks[i], list);
  }
  AddMerger(c, prefix + "merger.", c.hidden, &w->merger, list);
  w->deepstack.resize(c.num_deepstack());
  for (int i = 0; i < c.num_deepstack(); ++i) {
    AddMerger(c, prefix + "deepstack_merger_list." + std::to_string(i) + ".", c.merged_hidden(),
              &w->deepstack[i], list);
  }
  // Vision encoders stay dense if the decoder is quantised.
  for (size_t i = first; i < list->weights.size(); ++i) {
    Weight& weight = list->weights[i];
    weight.is_vision = true;
    weight.linear = nullptr;
    weight.if_missing = "a vision tower must be complete, and not quantised";
  }
}

}  // namespace kuiper
