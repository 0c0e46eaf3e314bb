#include "kuiper/model/vision_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/model/config_reader.h"

namespace kuiper {
namespace {

// Bounds far above every real vision encoder.
constexpr int kMaxWidth = 1 << 16;
constexpr int kMaxDepth = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 512;
constexpr int kMaxPatch = 64;
constexpr int kMaxMerge = 8;
constexpr int kMaxPositions = 1 << 20;

std::vector<int> ReadDeepstackBlocks(ConfigReader& reader, int depth, int text_layers) {
  constexpr const char* kKey = "deepstack_visual_indexes";
  const JsonNode* list = reader.Find(kKey);
  if (list == nullptr || !list->IsArray()) {
    reader.Fail(std::string(kKey) + " is not a list of blocks");
    return {};
  }
  if (list->items.size() > static_cast<size_t>(text_layers)) {
    reader.Fail(std::string(kKey) + " has more entries than the text model has layers");
    return {};
  }
  std::vector<int> blocks;
  for (const double block : reader.Numbers(kKey, list->items.size(), 0, depth - 1)) {
    if (block != std::floor(block) || (!blocks.empty() && block <= blocks.back())) {
      reader.Fail(std::string(kKey) + " is not a list of blocks in ascending order");
      return {};
    }
    blocks.push_back(static_cast<int>(block));
  }
  return blocks;
}

// Refuses settings that would change the network and are not implemented.
void CheckUnsupportedTraits(ConfigReader& reader) {
  const std::string act = reader.String("hidden_act");
  if (!act.empty() && act != "gelu_pytorch_tanh") {
    reader.Fail("hidden_act " + Quoted(act) + " is not supported (supported: gelu_pytorch_tanh)");
  }
  if (reader.MaybeInt("in_channels", 1, 1024).value_or(VisionEncoderConfig::kChannels) !=
      VisionEncoderConfig::kChannels) {
    reader.Fail("in_channels other than 3 is not supported");
  }
}

}  // namespace

StatusOr<VisionEncoderConfig> ReadVisionEncoderConfig(ConfigReader& reader, int text_hidden,
                                                      int text_layers) {
  VisionEncoderConfig c;
  c.hidden = reader.Int("hidden_size", 1, kMaxWidth);
  c.depth = reader.Int("depth", 1, kMaxDepth);
  c.heads = reader.Int("num_heads", 1, kMaxHeads);
  c.intermediate = reader.Int("intermediate_size", 1, kMaxWidth);
  c.out_hidden = reader.Int("out_hidden_size", 1, 1 << 20);
  c.patch = reader.Int("patch_size", 1, kMaxPatch, c.patch);
  c.temporal_patch = reader.Int("temporal_patch_size", 1, kMaxPatch, c.temporal_patch);
  c.merge = reader.Int("spatial_merge_size", 1, kMaxMerge, c.merge);
  const int positions = reader.Int("num_position_embeddings", 1, kMaxPositions);
  KU_RETURN_IF_ERROR(reader.status());
  CheckUnsupportedTraits(reader);
  if (c.out_hidden != text_hidden) {
    reader.Fail("out_hidden_size " + std::to_string(c.out_hidden) +
                " is not the hidden_size of text_config, " + std::to_string(text_hidden));
  }
  if (c.hidden % c.heads != 0 || c.head_dim() % 4 != 0 || c.head_dim() > kMaxHeadDim) {
    reader.Fail("hidden_size " + std::to_string(c.hidden) + " does not give " +
                std::to_string(c.heads) + " heads (num_heads) of a multiple of 4, at most " +
                std::to_string(kMaxHeadDim));
  }
  c.position_side = static_cast<int>(std::lround(std::sqrt(positions)));
  if (c.position_side * c.position_side != positions) {
    reader.Fail("num_position_embeddings " + std::to_string(positions) + " is not a square");
  }
  c.deepstack_blocks = ReadDeepstackBlocks(reader, c.depth, text_layers);
  KU_RETURN_IF_ERROR(reader.status());
  return c;
}

}  // namespace kuiper
