// Supported contents of quantization_config, and the errors for all others.
#include "kuiper/model/quantized/quantization_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kuiper/model/config.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

using Json = nlohmann::json;
using Packing = QuantizationConfig::Packing;
using Kind = WeightFormat::Kind;

StatusOr<QuantizationConfig> Parse(const std::string& json) {
  return ParseQuantization(ParseJson(json, StatusCode::kModel, "test").value());
}

const std::string kAwq = R"({"quant_method": "awq", "version": "gemm", "bits": 4,
  "group_size": 128, "zero_point": true, "modules_to_not_convert": null})";
const std::string kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true,
  "desc_act": false})";
const std::string kRound = R"({"quant_method": "auto-round", "bits": 4, "group_size": 128,
  "sym": true, "data_type": "int", "packing_format": "auto_round:auto_gptq"})";
const std::string kCompressed = R"({"quant_method": "compressed-tensors",
  "format": "pack-quantized", "ignore": ["lm_head"], "sparsity_config": {},
  "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null,
  "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
  "symmetric": true, "actorder": null}}}})";
const std::string kFp8 = R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
  "weight_block_size": [128, 128]})";

TEST(QuantizationConfig, ReadsEachFormat) {
  const auto awq = Parse(kAwq).value();
  EXPECT_EQ(awq.packing, Packing::kAwq);
  EXPECT_EQ(awq.kind, Kind::kInt4);
  EXPECT_EQ(awq.group_columns, 128);
  EXPECT_FALSE(awq.is_symmetric);
  EXPECT_EQ(awq.zero_offset, 0);
  const auto gptq = Parse(kGptq).value();
  EXPECT_EQ(gptq.packing, Packing::kGptq);
  EXPECT_TRUE(gptq.is_symmetric);
  EXPECT_EQ(gptq.zero_offset, 1);
  const auto compressed = Parse(kCompressed).value();
  EXPECT_EQ(compressed.packing, Packing::kCompressedTensors);
  EXPECT_TRUE(compressed.is_symmetric);
  EXPECT_EQ(compressed.excluded, std::vector<std::string>{"lm_head"});
  const auto fp8 = Parse(kFp8).value();
  EXPECT_EQ(fp8.kind, Kind::kE4M3);
  EXPECT_EQ(fp8.FormatOf(300, DType::kBF16).Bytes(129, 300), 129 * 300 + 2 * 3 * 2);
}

TEST(QuantizationConfig, ReadsOfficialFiles) {
  KU_REQUIRE_SHARED("configs");
  const std::tuple<const char*, Packing, Kind> cases[] = {
      {"Qwen3-4B-AWQ", Packing::kAwq, Kind::kInt4},
      {"Qwen3-8B-AWQ", Packing::kAwq, Kind::kInt4},
      {"Qwen3-0.6B-FP8", Packing::kE4M3Blocks, Kind::kE4M3},
      {"Qwen3-0.6B-GPTQ-Int8", Packing::kGptq, Kind::kInt8}};
  for (const auto& [name, packing, kind] : cases) {
    const auto config =
        ParseModelConfig(ReadFile(Shared(std::string("configs/") + name + ".config.json")));
    ASSERT_TRUE(config.ok()) << name << ": " << config.status().message();
    EXPECT_EQ(config->quantization.packing, packing) << name;
    EXPECT_EQ(config->quantization.kind, kind) << name;
    EXPECT_FALSE(config->quantization.has_other_rules) << name;
  }
}

TEST(QuantizationConfig, ReadsWhatFormatsCallTheSame) {
  const std::tuple<std::string, std::string, int, bool> cases[] = {
      // patch, of, zero_offset, is_symmetric
      {R"({"checkpoint_format": "gptq_v2"})", kGptq, 0, true},
      {R"({"checkpoint_format": "gptq", "sym": false})", kGptq, 1, false},
      {R"({"format": "gptq_v2"})", kGptq, 0, true},
      {R"({"format": "GPTQ"})", kGptq, 1, true},
      {R"({"format": "gptq", "checkpoint_format": "gptq_v2"})", kGptq, 0, true},
      {R"({"format": "gptq_v2", "checkpoint_format": "gptq"})", kGptq, 1, true},
      {R"({"sym": null})", kGptq, 1, false},
      {R"({"packing_format": "auto_round:gptqmodel"})", kRound, 0, true},
      {R"({"packing_format": "auto_round", "sym": false})", kRound, 0, false},
      {R"({"packing_format": "auto_round:auto_awq"})", kRound, 0, true},
      {R"({"zero_point": false, "group_size": -1})", kAwq, 0, true}};
  for (const auto& [patch, text, zero_offset, symmetric] : cases) {
    Json json = Json::parse(text);
    json.update(Json::parse(patch));
    const auto config = Parse(json.dump());
    ASSERT_TRUE(config.ok()) << patch << ": " << config.status().message();
    EXPECT_EQ(config->zero_offset, zero_offset) << patch;
    EXPECT_EQ(config->is_symmetric, symmetric) << patch;
  }
  for (const char* order : {"static", "weight"}) {
    Json json = Json::parse(kCompressed);
    json["config_groups"]["group_0"]["weights"]["actorder"] = order;
    EXPECT_TRUE(Parse(json.dump()).ok()) << order;
  }
}

TEST(QuantizationConfig, RefusesOtherKindsByName) {
  const std::tuple<std::string, std::string, std::string> cases[] = {
      // of, patch, message
      {kAwq, R"({"quant_method": "bitsandbytes"})",
       "quantization \"bitsandbytes\" is not supported "
       "(supported: awq, gptq, auto-round, compressed-tensors, fp8)"},
      {kAwq, R"({"quant_method": "modelopt"})", "quantization \"modelopt\" is not"},
      {kAwq, R"({"quant_method": null})", "quantization \"unknown\" is not"},
      {kAwq, R"({"version": "gemv"})", "version \"gemv\" is not supported"},
      {kAwq, R"({"version": "marlin"})", "version \"marlin\" is not supported"},
      {kAwq, R"({"backend": "llm-awq"})", "backend \"llm-awq\" is not supported"},
      {kAwq, R"({"bits": 8})", "bits 8 is not supported (supported: 4)"},
      {kAwq, R"({"bits": null})", "bits is missing"},
      {kAwq, R"({"group_size": null})", "group_size is missing"},
      {kAwq, R"({"group_size": 48})", "group_size 48 is not supported"},
      {kAwq, R"({"group_size": 0})", "group_size 0 is not supported"},
      {kAwq, R"({"modules_to_not_convert": "x"})", "modules_to_not_convert is not a list"},
      {kAwq, R"({"modules_to_not_convert": [1]})", "modules_to_not_convert is not a list"},
      {kGptq, R"({"bits": 2})", "bits 2 is not supported (supported: 4, 8)"},
      {kGptq, R"({"bits": 3})", "bits 3 is not supported (supported: 4, 8)"},
      {kGptq, R"({"checkpoint_format": "marlin"})", "checkpoint_format \"marlin\" is not"},
      {kGptq, R"({"format": "marlin"})", "format \"marlin\" is not"},
      {kGptq, R"({"is_marlin_format": true})", "is_marlin_format is not"},
      {kGptq, R"({"pack_dtype": "int64"})", "pack_dtype \"int64\" is not"},
      {kRound, R"({"packing_format": null})", "packing_format is missing"},
      {kRound, R"({"packing_format": "auto_round:llm_compressor"})", "packing_format"},
      {kRound, R"({"data_type": "mx_fp"})", "data_type \"mx_fp\" is not"},
      {kRound, R"({"act_bits": 8})", "quantised activations (act_bits) are not"},
      {kCompressed, R"({"format": "nvfp4-pack-quantized"})", "format \"nvfp4-pack-quantized\" is"},
      {kCompressed, R"({"format": "int-quantized"})", "format \"int-quantized\" is not supported"},
      {kCompressed, R"({"config_groups": null})", "config_groups is missing"},
      {kCompressed, R"({"transform_config": {"a": 1}})", "transform_config is not supported"},
      {kCompressed, R"({"sparsity_config": {"format": "x"}})", "sparsity_config is not supported"},
      {kFp8, R"({"activation_scheme": "static"})", "activation_scheme \"static\" is not"},
      {kFp8, R"({"fmt": "e5m2"})", "fmt \"e5m2\" is not supported"},
      {kFp8, R"({"weight_block_size": null})", "FP8 without weight_block_size is not supported"},
      {kFp8, R"({"weight_block_size": [64, 128]})", "weight_block_size other than [128, 128]"},
      {kFp8, R"({"weight_block_size": [128]})", "weight_block_size is not a list of 2 numbers"}};
  for (const auto& [text, patch, message] : cases) {
    Json json = Json::parse(text);
    json.update(Json::parse(patch));
    const auto config = Parse(json.dump());
    ASSERT_FALSE(config.ok()) << patch;
    EXPECT_EQ(config.status().code(), StatusCode::kModel);
    EXPECT_NE(config.status().message().find(message), std::string::npos)
        << patch << " gave: " << config.status().message();
    EXPECT_EQ(config.status().message().find("config.json: "), 0u);
  }
}

TEST(QuantizationConfig, RefusesOtherSchemesOfCompressedTensors) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"num_bits": 3})", "num_bits 3 is not supported (supported: 4, 8)"},
      {R"({"type": "float"})", "type \"float\" is not supported (supported: int)"},
      {R"({"strategy": "tensor"})", "strategy \"tensor\" is not supported"},
      {R"({"strategy": "block"})", "strategy \"block\" is not supported"},
      {R"({"actorder": "group"})", "actorder \"group\" is not supported"},
      {R"({"group_size": 16})", "group_size 16 is not supported"},
      {R"({"dynamic": true})", "dynamic"}};
  for (const auto& [patch, message] : cases) {
    Json json = Json::parse(kCompressed);
    json["config_groups"]["group_0"]["weights"].update(Json::parse(patch));
    const auto config = Parse(json.dump());
    ASSERT_FALSE(config.ok()) << patch;
    EXPECT_NE(config.status().message().find(message), std::string::npos)
        << patch << " gave: " << config.status().message();
  }
  Json activations = Json::parse(kCompressed);
  activations["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  EXPECT_NE(Parse(activations.dump()).status().message().find("quantised activations"),
            std::string::npos);
  Json two = Json::parse(kCompressed);
  two["config_groups"]["group_1"] = two["config_groups"]["group_0"];
  EXPECT_NE(Parse(two.dump()).status().message().find("more than one of config_groups"),
            std::string::npos);
}

TEST(QuantizationConfig, ExcludesModulesByNameAndPattern) {
  const std::tuple<const char*, const char*, Exclusion> cases[] = {
      {"lm_head", "lm_head", Exclusion::kYes},
      {"lm_head", "model.layers.0.mlp.up_proj", Exclusion::kNo},
      {"mlp", "model.layers.0.mlp.up_proj", Exclusion::kUnknown},
      {"re:.*up_proj", "model.layers.0.mlp.up_proj", Exclusion::kYes},
      {"re:.*up", "model.layers.0.mlp.up_proj", Exclusion::kYes},
      {"re:.*up$", "model.layers.0.mlp.up_proj", Exclusion::kNo},
      {"re:^model\\.layers\\.0\\..*", "model.layers.0.mlp.up_proj", Exclusion::kYes},
      {"re:model.layers.1+.mlp.*", "model.layers.111.mlp.up_proj", Exclusion::kYes},
      {"re:model.layers.1+.mlp.*", "model.layers.mlp.up_proj", Exclusion::kNo},
      {"re:mlp.*", "model.layers.0.mlp.up_proj", Exclusion::kNo},
      {"re:.*(q|k)_proj", "model.layers.0.mlp.up_proj", Exclusion::kUnknown},
      {"re:.*\\d", "model.layers.0.mlp.up_proj", Exclusion::kUnknown},
      {"re:*", "model", Exclusion::kUnknown},
      {"re:", "model", Exclusion::kYes},
      {"re:.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*x$", "model.layers.0.mlp.up_proj", Exclusion::kNo}};
  for (const auto& [pattern, module, expected] : cases) {
    QuantizationConfig config;
    config.excluded = {pattern};
    EXPECT_EQ(Excludes(config, module), expected) << pattern << " of " << module;
  }
}

TEST(QuantizationConfig, KnowsTheClassesOfModules) {
  const char* const module = "model.layers.0.mlp.up_proj";
  const auto excludes = [&](std::vector<std::string> excluded, std::vector<std::string> targets) {
    QuantizationConfig config;
    config.excluded = std::move(excluded);
    config.targets = std::move(targets);
    return Excludes(config, module);
  };
  EXPECT_EQ(excludes({}, {"Linear"}), Exclusion::kNo);
  EXPECT_EQ(excludes({}, {"re:.*mlp.*"}), Exclusion::kNo);
  EXPECT_EQ(excludes({}, {"re:.*self_attn.*", module}), Exclusion::kNo);
  EXPECT_EQ(excludes({}, {"re:.*self_attn.*"}), Exclusion::kYes) << "no target";
  EXPECT_EQ(excludes({}, {"Embedding"}), Exclusion::kYes) << "no target";
  EXPECT_EQ(excludes({module}, {"Linear"}), Exclusion::kYes);
  EXPECT_EQ(excludes({"re:.*up_proj"}, {"re:.*mlp.*"}), Exclusion::kYes);
  EXPECT_EQ(excludes({"Linear"}, {}), Exclusion::kYes);
  EXPECT_EQ(excludes({"Qwen3MLP"}, {"Linear"}), Exclusion::kUnknown) << "it holds the module";
  EXPECT_EQ(excludes({"Qwen3Attention"}, {"Linear"}), Exclusion::kNo);
  EXPECT_EQ(excludes({}, {"Qwen3DecoderLayer"}), Exclusion::kUnknown);
  EXPECT_EQ(excludes({}, {"re:.*(up|down)_proj"}), Exclusion::kUnknown);
  Json json = Json::parse(kCompressed);
  json["config_groups"]["group_0"]["targets"] = {"re:.*mlp.*"};
  EXPECT_EQ(Parse(json.dump())->targets, std::vector<std::string>{"re:.*mlp.*"});
  json["config_groups"]["group_0"]["targets"] = "Linear";
  EXPECT_NE(Parse(json.dump()).status().message().find("targets is not a list"), std::string::npos);
  json = Json::parse(kFp8);
  json["ignored_layers"] = {"b"};
  EXPECT_EQ(Parse(json.dump())->excluded, std::vector<std::string>{"b"});
  json["modules_to_not_convert"] = {"a"};
  EXPECT_EQ(Parse(json.dump())->excluded, std::vector<std::string>{"a"}) << "as transformers";
}

}  // namespace
}  // namespace kuiper::test
