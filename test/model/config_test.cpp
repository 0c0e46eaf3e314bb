#include "kuiper/model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kuiper/model/manifest.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::ReadFile;
using test::Shared;

struct Row {
  const char* file;
  ModelFamily family;
  int hidden, layers, heads, kv_heads, head_dim, intermediate, vocab;
  bool tied;
  int64_t parameters;  // published or computed from the shapes by hand; 0: unknown
};

// The size table of the models' own documentation.
constexpr Row kRows[] = {
    {"Qwen2.5-0.5B-Instruct", ModelFamily::kQwen2, 896, 24, 14, 2, 64, 4864, 151936, true,
     494'032'768},
    {"Qwen2.5-1.5B-Instruct", ModelFamily::kQwen2, 1536, 28, 12, 2, 128, 8960, 151936, true, 0},
    {"Qwen2.5-3B-Instruct", ModelFamily::kQwen2, 2048, 36, 16, 2, 128, 11008, 151936, true, 0},
    {"Qwen2.5-7B-Instruct", ModelFamily::kQwen2, 3584, 28, 28, 4, 128, 18944, 152064, false, 0},
    {"QwQ-32B", ModelFamily::kQwen2, 5120, 64, 40, 8, 128, 27648, 152064, false, 0},
    {"Qwen3-0.6B", ModelFamily::kQwen3, 1024, 28, 16, 8, 128, 3072, 151936, true, 596'049'920},
    {"Qwen3-1.7B", ModelFamily::kQwen3, 2048, 28, 16, 8, 128, 6144, 151936, true, 1'720'574'976},
    {"Qwen3-4B", ModelFamily::kQwen3, 2560, 36, 32, 8, 128, 9728, 151936, true, 0},
    {"Qwen3-8B", ModelFamily::kQwen3, 4096, 36, 32, 8, 128, 12288, 151936, false, 8'190'735'360},
};

class RealConfig : public ::testing::TestWithParam<Row> {};

TEST_P(RealConfig, HasTheSizesOfTheTable) {
  const Row& row = GetParam();
  const std::string path = std::string("configs/") + row.file + ".config.json";
  KU_REQUIRE_SHARED(path);
  const auto config = ParseModelConfig(ReadFile(Shared(path)));
  ASSERT_TRUE(config.ok()) << config.status().message();
  const DecoderConfig& d = config->decoder;
  EXPECT_EQ(config->family, row.family);
  EXPECT_EQ(d.hidden, row.hidden);
  EXPECT_EQ(d.layers, row.layers);
  EXPECT_EQ(d.heads, row.heads);
  EXPECT_EQ(d.kv_heads, row.kv_heads);
  EXPECT_EQ(d.head_dim, row.head_dim);
  EXPECT_EQ(d.intermediate, row.intermediate);
  EXPECT_EQ(d.vocab, row.vocab);
  EXPECT_EQ(d.tie_embeddings, row.tied);
  EXPECT_EQ(d.qkv_bias, row.family == ModelFamily::kQwen2);
  EXPECT_FALSE(d.o_bias);
  EXPECT_FALSE(d.mlp_bias);
  EXPECT_EQ(d.qk_norm, row.family == ModelFamily::kQwen3);
  EXPECT_EQ(d.rope.theta, 1e6);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(d.rope.scaling));
  EXPECT_EQ(d.dtype, DType::kBF16);
  EXPECT_FALSE(config->eos.empty());
  if (row.parameters != 0) {
    EXPECT_EQ(test::ParameterCount(*config), row.parameters);
  }
}

INSTANTIATE_TEST_SUITE_P(Config, RealConfig, ::testing::ValuesIn(kRows), [](const auto& info) {
  std::string name = info.param.file;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(Config, RefusesWhatItCannotRunByName) {
  KU_REQUIRE_SHARED("configs");
  const std::string list =
      "(supported: Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM, MistralForCausalLM, "
      "Qwen3VLForConditionalGeneration)";
  const std::pair<const char*, std::string> cases[] = {
      {"Qwen3-30B-A3B-GPTQ-Int4",
       "config.json: architecture \"Qwen3MoeForCausalLM\" is not supported " + list},
      {"Qwen3-235B-A22B-Instruct-2507",
       "config.json: architecture \"Qwen3MoeForCausalLM\" is not supported " + list},
      {"Qwen2.5-VL",
       "config.json: architecture \"Qwen2_5_VLForConditionalGeneration\" is not supported " + list},
  };
  for (const auto& [file, message] : cases) {
    const auto config =
        ParseModelConfig(ReadFile(Shared(std::string("configs/") + file + ".config.json")));
    ASSERT_FALSE(config.ok()) << file;
    EXPECT_EQ(config.status().code(), StatusCode::kModel);
    EXPECT_EQ(config.status().message(), message) << file;
  }
}

Json Tiny() {
  return Json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 40, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128, "rope_theta": 1000000.0, "hidden_act": "silu",
    "eos_token_id": [3, 4], "bos_token_id": null, "torch_dtype": "float16"})");
}

TEST(Config, ReadsOptionalKeys) {
  Json json = Tiny();
  auto config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->eos, (std::vector<int32_t>{3, 4}));
  EXPECT_FALSE(config->bos.has_value());
  EXPECT_EQ(config->decoder.dtype, DType::kF16);
  EXPECT_FALSE(config->decoder.tie_embeddings);
  json["attention_bias"] = true;
  json["hidden_size"] = 32.0;  // some exporters write whole numbers as floats
  json.erase("architectures");
  json.erase("head_dim");
  config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->decoder.qkv_bias);
  EXPECT_TRUE(config->decoder.o_bias);
  EXPECT_EQ(config->decoder.head_dim, 128) << "the default of transformers' Qwen3Config";
  json["model_type"] = "llama";
  json["mlp_bias"] = true;
  json["num_key_value_heads"] = nullptr;
  config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->decoder.head_dim, 8) << "hidden / heads";
  EXPECT_EQ(config->decoder.kv_heads, 4) << "as many as heads";
  EXPECT_TRUE(config->decoder.mlp_bias);
  EXPECT_FALSE(config->decoder.qk_norm);
}

// Each patch is merged into a good config; `key` must be named in the message.
TEST(Config, NamesTheKeyThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"hidden_size": -1})", "hidden_size"},
      {R"({"hidden_size": 0})", "hidden_size"},
      {R"({"hidden_size": 1e300})", "hidden_size"},
      {R"({"hidden_size": 18446744073709551615})", "hidden_size"},
      {R"({"hidden_size": 99999999999999999999999})", "hidden_size"},
      {R"({"hidden_size": 32.5})", "hidden_size"},
      {R"({"hidden_size": "32"})", "hidden_size"},
      {R"({"hidden_size": null})", "hidden_size is missing"},
      {R"({"vocab_size": 2147483648})", "vocab_size"},
      {R"({"num_hidden_layers": 1000000})", "num_hidden_layers"},
      {R"({"num_attention_heads": 0})", "num_attention_heads"},
      {R"({"num_key_value_heads": 3})", "num_key_value_heads"},
      {R"({"num_key_value_heads": 8})", "num_key_value_heads"},
      {R"({"head_dim": 15})", "head_dim"},
      {R"({"head_dim": 0})", "head_dim"},
      {R"({"head_dim": 100000})", "head_dim"},
      {R"({"intermediate_size": [40]})", "intermediate_size"},
      {R"({"rms_norm_eps": 0})", "rms_norm_eps"},
      {R"({"rms_norm_eps": -1e-6})", "rms_norm_eps"},
      {R"({"rms_norm_eps": "1e-6"})", "rms_norm_eps"},
      {R"({"hidden_act": "gelu"})", "hidden_act"},
      {R"({"use_sliding_window": 1})", "use_sliding_window"},
      {R"({"use_sliding_window": true, "sliding_window": 0})", "sliding_window"},
      {R"({"use_sliding_window": true, "max_window_layers": -1})", "max_window_layers"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "no use_sliding_window"},
      {R"({"layer_types": ["full_attention"]})", "layer_types is not a list of 2 names"},
      {R"({"layer_types": ["full_attention", "linear_attention"]})", "\"linear_attention\""},
      {R"({"architectures": ["LlamaForCausalLM"],
          "layer_types": ["full_attention", "sliding_attention"]})",
       "this architecture"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor"},
      {R"({"max_position_embeddings": 0})", "max_position_embeddings"},
      {R"({"rope_theta": 0})", "rope_theta"},
      {R"({"rope_theta": 1})", "rope_theta"},
      {R"({"rope_scaling": 4})", "rope_scaling"},
      {R"({"rope_scaling": {"rope_type": "mrope", "factor": 8}})", "\"mrope\" is not supported"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})", "low_freq_factor is missing"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
          "high_freq_factor": 4, "original_max_position_embeddings": 64}})",
       "high_freq_factor"},
      {R"({"rope_scaling": {"type": "dynamic"}})", "factor is missing"},
      {R"({"head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 8}})", "head_dim"},
      {R"({"rope_scaling": {"type": "linear", "factor": "8"}})", "factor"},
      {R"({"rope_scaling": {"type": "longrope", "long_factor": [1, 2]}})", "short_factor"},
      {R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
          "long_factor": [1, 1, 1, 1, 1, 1, 1, "2"]}})",
       "long_factor"},
      {R"({"rope_scaling": {"rope_type": "yarn"}})", "factor is missing"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 0.5}})", "factor"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 2}})",
       "beta_fast"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "mscale": "1"}})", "mscale"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4,
          "original_max_position_embeddings": -1}})",
       "original_max_position_embeddings"},
      {R"({"eos_token_id": -1})", "eos_token_id"},
      {R"({"eos_token_id": [1, "2"]})", "eos_token_id"},
      {R"({"bos_token_id": 4294967296})", "bos_token_id"},
      {R"({"torch_dtype": "float8_e4m3fn"})", "torch_dtype"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings"},
      {R"({"attention_bias": "no"})", "attention_bias"},
      {R"({"architectures": "Qwen3ForCausalLM"})", "architectures"},
      {R"({"architectures": []})", "architectures"},
      {R"({"architectures": null, "model_type": null})",
       "architectures and model_type are missing"},
      {R"({"quantization_config": 7})", "quantization"},
  };
  for (const auto& [patch, key] : cases) {
    Json json = Tiny();
    json.update(Json::parse(patch));
    const auto config = ParseModelConfig(json.dump());
    ASSERT_FALSE(config.ok()) << patch;
    const std::string message = config.status().message();
    EXPECT_EQ(config.status().code(), StatusCode::kModel);
    EXPECT_EQ(message.find("config.json: "), 0u) << message;
    EXPECT_NE(message.find(key), std::string::npos) << patch << " gave: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Config, SaysWhereJsonIsBroken) {
  const auto message = [](const std::string& text) {
    const auto config = ParseModelConfig(text);
    return config.ok() ? std::string("parsed") : config.status().message();
  };
  EXPECT_EQ(message(""), "config.json: invalid JSON at byte 1");
  EXPECT_EQ(message("{\"a\": 1,}"), "config.json: invalid JSON at byte 9");
  EXPECT_EQ(message("{\"rms_norm_eps\": NaN}"), "config.json: invalid JSON at byte 18");
  EXPECT_EQ(message("[]"), "config.json: not a JSON object");
  EXPECT_EQ(message(std::string(100000, '[')), "config.json: nested deeper than 64");
  EXPECT_EQ(message("{\"a\": \"\xff\"}"), "config.json: invalid JSON at byte 8");
}

TEST(Config, KeepsHostileNamesOnOneLine) {
  Json json = Tiny();
  json["architectures"] = {"a\nerror: \x1b[31m" + std::string(1000, 'x')};
  const auto config = ParseModelConfig(json.dump());
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().message().find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(config.status().message().size(), 400u);
  json = Tiny();
  json["hidden_size"] = "\x1b[31m\n" + std::string(300000, 'x');
  const std::string message = ParseModelConfig(json.dump()).status().message();
  EXPECT_NE(message.find("hidden_size is \"\\x1b[31m\\x0axxx"), std::string::npos) << message;
  EXPECT_LT(message.size(), 400u);
}

TEST(Config, ReadsYarnInBothForms) {
  Json json = Tiny();
  json["max_position_embeddings"] = 40960;
  const Json scaling = Json::parse(R"({"type": "yarn", "factor": 4.0,
                                       "original_max_position_embeddings": 32768})");
  json["rope_scaling"] = scaling;
  const auto old_form = ParseModelConfig(json.dump());
  ASSERT_TRUE(old_form.ok()) << old_form.status().message();
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = scaling;
  json["rope_parameters"].erase("type");
  json["rope_parameters"]["rope_type"] = "yarn";
  json["rope_parameters"]["rope_theta"] = 1000000;
  const auto new_form = ParseModelConfig(json.dump());
  ASSERT_TRUE(new_form.ok()) << new_form.status().message();
  for (const auto* config : {&old_form, &new_form}) {
    const RopeConfig& rope = (*config)->decoder.rope;
    EXPECT_EQ(rope.theta, 1e6);
    const auto* yarn = std::get_if<YarnRope>(&rope.scaling);
    ASSERT_NE(yarn, nullptr);
    EXPECT_EQ(yarn->original_max_position, 32768);
    EXPECT_NEAR(yarn->attention_factor, 1.138629436, 1e-9);
    EXPECT_EQ(rope.max_position, 131072) << "factor * original length";
  }
}

TEST(Config, ReadsLongRopeInBothForms) {
  Json json = Tiny();
  const Json factors = {1, 1, 1, 1, 1, 1, 1, 1};
  json["rope_scaling"] = {
      {"rope_type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}};
  json["original_max_position_embeddings"] = 64;  // as in Phi 3
  const auto beside = ParseModelConfig(json.dump());
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  json.erase("original_max_position_embeddings");
  json["rope_scaling"]["original_max_position_embeddings"] = 64;  // as in transformers 5
  const auto inside = ParseModelConfig(json.dump());
  ASSERT_TRUE(inside.ok()) << inside.status().message();
  for (const auto* config : {&beside, &inside}) {
    const auto* rope = std::get_if<LongRope>(&(*config)->decoder.rope.scaling);
    ASSERT_NE(rope, nullptr);
    EXPECT_EQ(rope->original_max_position, 64);
    EXPECT_NEAR(rope->attention_factor, std::sqrt(1 + std::log(2.0) / std::log(64.0)), 1e-12);
  }
}

// Windows of the three layers, as transformers 4.57 derives them.
TEST(Config, DerivesWhichLayersSlide) {
  const auto windows = [](const char* patch) {
    Json json = Tiny();
    json["num_hidden_layers"] = 3;
    json.update(Json::parse(patch));
    const auto config = ParseModelConfig(json.dump());
    EXPECT_TRUE(config.ok()) << config.status().message();
    std::vector<int> found;
    for (int i = 0; config.ok() && i < 3; ++i) found.push_back(config->decoder.window(i));
    return found;
  };
  using W = std::vector<int>;
  EXPECT_EQ(windows("{}"), (W{0, 0, 0}));
  EXPECT_EQ(windows(R"({"sliding_window": 8, "max_window_layers": 0})"), (W{0, 0, 0}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 8})"), (W{0, 0, 0}))
      << "28 layers see all";
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1})"),
            (W{0, 8, 8}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "max_window_layers": 2})"), (W{0, 0, 4096}));
  EXPECT_EQ(
      windows(R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})"),
      (W{0, 0, 0}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 0,
                        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})"),
            (W{8, 0, 8}));
  EXPECT_EQ(windows(R"({"architectures": ["LlamaForCausalLM"], "use_sliding_window": true,
                        "sliding_window": 8, "max_window_layers": 0})"),
            (W{0, 0, 0}))
      << "Llama's code knows no window";
  EXPECT_EQ(windows(R"({"architectures": ["MistralForCausalLM"], "sliding_window": 8})"),
            (W{8, 8, 8}));
  EXPECT_EQ(windows(R"({"architectures": ["MistralForCausalLM"]})"), (W{4096, 4096, 4096}));
  EXPECT_EQ(windows(R"({"architectures": ["MistralForCausalLM"], "sliding_window": null})"),
            (W{0, 0, 0}));
}

TEST(Config, KnowsModelsWithoutTheirHead) {
  Json json = Tiny();
  json["architectures"] = {"Qwen3Model"};
  const auto config = ParseModelConfig(json.dump());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->architecture, "Qwen3ForCausalLM");
}

TEST(GenerationConfig, ReadsTheOfficialFiles) {
  KU_REQUIRE_SHARED("configs");
  const auto qwen2 =
      ParseGenerationConfig(ReadFile(Shared("configs/Qwen2.5-7B-Instruct.generation_config.json")));
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().message();
  EXPECT_EQ(qwen2->eos, (std::vector<int32_t>{151645, 151643}));
  EXPECT_EQ(qwen2->do_sample, true);
  EXPECT_EQ(qwen2->sampling.at("temperature"), 0.7);
  EXPECT_EQ(qwen2->sampling.at("top_k"), 20);
  EXPECT_EQ(qwen2->sampling.at("top_p"), 0.8);
  EXPECT_EQ(qwen2->sampling.at("repetition_penalty"), 1.05);
  EXPECT_FALSE(qwen2->sampling.contains("min_p"));
  const auto qwen3 =
      ParseGenerationConfig(ReadFile(Shared("configs/Qwen3.generation_config.json")));
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().message();
  EXPECT_EQ(qwen3->sampling.at("temperature"), 0.6);
  EXPECT_EQ(qwen3->sampling.at("top_p"), 0.95);
  EXPECT_EQ(ParseGenerationConfig(R"({"top_k": -1})")->sampling.at("top_k"), -1) << "off";
}

TEST(GenerationConfig, NamesFieldsThatWouldChangeAnswers) {
  const auto unused = [](const char* text) {
    const auto config = ParseGenerationConfig(text);
    return config.ok() ? config->unused : config.status().message();
  };
  EXPECT_EQ(unused(R"({"num_beams": 4, "temperature": 0.7, "suppress_tokens": [5],
                       "no_repeat_ngram_size": 3})"),
            "num_beams, no_repeat_ngram_size, suppress_tokens");
  EXPECT_EQ(unused(R"({"num_beams": 1, "typical_p": 1.0, "suppress_tokens": [], "max_length": 20,
                       "forced_bos_token_id": null, "transformers_version": "4"})"),
            "");
}

TEST(GenerationConfig, RefusesValuesOutOfRange) {
  for (const char* text :
       {R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"top_k": -2})", R"({"min_p": "a"})",
        R"({"repetition_penalty": 0})", R"({"do_sample": 1})", R"({"eos_token_id": {}})", "7"}) {
    const auto config = ParseGenerationConfig(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.status().message().find("generation_config.json: "), 0u);
  }
}

}  // namespace
}  // namespace kuiper
