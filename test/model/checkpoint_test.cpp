// Checkpoints with redundant entries: which of two keys and which of two tensors takes precedence.
// The cases of ../shared/data/outside hold logits of transformers 5.24.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kuiper/model/file_weights.h"
#include "kuiper/model/model.h"
#include "test/log_capture.h"
#include "test/model/forward_runner.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

using Json = nlohmann::json;

class OutsideCase : public ::testing::TestWithParam<const char*> {};

TEST_P(OutsideCase, HasTheLogitsOfTransformers) {
  const std::string dir = std::string("outside/") + GetParam();
  KU_REQUIRE_SHARED(dir + "/model/config.json");
  StatusOr<OpenedModel> opened = OpenModel(Shared(dir + "/model"));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const auto ops = MakeOps(Device{}, OpsOptions{.num_threads = 1});
  ASSERT_TRUE(ops.ok());
  LoadOptions options;
  options.weights.dtype = DType::kF32;
  const auto model = LoadModel(std::move(opened).value(), **ops, options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::istringstream text(ReadFile(Shared(dir + "/ids.txt")));
  std::vector<int32_t> ids;
  for (int32_t id; text >> id;) ids.push_back(id);
  ForwardRunner runner(**ops, (*model)->decoder(), 256, {});
  const std::vector<float> logits = runner.Append(ids);
  const NpyMatrix expected = ReadNpy(Shared(dir + "/expected.npy"));
  ASSERT_EQ(logits.size(), expected.values.size());
  double worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    worst = std::max<double>(worst, std::abs(logits[i] - expected.values[i]));
  }
  EXPECT_LT(worst, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, OutsideCase,
    ::testing::Values("01-rope-scaling-beside-rope-parameters", "02-tied-flag-but-own-head",
                      "03-vl-outer-untied-text-tied", "07-gptq-v2-named-by-format",
                      "08-rope-parameters-without-type", "09-compressed-tensors-targets-mlp-only",
                      "13-index-names-absent-tensor"),
    [](const auto& info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return "Case" + name;
    });

Json TinyConfig() {
  return Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "vocab_size": 4, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 2, "intermediate_size": 4, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": true})");
}

// Writes a directory with a table of 16 numbers for each name; the other tensors of a network are
// missing.
void WriteTables(const TempDir& dir, const Json& config,
                 const std::vector<std::pair<std::string, std::vector<float>>>& tables) {
  WriteFile(dir / "config.json", config.dump());
  Json header;
  std::string data;
  for (const auto& [name, values] : tables) {
    const size_t begin = data.size();
    data += BytesOf(values);
    header[name] = {{"dtype", "F32"}, {"shape", {4, 4}}, {"data_offsets", {begin, data.size()}}};
  }
  WriteFile(dir / "model.safetensors", SafetensorsBytes(header.dump(), data));
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

TEST(Tied, AHeadOfItsOwnIsUsedWhateverTheFlagSays) {
  const std::vector<float> table(16, 1.5f);
  std::vector<float> other = table;
  other.back() = -1.5f;
  for (const bool differs : {false, true}) {
    for (const bool flag : {false, true}) {
      const TempDir dir;
      Json config = TinyConfig();
      config["tie_word_embeddings"] = flag;
      WriteTables(dir, config, {{kEmbedding, table}, {kHead, differs ? other : table}});
      const LogCapture log;
      const auto model = OpenModel(dir.path());
      ASSERT_TRUE(model.ok()) << model.status().message();
      EXPECT_EQ(model->config.decoder.tie_embeddings, flag && !differs);
      EXPECT_EQ(log.text(),
                !flag || !differs
                    ? ""
                    : dir.path() +
                          ": \"lm_head.weight\" is not the embedding and is used, though "
                          "tie_word_embeddings of config.json says that they are one\n");
    }
  }
}

TEST(Tied, OneTableMayHaveEitherName) {
  for (const char* name : {kEmbedding, kHead}) {
    const TempDir dir;
    WriteTables(dir, TinyConfig(), {{name, std::vector<float>(16, 1.0f)}});
    const auto model = OpenModel(dir.path());
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE(model->config.decoder.tie_embeddings) << name;
  }
}

// transformers 4 reads the inner flag and 5 the outer one.
TEST(Tied, WithoutAHeadEitherFlagOfAModelThatSeesSaysSo) {
  const Json vision = Json::parse(ReadFile(Source("test/data/vision/tiny/config.json")));
  for (const auto& [outer, inner] : {std::pair(true, false), {false, true}, {true, true}}) {
    Json json = vision;
    json["tie_word_embeddings"] = outer;
    json["text_config"]["tie_word_embeddings"] = inner;
    EXPECT_TRUE(ParseModelConfig(json.dump())->decoder.tie_embeddings);
    json.erase("tie_word_embeddings");
    EXPECT_EQ(ParseModelConfig(json.dump())->decoder.tie_embeddings, inner);
  }
}

TEST(Index, MayNameWhatNoNetworkNeeds) {
  const TempDir dir;
  const std::vector<float> table(16, 1.0f);
  WriteTables(dir, TinyConfig(), {{kEmbedding, table}});
  std::filesystem::rename(dir / "model.safetensors", dir / "a.safetensors");
  const auto open = [&](const Json& map) {
    WriteFile(dir / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    return OpenModel(dir.path()).status();
  };
  const char* table_of_angles = "model.layers.0.self_attn.rotary_emb.inv_freq";
  EXPECT_TRUE(open({{kEmbedding, "a.safetensors"}, {table_of_angles, "a.safetensors"}}).ok());
  EXPECT_TRUE(open({{kEmbedding, "a.safetensors"}, {kHead, "a.safetensors"}}).ok()) << "it is tied";
  EXPECT_EQ(open({{kEmbedding, "a.safetensors"}, {"model.norm.weight", "a.safetensors"}}).message(),
            dir.path() +
                ": tensor \"model.norm.weight\" is not in a.safetensors, where the index has it");
}

// Returns the theta and the type that result from a patch of Qwen3's config.json, or the error
// message. Confirmed with transformers 5.24.0 and 4.57.6 (Qwen3Config.from_dict).
std::string Rope(const char* patch, std::string* log = nullptr) {
  Json json = TinyConfig();
  json["head_dim"] = 16;
  json.erase("rope_theta");
  json.update(Json::parse(patch));
  const LogCapture capture;
  const auto config = ParseModelConfig(json.dump());
  if (log != nullptr) *log = capture.text();
  if (!config.ok()) return config.status().message();
  const RopeConfig& rope = config->decoder.rope;
  const bool yarn = std::holds_alternative<YarnRope>(rope.scaling);
  std::ostringstream text;
  text << (yarn ? "yarn " : rope.scaling.index() == 0 ? "default " : "other ") << rope.theta;
  return text.str();
}

TEST(RopeKeys, AScalingThatIsNotEmptyCounts) {
  EXPECT_EQ(Rope("{}"), "default 10000");
  EXPECT_EQ(Rope(R"({"rope_parameters": {"rope_theta": 5e5}})"), "default 500000");
  EXPECT_EQ(Rope(R"({"rope_theta": 5e5, "rope_parameters": {}, "rope_scaling": {}})"),
            "default 500000");
  EXPECT_EQ(Rope(R"({"rope_parameters": {"rope_theta": 5e5}, "rope_scaling": null})"),
            "default 500000");
  EXPECT_EQ(Rope(R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "yarn", "factor": 4},
                     "rope_scaling": {}})"),
            "yarn 500000");
  EXPECT_EQ(Rope(R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "yarn", "factor": 4},
                     "rope_scaling": {"rope_type": "default"}})"),
            "default 500000");
  EXPECT_EQ(Rope(R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default"},
                     "rope_scaling": {"type": "yarn", "factor": 4}})"),
            "yarn 500000");
  EXPECT_EQ(Rope(R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": null, "type": "yarn",
                     "factor": 4}})"),
            "yarn 500000");
}

TEST(RopeKeys, ThetaIsThatOfTheObjectThatCounts) {
  std::string log;
  // Both versions of transformers compute this, whatever the author intended.
  EXPECT_EQ(Rope(R"({"rope_parameters": {"rope_theta": 1e6},
                     "rope_scaling": {"rope_type": "yarn", "factor": 4}})",
                 &log),
            "yarn 10000");
  EXPECT_EQ(log,
            "config.json: rope_parameters has no effect next to rope_scaling; rope_theta (10000) "
            "counts\n");
  EXPECT_EQ(Rope(R"({"rope_theta": 1e6, "rope_parameters": {"rope_type": "yarn", "factor": 4},
                     "rope_scaling": {"rope_type": "yarn", "factor": 4}})",
                 &log),
            "yarn 1e+06");
  EXPECT_EQ(log, "");
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const std::string patch =
        std::string(R"({"rope_theta": 5e5, ")") + key + R"(": {"rope_theta": 1e6}})";
    EXPECT_EQ(Rope(patch.c_str(), &log), "default 1e+06");
    EXPECT_EQ(log, std::string("config.json: rope_theta (500000) has no effect: that of ") + key +
                       " (1e+06) counts\n");
  }
}

TEST(RopeKeys, TheTrainedLengthMayStandNextToTheObject) {
  Json json = TinyConfig();
  json["original_max_position_embeddings"] = 64;
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4}};
  const auto config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(std::get<YarnRope>(config->decoder.rope.scaling).original_max_position, 64)
      << "as transformers 5";
  json["rope_scaling"]["original_max_position_embeddings"] = 32;
  EXPECT_EQ(ParseModelConfig(json.dump()).status().message(),
            "config.json: rope_scaling: original_max_position_embeddings (32) contradicts the one "
            "next to it (64), and transformers 4 and 5 do not read them alike");
}

TEST(RopeKeys, WithoutATypeItsNumbersHaveNoEffect) {
  std::string log;
  EXPECT_EQ(Rope(R"({"rope_scaling": {"factor": 2}})", &log), "default 10000");
  EXPECT_EQ(log,
            "config.json: \"factor\" of rope_scaling has no effect: there is no rope_type, and the "
            "default one is taken\n");
}

TEST(RopeKeys, WhatVersionsOfTransformersReadInDifferentWaysIsRefused) {
  EXPECT_EQ(Rope(R"({"rope_parameters": {"rope_theta": 5e5},
                     "rope_scaling": {"rope_type": "yarn", "factor": 4, "rope_theta": 1e6}})"),
            "config.json: rope_scaling.rope_theta (1e+06) and rope_parameters.rope_theta (500000) "
            "contradict each other, and transformers 4 and 5 do not read them alike");
  EXPECT_EQ(
      Rope(R"({"rope_scaling": {"rope_type": "yarn", "type": "linear", "factor": 4}})"),
      "config.json: rope_scaling: rope_type \"yarn\" and type \"linear\" contradict each other");
  EXPECT_EQ(Rope(R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4}}})"),
            "config.json: rope_parameters by type of layer (\"full_attention\") is not supported");
}

TEST(RopeKeys, OfModelsThatSeeStandInTheirText) {
  const Json vision = Json::parse(ReadFile(Source("test/data/vision/tiny/config.json")));
  const auto message = [&](const char* patch) {
    Json json = vision;
    json.merge_patch(Json::parse(patch));
    const auto config = ParseModelConfig(json.dump());
    return config.ok() ? std::to_string(static_cast<int>(config->decoder.rope.theta)) +
                             (config->decoder.rope.scaling.index() == 0 ? "" : " scaled")
                       : config.status().message();
  };
  EXPECT_EQ(message("{}"), "10000");
  EXPECT_EQ(message(R"({"text_config": {"rope_scaling": {"rope_type": null}}})"), "10000");
  EXPECT_EQ(message(R"({"text_config": {"rope_parameters": {"rope_theta": 10000},
      "rope_scaling": {"rope_type": "yarn", "factor": 4}}})"),
            "10000 scaled");
  EXPECT_EQ(message(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})"),
            "config.json: rope_scaling belongs into text_config, where it would count");
  EXPECT_EQ(message(R"({"text_config": {"rope_theta": null}})"),
            "config.json: text_config: rope_theta is missing");
  Json json = vision;
  json["text_config"]["head_dim"] = 128;
  json["text_config"]["rope_scaling"].erase("mrope_section");
  const auto config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->decoder.rope.axes->time, 24) << "the default of transformers";
  EXPECT_EQ(config->decoder.rope.axes->columns, 20);
}

TEST(Keys, OfTwoNamesTheOneOfTransformersCounts) {
  Json json = TinyConfig();
  json["torch_dtype"] = "bfloat16";
  EXPECT_EQ(ParseModelConfig(json.dump())->decoder.dtype, DType::kBF16);
  json["dtype"] = "float16";
  EXPECT_EQ(ParseModelConfig(json.dump())->decoder.dtype, DType::kF16);
  Json vision = Json::parse(ReadFile(Source("test/data/vision/tiny/config.json")));
  vision["dtype"] = "bfloat16";
  EXPECT_EQ(ParseModelConfig(vision.dump())->decoder.dtype, DType::kBF16) << "the outer one";
  vision["eos_token_id"] = 7;
  EXPECT_EQ(ParseModelConfig(vision.dump())->eos, std::vector<int32_t>{7}) << "the outer one";
  const Json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  vision["text_config"]["quantization_config"] = {
      {"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}};
  EXPECT_EQ(ParseModelConfig(vision.dump())->quantization.packing,
            QuantizationConfig::Packing::kAwq);
  vision["quantization_config"] = fp8;
  EXPECT_EQ(ParseModelConfig(vision.dump())->quantization.packing,
            QuantizationConfig::Packing::kE4M3Blocks)
      << "the outer one";
}

}  // namespace
}  // namespace kuiper::test
