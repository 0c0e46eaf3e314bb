// Compares the decoder with logits computed by Hugging Face transformers, and with greedy runs of
// trained models by another implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "kuiper/model/model.h"
#include "kuiper/model/pack.h"
#include "kuiper/model/safetensors.h"
#include "test/model/forward_runner.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::ForwardRunner;
using test::ReadFile;
using test::RunnerOptions;
using test::Shared;
using test::Source;
using test::TempDir;

std::unique_ptr<Ops> CpuOps() {
  auto ops = MakeOps(Device{}, OpsOptions{.num_threads = 2});
  EXPECT_TRUE(ops.ok()) << ops.status().message();
  return std::move(ops).value();
}

StatusOr<std::unique_ptr<Model>> LoadFrom(const std::string& path, Ops& ops,
                                          const LoadOptions& options) {
  KU_ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(path));
  return LoadModel(std::move(opened), ops, options);
}

std::unique_ptr<Model> Load(const std::string& path, Ops& ops, LoadOptions options = {}) {
  auto model = LoadFrom(path, ops, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(model).value() : nullptr;
}

struct GoldenCase {
  const char* name;
  // Largest difference and root mean square of all differences, on logits with a standard deviation
  // of 2.6. FP32 and FP16: the activations are FP32, so only the order of summation differs. BF16:
  // the input of each of nine consecutive linear layers may be rounded to BF16, by up to 2^-9 of
  // its value. Independent errors give 3 * 2^-9 * 2.6 = 0.015. The largest of 6000 values is about
  // four to eight times that.
  double max_error = 1e-4;
  double rms_error = 2e-5;
};

void PrintTo(const GoldenCase& golden, std::ostream* out) {
  *out << golden.name;
}

// Integer weights in FP16 models, whose activations become INT16: they are rounded by up to 2^-15
// of the largest value of a group. Measured: 0.0034 and 0.00042.
constexpr double kIntegersMax = 0.006, kIntegersRms = 0.0008;

constexpr GoldenCase kGoldens[] = {
    {"qwen2-gqa7-d8-f32"},
    {"qwen2-gqa7-d8-bf16", 0.15, 0.03},
    {"qwen2-gqa7-d8-f16"},
    {"qwen2-gqa1-d64-f32"},
    {"qwen2-gqa2-yarn-f32"},
    {"qwen3-gqa2-d128-f32"},
    {"qwen3-gqa2-d128-bf16", 0.15, 0.03},
    {"qwen3-gqa2-d128-f16"},
    {"qwen3-gqa2-d64-long-f32"},
    {"qwen3-gqa2-d64-yarn-f32"},
    {"qwen3-gqa5-d16-sharded-f32"},
    {"qwen3-gqa8-d16-f32"},
    {"llama-gqa8-d8-f32"},
    {"llama-gqa2-llama3-f32"},
    {"qwen2-gqa2-linear-f32"},
    {"llama-gqa2-dynamic-f32"},
    {"llama-gqa2-longrope-f32"},
    {"qwen2-gqa2-yarn-mscale-f32"},
    {"qwen3-gqa2-d16-sliding-f32"},
    {"qwen3-gqa2-d64-sliding-bf16", 0.15, 0.03},
    {"qwen2-gqa2-sliding-f32"},
    {"mistral-gqa2-sliding-f32"},
    {"qwen3-gqa2-d16-bare-f32"},
    {"quantized/qwen3-awq", kIntegersMax, kIntegersRms},
    {"quantized/qwen2-awq-excluded", kIntegersMax, kIntegersRms},
    {"quantized/qwen2-gptq4", kIntegersMax, kIntegersRms},
    {"quantized/qwen3-gptq8-row", 0.15, 0.03},
    {"quantized/qwen3-gptq4-v2", kIntegersMax, kIntegersRms},
    {"quantized/qwen2-autoround-awq", kIntegersMax, kIntegersRms},
    {"quantized/qwen3-autoround-gptq", 0.15, 0.03},
    {"quantized/qwen3-ct-w4", 0.15, 0.03},
    {"quantized/qwen2-ct-w4-asym", kIntegersMax, kIntegersRms},
    {"quantized/qwen2-ct-w8-row", 0.15, 0.03},
    {"quantized/qwen3-fp8", 0.15, 0.03},
};

class Golden : public ::testing::TestWithParam<GoldenCase> {
 protected:
  std::string dir() const {
    const std::string name = GetParam().name;
    return Source("test/data/" + (name.find('/') == std::string::npos ? "goldens/" + name : name));
  }
  std::vector<int32_t> Ids() const {
    std::istringstream in(ReadFile(dir() + "/ids.txt"));
    std::vector<int32_t> ids;
    for (int32_t id; in >> id;) ids.push_back(id);
    return ids;
  }
};

// The largest difference, its index, and the root mean square.
struct Worst {
  double difference = 0;
  size_t index = 0;
  double rms = 0;
};
Worst Compare(const std::vector<float>& got, const std::vector<float>& expected) {
  Worst worst;
  double squares = 0;
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!(difference <= worst.difference)) worst = {difference, i};  // also catches NaN
    squares += difference * difference;
  }
  worst.rms = std::sqrt(squares / static_cast<double>(expected.size()));
  return worst;
}

TEST_P(Golden, LogitsMatchHuggingFace) {
  const auto ops = CpuOps();
  const std::vector<int32_t> ids = Ids();
  const test::NpyMatrix expected = test::ReadNpy(dir() + "/logits.npy");
  ASSERT_EQ(expected.rows, static_cast<int64_t>(ids.size()));
  const auto check = [&](const char* what, LoadOptions options, const GoldenCase& bound) {
    // Hugging Face computes the tables of dynamic RoPE and LongRoPE for the length of the input.
    options.max_context = static_cast<int>(ids.size());
    const auto model = Load(dir(), *ops, options);
    ASSERT_NE(model, nullptr);
    ASSERT_EQ(expected.cols, model->config().decoder.vocab);
    ForwardRunner runner(*ops, model->decoder(), static_cast<int>(ids.size()), {});
    const Worst worst = Compare(runner.Append(ids), expected.values);
    EXPECT_LE(worst.difference, bound.max_error)
        << what << ": position " << worst.index / expected.cols << ", token "
        << worst.index % expected.cols;
    EXPECT_LE(worst.rms, bound.rms_error) << what;
    RecordProperty(std::string(what) + "_max", std::to_string(worst.difference));
    RecordProperty(std::string(what) + "_rms", std::to_string(worst.rms));
  };
  check("stored", {}, GetParam());
  // With the stored weights converted to FP32, this is the reference's own computation.
  LoadOptions widened;
  widened.weights.dtype = DType::kF32;
  check("widened", widened, GoldenCase{GetParam().name});
}

TEST_P(Golden, PagesAndChunksDoNotChangeABit) {
  const auto ops = CpuOps();
  const auto model = Load(dir(), *ops);
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> ids = Ids();
  const int length = static_cast<int>(ids.size());
  const DType kv_dtype = model->config().decoder.dtype;
  ForwardRunner contiguous(*ops, model->decoder(), length, {.paged = false, .kv_dtype = kv_dtype});
  const std::vector<float> expected = contiguous.Append(ids);
  for (int page_size : {1, 16, 64}) {
    for (int chunk : {1, 17, length}) {
      ForwardRunner paged(*ops, model->decoder(), length,
                          {.page_size = page_size, .kv_dtype = kv_dtype});
      std::vector<float> logits;
      for (int begin = 0; begin < length; begin += chunk) {
        const int count = std::min(chunk, length - begin);
        const std::vector<float> part = paged.Append(std::span(ids).subspan(begin, count));
        logits.insert(logits.end(), part.begin(), part.end());
      }
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0)
          << "page size " << page_size << ", chunk " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forward, Golden, ::testing::ValuesIn(kGoldens), [](const auto& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
});

// Sliding windows with pages of 16 tokens and of one, and the input in chunks: the bits are the
// same, and tokens outside the window have no effect.
TEST(SlidingLayers, PagesAndChunksDoNotChangeABit) {
  const TempDir dir;
  const std::string golden = Source("test/data/goldens/qwen3-gqa2-d16-sliding-f32");
  std::filesystem::copy(golden + "/model.safetensors", dir / "model.safetensors");
  Json config = Json::parse(ReadFile(golden + "/config.json"));
  std::istringstream in(ReadFile(golden + "/ids.txt"));
  std::vector<int32_t> ids;
  for (int32_t id; in >> id;) ids.push_back(id);
  const auto ops = CpuOps();
  LoadOptions options;
  options.max_context = 150;
  std::vector<float> last;
  for (const int window : {1, 15, 16, 17, 33, 150}) {
    config["sliding_window"] = window;
    test::WriteFile(dir / "config.json", config.dump());
    const auto model = Load(dir.path(), *ops, options);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->config().decoder.window(0), 0);
    EXPECT_EQ(model->config().decoder.window(1), window < 150 ? window : 0);
    const std::set<int> lengths = {std::max(1, window - 1), window, std::min(150, window + 1), 150};
    for (const int length : lengths) {
      const std::span tokens = std::span(ids).first(length);
      const std::vector<float> expected =
          ForwardRunner(*ops, model->decoder(), length, {.paged = false}).Append(tokens);
      for (const int page_size : {1, 16}) {
        for (const int chunk : {1, 17}) {
          ForwardRunner paged(*ops, model->decoder(), length, {.page_size = page_size});
          std::vector<float> logits;
          for (int begin = 0; begin < length; begin += chunk) {
            const std::vector<float> part =
                paged.Append(tokens.subspan(begin, std::min(chunk, length - begin)));
            logits.insert(logits.end(), part.begin(), part.end());
          }
          ASSERT_TRUE(logits == expected) << "window " << window << ", length " << length
                                          << ", page size " << page_size << ", chunk " << chunk;
        }
      }
      if (length == 150) {
        EXPECT_NE(expected, last) << "window " << window;
        last = expected;
      }
    }
  }
}

std::vector<float> LogitsOf(const std::string& path, LoadOptions options = {}) {
  const auto ops = CpuOps();
  const auto model = Load(path, *ops, options);
  if (model == nullptr) return {};
  ForwardRunner runner(*ops, model->decoder(), 8, {});
  return runner.Append(std::vector<int32_t>{5, 1, 60, 7, 7, 31, 2, 90});
}

TEST(Load, PackedContainerGivesTheSameBits) {
  const TempDir dir;
  const std::string golden = Source("test/data/goldens/qwen3-gqa5-d16-sharded-f32");
  ASSERT_TRUE(PackModel(golden, dir / "m.bin", {}).ok());
  EXPECT_EQ(LogitsOf(golden), LogitsOf(dir / "m.bin"));
}

TEST(Load, DtypeOverrideEqualsAPackedConversion) {
  const TempDir dir;
  const std::string golden = Source("test/data/goldens/qwen3-gqa2-d128-f32");
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    PackOptions pack;
    pack.dtype = dtype;
    ASSERT_TRUE(PackModel(golden, dir / "m.bin", pack).ok());
    LoadOptions load;
    load.weights.dtype = dtype;
    const std::vector<float> converted = LogitsOf(golden, load);
    // Norm weights stay FP32 with the override and are converted in the container.
    EXPECT_LE(Compare(converted, LogitsOf(dir / "m.bin")).difference, 0.1);
    EXPECT_NE(converted, LogitsOf(golden));
  }
}

TEST(Load, TensorsAtOddAddressesAreCopied) {
  const TempDir dir;
  const std::string golden = Source("test/data/goldens/qwen2-gqa7-d8-f32");
  const std::string bytes = ReadFile(golden + "/model.safetensors");
  size_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  std::filesystem::create_directory(dir / "odd");
  std::filesystem::copy(golden + "/config.json", dir / "odd/config.json");
  test::WriteFile(
      dir / "odd/model.safetensors",
      test::SafetensorsBytes(bytes.substr(8, header_bytes) + " ", bytes.substr(8 + header_bytes)));
  EXPECT_EQ(LogitsOf(golden), LogitsOf(dir / "odd"));
}

TEST(Load, CountsBytesAndReportsProgress) {
  const auto ops = CpuOps();
  const std::string golden = Source("test/data/goldens/qwen2-gqa1-d64-f32");  // not tied
  int64_t last = 0, total = 0;
  bool monotonic = true;
  LoadOptions options;
  options.progress = [&](int64_t done, int64_t all) {
    monotonic &= done >= last && done <= all;
    last = done;
    total = all;
  };
  const auto model = Load(golden, *ops, options);
  ASSERT_NE(model, nullptr);
  const DecoderConfig& c = model->config().decoder;
  EXPECT_EQ(model->weight_bytes(), test::ParameterCount(model->config()) * 4);
  EXPECT_EQ(model->decode_bytes(),
            (test::ParameterCount(model->config()) - int64_t{c.vocab} * c.hidden) * 4);
  EXPECT_TRUE(monotonic);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, model->file_bytes());
  const auto tied = Load(Source("test/data/goldens/qwen3-gqa8-d16-f32"), *ops);
  EXPECT_EQ(tied->decode_bytes(), tied->weight_bytes());
}

TEST(Load, RefusesWhatDoesNotFitTheConfig) {
  const TempDir dir;
  const auto ops = CpuOps();
  const std::string golden = Source("test/data/goldens/qwen2-gqa1-d64-f32");
  std::filesystem::copy(golden + "/model.safetensors", dir / "model.safetensors");
  Json original = Json::parse(ReadFile(golden + "/config.json"));
  original.erase("layer_types");  // as in older files, which give only the number of layers
  const auto message = [&](const char* key, const Json& value) {
    Json json = original;
    json[key] = value;
    test::WriteFile(dir / "config.json", json.dump());
    const auto model = LoadFrom(dir.path(), *ops, {});
    return model.ok() ? std::string("loaded") : model.status().message();
  };
  EXPECT_EQ(message("rms_norm_eps", 1e-6), "loaded");
  EXPECT_NE(message("vocab_size", 97)
                .find("\"model.embed_tokens.weight\" has shape [96, 64], "
                      "config.json asks for [97, 64]"),
            std::string::npos);
  EXPECT_NE(message("num_hidden_layers", 3)
                .find("tensor \"model.layers.2.input_layernorm.weight\" "
                      "is missing"),
            std::string::npos);
  EXPECT_NE(message("architectures", {"Qwen3ForCausalLM"}).find("q_norm.weight\" is missing"),
            std::string::npos);
  LoadOptions options;
  options.max_context = 1 << 24;
  test::WriteFile(dir / "config.json", original.dump());
  EXPECT_EQ(LoadFrom(dir.path(), *ops, options).status().code(), StatusCode::kInvalidArgument);
}

TEST(Probe, SeesTheFirstLayerThatGoesWrong) {
  const TempDir dir;
  const std::string golden = Source("test/data/goldens/qwen2-gqa1-d64-f32");
  std::filesystem::copy(golden + "/config.json", dir / "config.json");
  std::string bytes = ReadFile(golden + "/model.safetensors");
  {
    const auto file = SafetensorsFile::Open(golden + "/model.safetensors");
    ASSERT_TRUE(file.ok());
    const SafetensorsHeader& header = (*file)->header();
    const auto& entry = header.tensors.at("model.layers.1.mlp.down_proj.weight");
    const float nan = std::nanf("");
    std::memcpy(bytes.data() + header.data_begin + entry.begin, &nan, sizeof nan);
  }
  test::WriteFile(dir / "model.safetensors", bytes);
  const auto ops = CpuOps();
  const auto model = Load(dir.path(), *ops);
  ASSERT_NE(model, nullptr);
  ForwardRunner runner(*ops, model->decoder(), 4, {});
  std::vector<bool> finite;
  runner.Append(std::vector<int32_t>{1, 2, 3, 4}, [&](int layer, Tensor residual) {
    EXPECT_EQ(layer, static_cast<int>(finite.size()));
    EXPECT_EQ(residual.rows(), 4);
    bool all = true;
    for (int64_t i = 0; i < residual.numel(); ++i) all &= std::isfinite(residual.ptr<float>()[i]);
    finite.push_back(all);
  });
  EXPECT_EQ(finite, (std::vector<bool>{true, false}));
}

// Feeds each greedy choice back. Compares the reference's choice wherever its lead over the second
// token exceeds the rounding error of another implementation.
void CheckGreedy(const Model& model, Ops& ops, const Json& prompt, const Json& steps, bool paged) {
  constexpr double kMargin = 1e-3;
  const int total = static_cast<int>(prompt.size() + steps.size());
  ForwardRunner runner(ops, model.decoder(), total, {.paged = paged});
  const size_t vocab = static_cast<size_t>(model.config().decoder.vocab);
  std::vector<int32_t> next = prompt.get<std::vector<int32_t>>();
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<float> logits = runner.Append(next);
    const auto row = logits.end() - static_cast<std::ptrdiff_t>(vocab);
    const auto best = std::max_element(row, logits.end());
    const int32_t expected = steps[i][0].get<int32_t>();
    if (steps[i][2].get<double>() > kMargin) {
      ASSERT_EQ(best - row, expected) << "step " << i;
    }
    ASSERT_NEAR(row[expected], steps[i][1].get<double>(), 2e-3) << "step " << i;
    next = {expected};
  }
}

TEST(TrainedModel, Stories260kFollowsTheGreedyGolden) {
  KU_REQUIRE_SHARED("models/stories260K");
  const auto ops = CpuOps();
  const auto model = Load(Shared("models/stories260K"), *ops);
  ASSERT_NE(model, nullptr);
  const Json golden = Json::parse(ReadFile(Shared("models/stories260K/golden_greedy.json")));
  ASSERT_EQ(golden["steps"].size(), 255u);
  for (bool paged : {true, false}) {
    CheckGreedy(*model, *ops, golden["prompt_ids"], golden["steps"], paged);
  }
}

// Stored under lm_head.weight only, although tied.
TEST(TrainedModel, Tinystories656kFollowsTheGreedyGolden) {
  KU_REQUIRE_SHARED("models/tinystories-656K");
  const auto ops = CpuOps();
  const auto model = Load(Shared("models/tinystories-656K"), *ops);
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->eos(), (std::vector<int32_t>{2}));
  const Json golden = Json::parse(ReadFile(Shared("models/tinystories-656K/golden_greedy.json")));
  for (const Json& one : golden["cases"]) {
    for (bool paged : {true, false}) {
      CheckGreedy(*model, *ops, one["prompt_ids"], one["steps"], paged);
    }
  }
}

}  // namespace
}  // namespace kuiper
