// Quantised checkpoints that the formats' own packages packed (tools/make_quantized_goldens.py):
// compares the loaded values with the packed ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "kuiper/base/hash.h"
#include "kuiper/model/file_weights.h"
#include "kuiper/model/model.h"
#include "kuiper/model/pack.h"
#include "test/log_capture.h"
#include "test/model/model_files.h"
#include "test/model/quantized_values.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::vector<std::string> Goldens() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Source("test/data/quantized"))) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

std::string Golden(const std::string& name) {
  return Source("test/data/quantized/" + name);
}

struct Loaded {
  std::unique_ptr<Ops> ops;
  FileWeights* source = nullptr;
  std::unique_ptr<Model> model;
};

Loaded Load(const std::string& path, Device device = {}, const WeightOptions& weights = {}) {
  Loaded loaded;
  loaded.ops = MakeOps(device, {.num_threads = 2}).value();
  auto opened = OpenModel(path);
  KU_CHECK(opened.ok(), opened.status().message());
  loaded.source = static_cast<FileWeights*>(opened->source.get());
  LoadOptions options;
  options.weights = weights;
  auto model = LoadModel(std::move(opened).value(), *loaded.ops, options);
  KU_CHECK(model.ok(), model.status().message());
  loaded.model = std::move(model).value();
  return loaded;
}

Status LoadStatus(const std::string& path) {
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  auto opened = OpenModel(path);
  if (!opened.ok()) return opened.status();
  return LoadModel(std::move(opened).value(), *ops, {}).status();
}

// The matrices of the layers by the names of their modules.
std::vector<std::pair<std::string, WeightMatrix>> MatricesOf(const Model& model) {
  std::vector<std::pair<std::string, WeightMatrix>> all;
  int layer = 0;
  for (const LayerWeights& w : model.decoder().weights().layers) {
    const std::string prefix = "model.layers." + std::to_string(layer++) + ".";
    const std::pair<const Linear&, std::vector<const char*>> linears[] = {
        {w.qkv, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
        {w.o, {"self_attn.o_proj"}},
        {w.gate_up, {"mlp.gate_proj", "mlp.up_proj"}},
        {w.down, {"mlp.down_proj"}}};
    for (const auto& [linear, names] : linears) {
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_TRUE(linear.parts[i].weight.Fits(linear.in, model.decoder().weights().embed.device));
        all.emplace_back(prefix + names[i], linear.parts[i].weight);
      }
    }
  }
  return all;
}

std::string HashOf(const std::vector<float>& values) {
  return HashText(Fnv1a64OfText(BytesOf(values)));
}

class QuantizedGolden : public ::testing::TestWithParam<std::string> {};

void ExpectSameValues(const Model& model, const Json& hashes) {
  size_t found = 0;
  for (const auto& [name, matrix] : MatricesOf(model)) {
    if (!hashes.contains(name)) {
      EXPECT_FALSE(matrix.format.is_quantized()) << name;
      continue;
    }
    EXPECT_TRUE(matrix.format.is_quantized()) << name;
    EXPECT_EQ(HashOf(ValuesOf(matrix)), hashes[name]) << name;
    ++found;
  }
  EXPECT_EQ(found, hashes.size());
}

TEST_P(QuantizedGolden, HasTheValuesThatWerePacked) {
  const Json hashes = Json::parse(ReadFile(Golden(GetParam()) + "/hashes.json"));
  const LogCapture log;
  const Loaded loaded = Load(Golden(GetParam()));
  ExpectSameValues(*loaded.model, hashes);
  EXPECT_EQ(log.text().find("without"), std::string::npos) << "all tensors are used" << log.text();
  const TempDir dir;
  ASSERT_TRUE(PackModel(Golden(GetParam()), dir / "m.bin", {}).ok());
  ExpectSameValues(*Load(dir / "m.bin").model, hashes);
}

TEST_P(QuantizedGolden, IsCountedAsItIsPlanned) {
  for (const bool int8_head : {false, true}) {
    const WeightOptions options{.dtype = {}, .int8_head = int8_head};
    const auto opened = OpenModel(Golden(GetParam())).value();
    const auto plan = opened.PlanWeights(options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Loaded loaded = Load(Golden(GetParam()), {}, options);
    const Model& model = *loaded.model;
    EXPECT_EQ(static_cast<int64_t>(plan->bytes), model.weight_bytes());
    const bool reads_table = model.config().decoder.tie_embeddings && !int8_head;
    EXPECT_EQ(model.decode_bytes(),
              model.weight_bytes() - (reads_table ? 0 : model.decoder().weights().embed.bytes()));
    int64_t packed = 0, values = 0;
    for (const auto& [name, matrix] : MatricesOf(model)) {
      if (!matrix.format.is_quantized()) continue;
      packed += matrix.values.bytes() + matrix.scales.bytes();
      packed += matrix.zeros.empty() ? 0 : matrix.zeros.bytes();
      values += matrix.rows() * matrix.values.shape[1] * 8 / matrix.format.code_bits();
    }
    // For 32 weights there is a scale of 16 bits and a zero point of 8.
    const double bits = 8.0 * static_cast<double>(packed) / static_cast<double>(values);
    EXPECT_LE(bits, GetParam().find('8') == std::string::npos ? 4.75 : 8.5);
  }
}

TEST_P(QuantizedGolden, IsUsedInPlaceWhereTheFileHasTheForm) {
  const Loaded loaded = Load(Golden(GetParam()));
  for (const auto& [name, matrix] : MatricesOf(*loaded.model)) {
    for (const char* suffix : {".weight_packed", ".weight"}) {
      const auto item = loaded.source->items().find(name + suffix);
      if (item == loaded.source->items().end()) continue;
      EXPECT_EQ(matrix.values.data, item->second.file->Bytes(*item->second.entry).data()) << name;
    }
  }
}

TEST_P(QuantizedGolden, IsTheSameOnEveryDevice) {
  const Loaded cpu = Load(Golden(GetParam()));
  const auto expected = MatricesOf(*cpu.model);
  for (const DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
    if (!MakeOps({type, 0}, {}).ok()) continue;
    const Loaded other = Load(Golden(GetParam()), {type, 0});
    const auto matrices = MatricesOf(*other.model);
    ASSERT_EQ(matrices.size(), expected.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      const InRows in_rows(expected[i].second);
      const WeightMatrix &a = matrices[i].second, &b = in_rows.matrix();
      EXPECT_EQ(a.format, b.format);
      EXPECT_TRUE(Download(*other.ops, a.values) == Download(*cpu.ops, b.values));
      EXPECT_TRUE(Download(*other.ops, a.scales) == Download(*cpu.ops, b.scales));
      EXPECT_TRUE(Download(*other.ops, a.zeros) == Download(*cpu.ops, b.zeros));
    }
  }
}

TEST_P(QuantizedGolden, KeepsScalesWhateverTheTypeOfTheModel) {
  const Loaded stored = Load(Golden(GetParam()));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Loaded loaded = Load(Golden(GetParam()), {}, {.dtype = dtype});
    EXPECT_EQ(loaded.model->config().decoder.dtype, dtype);
    const auto matrices = MatricesOf(*loaded.model), expected = MatricesOf(*stored.model);
    for (size_t i = 0; i < matrices.size(); ++i) {
      const WeightMatrix &a = matrices[i].second, &b = expected[i].second;
      EXPECT_EQ(a.format.numeric_type(), dtype);
      if (!a.format.is_quantized()) continue;
      EXPECT_EQ(a.format.scale_type, b.format.scale_type);
      EXPECT_TRUE(ValuesOf(a) == ValuesOf(b));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Quantized, QuantizedGolden, ::testing::ValuesIn(Goldens()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A copy of a golden whose config.json, and tensors by name, may be changed.
class Changed {
 public:
  explicit Changed(const std::string& name) {
    fs::copy(Golden(name), dir_ / "m", fs::copy_options::recursive);
  }
  std::string path() const { return dir_ / "m"; }
  std::string file() const { return path() + "/model.safetensors"; }

  void Config(const std::function<void(Json&)>& change) {
    Json json = Json::parse(ReadFile(path() + "/config.json"));
    change(json);
    WriteFile(path() + "/config.json", json.dump());
  }
  // Changes the header, whose length must stay: names and shapes must keep their lengths.
  void Header(const std::string& from, const std::string& to) {
    std::string bytes = ReadFile(file());
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ASSERT_EQ(from.size(), to.size());
    WriteFile(file(), bytes.replace(at, from.size(), to));
  }
  void Bytes(const std::string& tensor, size_t at, const std::string& to) {
    std::string bytes = ReadFile(file());
    const auto source = FileWeights::Open(path()).value();
    const FileWeights::Item& item = source->items().at(tensor);
    const auto begin = static_cast<size_t>(item.file->header().data_begin + item.entry->begin);
    WriteFile(file(), bytes.replace(begin + at, to.size(), to));
  }

 private:
  TempDir dir_;
};

void ExpectRefused(const Changed& model, const std::string& message) {
  const Status status = LoadStatus(model.path());
  EXPECT_EQ(status.code(), StatusCode::kModel);
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message() << "\nexpected: " << message;
}

TEST(Quantized, RefusesTensorsThatContradictTheConfiguration) {
  const struct {
    const char* golden;
    Json change;  // change of quantization_config
    const char* message;
  } cases[] = {
      {"qwen3-awq",
       {{"group_size", 64}},
       R"(.scales" has shape [2, 64], config.json (4 bits and group_size 64) asks for [1, 64])"},
      {"qwen3-awq",
       {{"modules_to_not_convert", {"model.layers.0.self_attn.q_proj"}}},
       R"(q_proj.qweight" is quantised, though quantization_config of config.json excepts it)"},
      {"qwen2-awq-excluded",
       {{"modules_to_not_convert", nullptr}},
       R"(layers.1.mlp.gate_proj.weight" is not quantised, though)"},
      {"qwen2-awq-excluded",
       {{"modules_to_not_convert", {"re:.*1\\.mlp\\.up_proj$"}}},
       R"(layers.1.mlp.gate_proj.weight" is not quantised, though)"},
      {"qwen3-awq",
       {{"zero_point", false}},
       R"(.qzeros" has a zero other than 8, but config.json says that weights are symmetric)"},
      {"qwen2-gptq4", {{"bits", 8}}, R"(.qweight" has shape [8, 64], config.json (8 bits)"},
      {"qwen2-gptq4",
       {{"group_size", -1}},
       R"(has shape [2, 64], config.json (4 bits and a group per row) asks for [1, 64])"},
      {"qwen2-gptq4",
       {{"quant_method", "awq"}, {"version", "gemm"}},
       R"(.qweight" has shape [8, 64], config.json)"},
      {"qwen3-gptq8-row", {{"checkpoint_format", "gptq_v2"}}, "has a zero other than 128"},
      {"qwen2-ct-w4-asym",
       {{"config_groups",
         {{"g",
           {{"weights",
             {{"num_bits", 8},
              {"type", "int"},
              {"strategy", "group"},
              {"group_size", 32},
              {"symmetric", false}}}}}}}},
       R"(.weight_packed" has shape [64, 8], config.json (8 bits)"},
  };
  for (const auto& c : cases) {
    Changed model(c.golden);
    model.Config([&](Json& json) { json["quantization_config"].update(c.change); });
    ExpectRefused(model, c.message);
  }
}

TEST(Quantized, RefusesTensorsThatLie) {
  const std::string up = "model.layers.0.mlp.up_proj";
  {
    Changed model("qwen2-gptq4");
    model.Bytes(up + ".g_idx", 4, {"\1\0\0\0", 4});
    ExpectRefused(model, R"(up_proj.g_idx" puts column 1 into group 1: columns out of order)");
  }
  {
    Changed model("qwen3-ct-w4");
    model.Bytes(up + ".weight_shape", 0, std::string(1, '\x61'));
    ExpectRefused(model, R"(up_proj.weight_shape" says 97 where config.json asks for 96)");
  }
  for (const char nan : {'\x7F', '\xFF'}) {
    Changed model("qwen3-fp8");
    model.Bytes(up + ".weight", 160 * 160 - 1, std::string(1, nan));
    ExpectRefused(model, R"(up_proj.weight" has values that are not numbers (NaN))");
  }
  {
    Changed model("qwen3-awq");
    model.Header(up + ".qzeros", up + ".qzeroz");
    ExpectRefused(model, R"(tensor "model.layers.0.mlp.up_proj.qzeros" is missing)");
  }
  {
    Changed model("qwen3-ct-w4");
    model.Header(up + ".weight_shape", up + ".weight_g_idx");
    ExpectRefused(model, R"(up_proj.weight_g_idx" puts columns into groups out of order)");
  }
  {
    Changed model("qwen3-fp8");
    model.Header(up + ".weight_scale_inv", up + ".weight_scale_xxx");
    ExpectRefused(model, R"(up_proj.weight_scale_inv" is missing)");
  }
}

TEST(Quantized, RefusesPartsThatAreQuantisedInDifferentWays) {
  Changed model("qwen2-awq-excluded");
  const std::string prefix = "model.layers.1.mlp.up_proj.";
  // Swaps the dense up_proj of the second layer and the packed one of the first.
  std::string bytes = ReadFile(model.file());
  size_t changed = 0;
  for (size_t at = 0; (at = bytes.find(".mlp.up_proj.", at)) != std::string::npos; ++at) {
    bytes[at - 1] = bytes[at - 1] == '0' ? '1' : '0';
    ++changed;
  }
  ASSERT_EQ(changed, 4u);
  WriteFile(model.file(), bytes);
  model.Config([](Json& json) {
    json["quantization_config"]["modules_to_not_convert"] = {"up_proj", "layers.1.mlp"};
  });
  ExpectRefused(model,
                R"("model.layers.0.mlp.gate_proj.weight" and "model.layers.0.mlp.up_proj.weight" )"
                "are quantised in different ways");
}

TEST(Quantized, RefusesScalesOfAnFp8Cache) {
  for (const char* value : {"\x3F\x80", "\x40\x00"}) {
    const TempDir dir;
    fs::copy(Golden("qwen3-ct-w4"), dir / "m", fs::copy_options::recursive);
    fs::rename(dir / "m/model.safetensors", dir / "m/a.safetensors");
    const std::string name = "model.layers.0.self_attn.k_scale";
    WriteFile(
        dir / "m/b.safetensors",
        SafetensorsBytes("{\"" + name + R"(":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})",
                         std::string{value[1], value[0]}));
    Json map = {{name, "b.safetensors"}};
    const auto source = FileWeights::Open(dir / "m/a.safetensors").value();
    for (const auto& [tensor, item] : source->items()) map[tensor] = "a.safetensors";
    WriteFile(dir / "m/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    const Status status = LoadStatus(dir / "m");
    if (value[0] == '\x3F') {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_NE(status.message().find("scales the KV cache by other than 1.0"), std::string::npos)
          << status.message();
    }
  }
}

TEST(Quantized, KeepsScalesWhenAModelIsPackedInAnotherType) {
  const TempDir dir;
  PackOptions options;
  options.dtype = DType::kBF16;
  ASSERT_TRUE(PackModel(Golden("qwen3-awq"), dir / "m.bin", options).ok());
  const Json hashes = Json::parse(ReadFile(Golden("qwen3-awq") + "/hashes.json"));
  const Loaded loaded = Load(dir / "m.bin");
  ExpectSameValues(*loaded.model, hashes);
  EXPECT_EQ(loaded.model->config().decoder.dtype, DType::kBF16);
}

}  // namespace
}  // namespace kuiper::test
