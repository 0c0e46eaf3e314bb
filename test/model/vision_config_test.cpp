// The configurations of the released vision models, and invalid ones that are refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/model/config.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/rope.h"
#include "kuiper/model/vision_encoder.h"
#include "kuiper/model/vision_layout.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

using Json = nlohmann::json;

// Returns the numbers of values (text model, vision encoder), which must match the published
// checkpoints.
std::pair<int64_t, int64_t> Count(const ModelConfig& config) {
  DecoderWeights decoder;
  VisionWeights vision;
  std::pair<int64_t, int64_t> count;
  for (const Weight& w : ListWeights(config, &decoder, &vision).weights) {
    (w.is_vision ? count.second : count.first) += w.num_values();
  }
  return count;
}

TEST(VisionConfig, HasTheSizesOfTheReleasedModels) {
  KU_REQUIRE_SHARED("configs");
  struct Row {
    const char* size;
    int hidden, depth, head_dim, intermediate, out_hidden;
    std::vector<int> deepstack;
    bool tied;
  };
  const Row rows[] = {{"2B", 1024, 24, 64, 4096, 2048, {5, 11, 17}, true},
                      {"4B", 1024, 24, 64, 4096, 2560, {5, 11, 17}, true},
                      {"8B", 1152, 27, 72, 4304, 4096, {8, 16, 24}, false}};
  for (const Row& row : rows) {
    const auto config = ParseModelConfig(
        ReadFile(Shared(std::string("configs/Qwen3-VL-") + row.size + "-Instruct.config.json")));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->family, ModelFamily::kQwen3VL);
    ASSERT_TRUE(config->vision.has_value());
    const VisionEncoderConfig& c = *config->vision;
    EXPECT_EQ(c.hidden, row.hidden);
    EXPECT_EQ(c.depth, row.depth);
    EXPECT_EQ(c.head_dim(), row.head_dim);
    EXPECT_EQ(c.intermediate, row.intermediate);
    EXPECT_EQ(c.out_hidden, row.out_hidden);
    EXPECT_EQ(c.deepstack_blocks, row.deepstack);
    EXPECT_EQ(c.patch_values(), 1536);
    EXPECT_EQ(c.position_side, 48);
    EXPECT_EQ(config->vision_tokens->image_pad, 151655);
    EXPECT_EQ(config->vision_tokens->video_pad, 151656);
    EXPECT_EQ(config->vision_tokens->vision_start, 151652);
    EXPECT_EQ(config->vision_tokens->vision_end, 151653);
    EXPECT_EQ(config->decoder.tie_embeddings, row.tied);
    EXPECT_EQ(config->decoder.dtype, DType::kBF16);
    EXPECT_EQ(config->decoder.rope.theta, 5e6);
    EXPECT_EQ(config->decoder.rope.num_axes(), 3);
    EXPECT_EQ(config->eos, std::vector<int32_t>{151645});
  }
}

// The published counts of parameters.
TEST(VisionConfig, ListsAllWeightsOfThe2B) {
  KU_REQUIRE_SHARED("configs");
  const auto config =
      ParseModelConfig(ReadFile(Shared("configs/Qwen3-VL-2B-Instruct.config.json")));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(Count(*config), std::pair(int64_t{1720574976}, int64_t{406957056}));
}

TEST(VisionConfig, AxesAreInterleaved) {
  RopeConfig rope;
  EXPECT_EQ(RopeAxes(rope, 8), std::vector<int32_t>(4, 0));
  rope.axes = InterleavedAxes{24, 20, 20};
  const std::vector<int32_t> axes = RopeAxes(rope, 128);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(axes[i], i < 60 ? i % 3 : 0) << i;
  rope.axes = InterleavedAxes{5, 1, 2};
  EXPECT_EQ(RopeAxes(rope, 16), (std::vector<int32_t>{0, 1, 2, 0, 0, 2, 0, 0}));
}

// The first half of a head's pairs rotates by the row, the second half by the column, with the same
// angles.
TEST(VisionConfig, BothHalvesOfAHeadTurnAlike) {
  EXPECT_EQ(VisionAxes(8), (std::vector<int32_t>{0, 0, 1, 1}));
  const std::vector<float> table = VisionCosSin(8, 3);
  ASSERT_EQ(table.size(), 24u);
  const double angles[] = {2.0, 0.02};  // at position 2
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(table[16 + i], std::cos(angles[i % 2]), 1e-6);
    EXPECT_NEAR(table[20 + i], std::sin(angles[i % 2]), 1e-6);
  }
}

Json Tiny() {
  return Json::parse(ReadFile(Source("test/data/vision/tiny/config.json")));
}

TEST(VisionConfig, TakesKeysOfTheWholeWhereTheTextHasNone) {
  Json json = Tiny();
  for (const char* key : {"tie_word_embeddings", "dtype", "eos_token_id"}) {
    json["text_config"].erase(key);
  }
  json["tie_word_embeddings"] = false;
  json["dtype"] = "bfloat16";
  json["eos_token_id"] = 7;
  json["text_config"]["rope_scaling"]["type"] = "mrope";
  json["text_config"]["rope_scaling"].erase("rope_type");
  const auto config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->decoder.tie_embeddings);
  EXPECT_EQ(config->decoder.dtype, DType::kBF16);
  EXPECT_EQ(config->eos, std::vector<int32_t>{7});
  EXPECT_EQ(config->decoder.rope.axes->rows, 2);
}

// The encoder's two deepstack outputs are added after the only two layers of the text model.
TEST(VisionConfig, TakesAsManyDeepstackBlocksAsTheTextHasLayers) {
  Json json = Tiny();
  json["text_config"]["num_hidden_layers"] = 2;
  const auto config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->vision->num_deepstack(), 2);
}

// Each patch is merged into a good config; the message must name the key.
TEST(VisionConfig, NamesTheKeyThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"text_config": null})", "text_config is missing"},
      {R"({"text_config": 7})", "text_config is not an object"},
      {R"({"vision_config": null})", "vision_config is missing"},
      {R"({"image_token_id": null})", "image_token_id"},
      {R"({"image_token_id": 96})", "image_token_id"},
      {R"({"video_token_id": 90})", "image_token_id and video_token_id"},
      {R"({"vision_start_token_id": -1})", "vision_start_token_id"},
      {R"({"vision_end_token_id": "x"})", "vision_end_token_id"},
      {R"({"text_config": {"hidden_size": 0}})", "text_config: hidden_size"},
      {R"({"text_config": {"rope_scaling": null}})", "mrope_section"},
      {R"({"text_config": {"rope_scaling": {"mrope_interleaved": false}}})", "mrope_interleaved"},
      {R"({"text_config": {"rope_scaling": {"mrope_section": [4, 2, 3]}}})", "mrope_section"},
      {R"({"text_config": {"rope_scaling": {"mrope_section": [4, 2.5, 1.5]}}})", "mrope_section"},
      {R"({"text_config": {"rope_scaling": {"mrope_section": [8]}}})", "mrope_section"},
      {R"({"vision_config": {"hidden_size": 0}})", "vision_config: hidden_size"},
      {R"({"vision_config": {"num_heads": 3}})", "num_heads"},
      {R"({"vision_config": {"num_heads": 8}})", "num_heads"},
      {R"({"vision_config": {"depth": null}})", "depth is missing"},
      {R"({"vision_config": {"hidden_act": "quick_gelu"}})", "hidden_act"},
      {R"({"vision_config": {"in_channels": 4}})", "in_channels"},
      {R"({"vision_config": {"out_hidden_size": 32}})", "out_hidden_size"},
      {R"({"vision_config": {"num_position_embeddings": 26}})", "num_position_embeddings"},
      {R"({"vision_config": {"spatial_merge_size": 100}})", "spatial_merge_size"},
      {R"({"vision_config": {"deepstack_visual_indexes": null}})", "deepstack_visual_indexes"},
      {R"({"vision_config": {"deepstack_visual_indexes": [1, 1]}})", "deepstack_visual_indexes"},
      {R"({"vision_config": {"deepstack_visual_indexes": [3]}})", "deepstack_visual_indexes"},
      {R"({"vision_config": {"deepstack_visual_indexes": [0.5]}})", "deepstack_visual_indexes"},
      {R"({"text_config": {"num_hidden_layers": 1}})", "deepstack_visual_indexes"},
  };
  ASSERT_TRUE(ParseModelConfig(Tiny().dump()).ok());
  for (const auto& [patch, named] : cases) {
    Json json = Tiny();
    json.merge_patch(Json::parse(patch));
    const auto config = ParseModelConfig(json.dump());
    ASSERT_FALSE(config.ok()) << patch;
    EXPECT_EQ(config.status().code(), StatusCode::kModel);
    EXPECT_NE(config.status().message().find(named), std::string::npos)
        << patch << ": " << config.status().message();
  }
}

}  // namespace
}  // namespace kuiper::test
