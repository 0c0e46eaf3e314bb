// Tables against Hugging Face transformers: test/data/rope.json is made by
// tools/make_rope_goldens.py.
#include "kuiper/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kuiper/model/config.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;

// A whole config.json around the keys that matter here.
StatusOr<ModelConfig> ConfigWith(Json keys) {
  keys.update({{"architectures", {"LlamaForCausalLM"}},
               {"vocab_size", 96},
               {"intermediate_size", 40},
               {"torch_dtype", "float32"}});
  return ParseModelConfig(keys.dump());
}

RopeConfig Plain(double theta) {
  RopeConfig config;
  config.theta = theta;
  config.max_position = 1000;
  return config;
}

struct RelativeError {
  double worst = 0;
  int num_different = 0;  // out of `count`, not bit-identical
  int count = 0;

  void Add(float got, float expected) {
    ++count;
    num_different += got != expected;
    worst = std::max(worst, std::abs(static_cast<double>(got) - expected) /
                                std::max(1e-30, std::abs(static_cast<double>(expected))));
  }
};

// torch's FP32 powers are off by up to one unit in the last place (6e-8 to 1.2e-7 of the value);
// those here are rounded once. A quotient, and the mixtures of YaRN and Llama 3, round twice more.
TEST(Rope, FrequenciesEqualHuggingFaces) {
  const Json goldens = Json::parse(test::ReadFile(test::Source("test/data/rope.json")));
  ASSERT_GT(goldens["cases"].size(), 25u);
  RelativeError all;
  for (const Json& golden : goldens["cases"]) {
    SCOPED_TRACE(golden["config"].dump().substr(0, 300));
    const auto config = ConfigWith(golden["config"]);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const DecoderConfig& d = config->decoder;
    const int context = golden["context"];
    ASSERT_LE(context, d.rope.max_position);
    const std::vector<float> got = RopeInvFreq(d.rope, d.head_dim, context);
    const auto expected = golden["inv_freq"].get<std::vector<float>>();
    ASSERT_EQ(got.size(), expected.size());
    RelativeError error;
    for (size_t i = 0; i < got.size(); ++i) {
      error.Add(got[i], expected[i]);
      all.Add(got[i], expected[i]);
    }
    EXPECT_LE(error.worst, 3e-7) << "context " << context;
  }
  EXPECT_LE(all.num_different, all.count / 5) << "of " << all.count;
  RecordProperty("different", std::to_string(all.num_different));
  RecordProperty("worst", std::to_string(all.worst * 1e9) + "e-9");
}

// Angles up to 255 radians, with a relative error of 3e-7.
TEST(Rope, RowsEqualHuggingFaces) {
  const Json goldens = Json::parse(test::ReadFile(test::Source("test/data/rope.json")));
  for (const Json& golden : goldens["cases"]) {
    SCOPED_TRACE(golden["config"].dump().substr(0, 300));
    const auto config = ConfigWith(golden["config"]);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const DecoderConfig& d = config->decoder;
    const double scale = golden["scale"];
    for (size_t row = 0; row < goldens["positions"].size(); ++row) {
      const int pos = goldens["positions"][row];
      const std::vector<float> got =
          RopeCosSin(d.rope, d.head_dim, golden["context"], pos, pos + 1);
      const int half = d.head_dim / 2;
      for (int i = 0; i < half; ++i) {
        EXPECT_NEAR(got[i], golden["cos"][row][i].get<double>(), scale * (2e-7 + pos * 3e-7))
            << pos << " " << i;
        EXPECT_NEAR(got[half + i], golden["sin"][row][i].get<double>(), scale * (2e-7 + pos * 3e-7))
            << pos << " " << i;
      }
    }
  }
}

TEST(Rope, TheContextChoosesOneTableForAllPositions) {
  RopeConfig dynamic = Plain(10000);
  dynamic.scaling = DynamicRope{2, 100};
  const std::vector<float> plain = RopeInvFreq(Plain(10000), 16, 100);
  EXPECT_EQ(RopeInvFreq(dynamic, 16, 100), plain);
  EXPECT_NE(RopeInvFreq(dynamic, 16, 101), plain);
  EXPECT_EQ(DescribeRope(dynamic, 16, 100),
            "dynamic, theta x 1 for a context of 100 tokens (trained: 100)");
  EXPECT_EQ(DescribeRope(dynamic, 16, 200),
            "dynamic, theta x 3.50979 for a context of 200 tokens (trained: 100)");
  RopeConfig longrope = Plain(10000);
  longrope.scaling = LongRope{{1, 1}, {2, 4}, 100, 1};
  EXPECT_EQ(RopeInvFreq(longrope, 4, 100), (std::vector<float>{1, 0.01f}));
  EXPECT_EQ(RopeInvFreq(longrope, 4, 101), (std::vector<float>{0.5f, 0.0025f}));
  EXPECT_EQ(DescribeRope(longrope, 4, 101),
            "longrope, the long factors for a context of 101 tokens (trained: 100)");
  EXPECT_EQ(DescribeRope(Plain(10000), 16, 100), "");
}

TEST(Rope, TableHoldsCosinesThenSines) {
  const int dim = 8;
  const std::vector<float> table = RopeCosSin(Plain(10000), dim, 300, 0, 300);
  for (int pos : {0, 1, 17, 299}) {
    for (int i = 0; i < dim / 2; ++i) {
      const double angle = pos * std::pow(10000.0, -2.0 * i / dim);
      // The product of position and frequency is rounded to FP32, as in Hugging Face.
      EXPECT_NEAR(table[pos * dim + i], std::cos(angle), 3e-5) << pos << " " << i;
      EXPECT_NEAR(table[pos * dim + dim / 2 + i], std::sin(angle), 3e-5) << pos << " " << i;
    }
  }
}

TEST(Rope, PiecesOfTheTableJoin) {
  RopeConfig config = Plain(1e6);
  config.scaling = YarnRope{.factor = 4, .original_max_position = 64, .attention_factor = 1.1};
  const std::vector<float> whole = RopeCosSin(config, 16, 256, 0, 50);
  std::vector<float> joined = RopeCosSin(config, 16, 256, 0, 33);
  const std::vector<float> rest = RopeCosSin(config, 16, 256, 33, 50);
  joined.insert(joined.end(), rest.begin(), rest.end());
  EXPECT_EQ(whole, joined);
}

}  // namespace
}  // namespace kuiper
