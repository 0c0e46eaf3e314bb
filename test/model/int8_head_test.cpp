// An LM head that is quantised while it is loaded, and random quantised weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/model/model.h"
#include "test/log_capture.h"
#include "test/model/forward_runner.h"
#include "test/model/model_files.h"
#include "test/model/quantized_values.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

using Json = nlohmann::json;
using Kind = WeightFormat::Kind;

struct Loaded {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

Loaded Load(StatusOr<OpenedModel> opened, const WeightOptions& weights) {
  KU_CHECK(opened.ok(), opened.status().message());
  Loaded loaded{MakeOps(Device{}, {.num_threads = 2}).value(), nullptr};
  LoadOptions options;
  options.weights = weights;
  auto model = LoadModel(std::move(opened).value(), *loaded.ops, options);
  KU_CHECK(model.ok(), model.status().message());
  loaded.model = std::move(model).value();
  return loaded;
}

std::vector<float> LogitsOf(const std::string& path, const WeightOptions& weights) {
  const Loaded loaded = Load(OpenModel(path), weights);
  return ForwardRunner(*loaded.ops, loaded.model->decoder(), 8, {})
      .Append(std::vector<int32_t>{5, 1, 60, 7, 7, 31, 2, 90});
}

// Tied and untied, with dense and with packed layers, of each float type.
TEST(Int8Head, HoldsTheTableInCodes) {
  for (const char* name : {"goldens/qwen2-gqa1-d64-f32", "goldens/qwen3-gqa2-d128-bf16",
                           "quantized/qwen3-awq", "quantized/qwen3-fp8"}) {
    const std::string path = Source(std::string("test/data/") + name);
    const Loaded dense = Load(OpenModel(path), {});
    const LogCapture log;
    const Loaded loaded = Load(OpenModel(path), {.dtype = {}, .int8_head = true});
    EXPECT_NE(log.text().find("is quantised to INT8"), std::string::npos) << log.text();
    const WeightMatrix& head = loaded.model->decoder().weights().lm_head.parts[0].weight;
    const Tensor& original = dense.model->decoder().weights().lm_head.parts[0].weight.values;
    ASSERT_EQ(head.format.kind, Kind::kInt8);
    ASSERT_TRUE(head.Fits(original.shape[1], Device{}));
    EXPECT_EQ(head.format.numeric_type(), dense.model->config().decoder.dtype);
    const InRows rows(head);
    const Tensor& scales = rows.matrix().scales;
    const std::vector<float> values = ValuesOf(head);
    for (int64_t i = 0; i < original.numel(); ++i) {
      const int64_t row = i / original.shape[1], group = i % original.shape[1] / 128;
      const float scale = FloatAt(scales, row * scales.shape[1] + group);
      ASSERT_NEAR(values[static_cast<size_t>(i)], FloatAt(original, i), 0.5001f * scale) << name;
    }
    // The table is unchanged.
    EXPECT_TRUE(Download(*loaded.ops, loaded.model->decoder().weights().embed) ==
                Download(*dense.ops, dense.model->decoder().weights().embed));
  }
}

TEST(Int8Head, ChangesLogitsByItsRounding) {
  for (const char* name : {"goldens/qwen2-gqa1-d64-f32", "quantized/qwen3-awq"}) {
    const std::string path = Source(std::string("test/data/") + name);
    const std::vector<float> expected = LogitsOf(path, {.dtype = DType::kF32, .int8_head = false});
    const std::vector<float> got = LogitsOf(path, {.dtype = DType::kF32, .int8_head = true});
    ASSERT_EQ(got.size(), expected.size());
    double squares = 0;
    for (size_t i = 0; i < got.size(); ++i) squares += std::pow(got[i] - expected[i], 2);
    // Weights with standard deviation w are rounded in steps of about 3 w / 127. The errors of 3 w
    // / (127 * sqrt(12)) are 0.7 % of the logits, whose standard deviation is 2.6.
    const double rms = std::sqrt(squares / static_cast<double>(got.size()));
    EXPECT_LE(rms, 2 * 0.007 * 2.6) << name;
    EXPECT_GT(rms, 0) << name;
  }
}

TEST(Int8Head, NeedsRowsOfWholeUnits) {
  const auto opened = OpenModel(Source("test/data/goldens/qwen2-gqa7-d8-f32")).value();
  const auto plan = opened.PlanWeights({.dtype = {}, .int8_head = true});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(),
            "a head of INT8 needs a hidden_size that is a multiple of 32; this model's is 56");
}

// The bench's tiny shapes with the quantization_config of a golden.
StatusOr<OpenedModel> MakeTinyRandomModel(const TempDir& dir, const std::string& golden) {
  Json json = Json::parse(ReadFile(Source("tools/bench_models/tiny.json")));
  json["quantization_config"] = Json::parse(
      ReadFile(Source("test/data/quantized/" + golden + "/config.json")))["quantization_config"];
  WriteFile(dir / "config.json", json.dump());
  return MakeRandomModel(dir / "config.json");
}

TEST(InventedWeights, AreQuantisedAsTheConfigurationSays) {
  const TempDir dir;
  const std::pair<const char*, Kind> cases[] = {{"qwen3-awq", Kind::kInt4},
                                                {"qwen3-gptq8-row", Kind::kInt8},
                                                {"qwen3-ct-w4", Kind::kInt4},
                                                {"qwen3-fp8", Kind::kE4M3}};
  for (const auto& [golden, kind] : cases) {
    const auto plan = MakeTinyRandomModel(dir, golden)->PlanWeights({});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Loaded loaded = Load(MakeTinyRandomModel(dir, golden), {});
    EXPECT_EQ(static_cast<int64_t>(plan->bytes), loaded.model->weight_bytes()) << golden;
    for (const LayerWeights& layer : loaded.model->decoder().weights().layers) {
      for (const Linear& linear : {layer.qkv, layer.o, layer.gate_up, layer.down}) {
        const WeightMatrix& matrix = linear.parts[0].weight;
        ASSERT_EQ(matrix.format.kind, kind) << golden;
        ASSERT_TRUE(matrix.Fits(linear.in, Device{}));
        const std::vector<float> values = ValuesOf(matrix);
        const auto [least, most] = std::minmax_element(values.begin(), values.end());
        EXPECT_LT(*least, 0) << golden;
        EXPECT_GT(*most, 0) << golden;
        EXPECT_LT(*most - *least, 0.25) << golden;
        EXPECT_TRUE(std::all_of(values.begin(), values.end(),
                                [](float value) { return std::isfinite(value); }));
      }
    }
    EXPECT_FALSE(loaded.model->decoder().weights().lm_head.format().is_quantized());
  }
}

// 28 layers of 15728640 weights each, and a table in 16 bits.
TEST(InventedWeights, TakeTheMemoryOfTheirBits) {
  const std::pair<const char*, double> cases[] = {{"qwen3-0.6b-awq", 4.25},
                                                  {"qwen3-0.6b-w8", 8.25}};
  for (const auto& [name, bits] : cases) {
    const auto opened =
        MakeRandomModel(Source(std::string("tools/bench_models/") + name + ".json"));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const double table = 151936.0 * 1024 * 2;
    const double layers = static_cast<double>(opened->PlanWeights({})->bytes) - table;
    EXPECT_LE(layers * 8 / (28.0 * 15728640), bits);
    EXPECT_GE(layers * 8 / (28.0 * 15728640), bits - 0.15);
  }
}

}  // namespace
}  // namespace kuiper::test
