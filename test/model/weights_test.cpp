#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "kuiper/base/half.h"
#include "kuiper/model/file_weights.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/pack.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;
using test::BytesOf;
using test::SafetensorsBytes;
using test::Source;
using test::TempDir;
using test::WriteFile;

const std::string kHeaderA = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
const std::string kHeaderB = R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

std::string FileA() {
  return SafetensorsBytes(kHeaderA, BytesOf<float>({1, 2, 3, 4}));
}
std::string FileB() {
  return SafetensorsBytes(kHeaderB, BytesOf<float>({5}));
}
std::string Golden(const std::string& name) {
  return Source("test/data/goldens/" + name);
}

Weight Named(const std::string& name, const std::vector<int64_t>& shape) {
  return {.name = name, .shape = shape};
}

Status OpenStatus(const std::string& path) {
  return FileWeights::Open(path).status();
}

TEST(Weights, MissingModelsAreNamed) {
  const TempDir dir;
  EXPECT_EQ(OpenStatus(dir / "x.bin").message(), "model file not found: " + (dir / "x.bin"));
  EXPECT_EQ(OpenStatus(dir / "x.bin").code(), StatusCode::kModel);
  EXPECT_EQ(OpenStatus(dir.path()).message(),
            dir.path() +
                " has no config.json (expected a Hugging Face model directory or a .bin packed by "
                "kuiper_pack)");
  WriteFile(dir / "config.json", "{}");
  EXPECT_EQ(OpenStatus(dir.path() + "/").message(),
            dir.path() + " has no model.safetensors and no model.safetensors.index.json");
  WriteFile(dir / "m-Q4.gguf", "GGUF");
  EXPECT_NE(OpenStatus(dir.path()).hint().find("m-Q4.gguf is a GGUF file"), std::string::npos);
  std::filesystem::remove(dir / "config.json");
  EXPECT_NE(OpenStatus(dir.path()).hint().find("m-Q4.gguf is a GGUF file"), std::string::npos);
  std::filesystem::remove(dir / "m-Q4.gguf");
  WriteFile(dir / "config.json", "{}");
  WriteFile(dir / "pytorch_model.bin", "PK");
  EXPECT_NE(OpenStatus(dir.path()).hint().find("converted to safetensors"), std::string::npos);
}

TEST(Weights, OpensDirectoriesAndSingleFiles) {
  const TempDir dir;
  WriteFile(dir / "config.json", "{\"a\":1}");
  WriteFile(dir / "generation_config.json", "{\"b\":2}");
  WriteFile(dir / "model.safetensors", FileA());
  for (const std::string& path : {dir.path(), dir.path() + "/", dir / "model.safetensors"}) {
    const auto source = FileWeights::Open(path);
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_EQ((*source)->files().config_json, "{\"a\":1}");
    EXPECT_EQ((*source)->files().generation_config_json, "{\"b\":2}");
    EXPECT_EQ((*source)->files().dir, dir.path());
    EXPECT_EQ((*source)->files().tokenizer_json, "");
    EXPECT_EQ((*source)->file_bytes(), static_cast<int64_t>(FileA().size()));
    EXPECT_TRUE((*source)->items().contains("a"));
    EXPECT_FALSE((*source)->items().contains("b"));
  }
}

TEST(Weights, ConfigurationsAreBoundedAndNeverWaitedFor) {
  const TempDir dir;
  const std::string config = "[" + std::string(17 << 20, ' ') + "]";
  WriteFile(dir / "m.bin",
            SafetensorsBytes(R"({"__metadata__":{"kuiper.config":")" + config + "\"}}", ""));
  EXPECT_EQ(OpenStatus(dir / "m.bin").message(),
            (dir / "m.bin") + ": its configuration is larger than 16 MB");
  WriteFile(dir / "config.json", config);
  EXPECT_EQ(OpenStatus(dir.path()).message(), (dir / "config.json") + " is larger than 16 MB");
  fs::remove(dir / "config.json");
  ASSERT_EQ(mkfifo((dir / "config.json").c_str(), 0600), 0);
  EXPECT_EQ(OpenStatus(dir.path()).message(), (dir / "config.json") + " is not a regular file");
}

TEST(Weights, GetChecksNameShapeAndType) {
  const TempDir dir;
  WriteFile(dir / "config.json", "{}");
  const std::string header = R"({"w":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
                             R"("q":{"dtype":"I8","shape":[2],"data_offsets":[8,10]}})";
  WriteFile(dir / "model.safetensors", SafetensorsBytes(header, std::string(10, '\0')));
  const auto source = FileWeights::Open(dir.path());
  ASSERT_TRUE(source.ok());
  const auto w = (*source)->Get(Named("w", {2, 2}));
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(w->dtype, DType::kF16);
  EXPECT_EQ((*source)->Get(Named("v", {2})).status().message(),
            dir.path() + ": tensor \"v\" is missing");
  EXPECT_EQ(
      (*source)->Get(Named("w", {2, 3})).status().message(),
      (dir / "model.safetensors") + ": tensor \"w\" has shape [2, 2], config.json asks for [2, 3]");
  EXPECT_EQ((*source)->Get(Named("w", {4})).status().code(), StatusCode::kModel);
  EXPECT_EQ((*source)->Get(Named("q", {2})).status().message(),
            (dir / "model.safetensors") +
                ": tensor \"q\" has type I8, which is not supported (supported: F32, F16, BF16)");
}

TEST(Weights, ShardsAreChecked) {
  const TempDir dir;
  WriteFile(dir / "config.json", "{}");
  const std::string index = dir / "model.safetensors.index.json";
  const auto with_map = [&](const std::string& map) {
    WriteFile(index, "{\"metadata\":{\"total_size\":20},\"weight_map\":" + map + "}");
    return OpenStatus(dir.path());
  };
  WriteFile(dir / "s1.safetensors", FileA());
  const Status missing = with_map(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_EQ(missing.message(), "model file not found: " + (dir / "s2.safetensors") +
                                   " (listed in model.safetensors.index.json)");
  WriteFile(dir / "s2.safetensors", FileB());
  EXPECT_TRUE(with_map(R"({"a":"s1.safetensors","b":"s2.safetensors"})").ok());
  EXPECT_TRUE(with_map(R"({"b":"s1.safetensors","a":"s2.safetensors"})").ok()) << "both are there";
  EXPECT_TRUE(with_map(R"({"a":"s1.safetensors","c":"s2.safetensors"})").ok()) << "see CheckListed";
  WriteFile(dir / "s3.safetensors", FileA());
  EXPECT_EQ(with_map(R"({"a":"s1.safetensors","b":"s3.safetensors"})").message(),
            (dir / "s3.safetensors") + ": tensor \"a\" is also in " + (dir / "s1.safetensors"));
  for (const char* bad : {R"({"a":"../s1.safetensors"})", R"({"a":"/etc/passwd"})", R"({"a":".."})",
                          R"({"a":""})", R"({"a":"x\u0000y"})", R"({"a":7})"}) {
    EXPECT_NE(with_map(bad).message().find("is not a plain file name"), std::string::npos) << bad;
  }
  EXPECT_EQ(with_map("[]").message(), index + ": weight_map is missing");
  EXPECT_EQ(with_map("{}").message(), index + ": weight_map is missing");
  WriteFile(index, "[");
  EXPECT_EQ(OpenStatus(dir.path()).message(), index + ": invalid JSON at byte 2");
  WriteFile(dir / "s2.safetensors", FileB().substr(0, FileB().size() - 1));
  const Status truncated = with_map(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_EQ(truncated.message().find((dir / "s2.safetensors") + " is truncated: header needs "), 0u)
      << truncated.message();
  EXPECT_NE(truncated.message().find("first tensor past the end: \"b\""), std::string::npos);
}

// Returns name, shape and bytes of every tensor in a model.
std::map<std::string, std::string> Contents(const FileWeights& weights) {
  std::map<std::string, std::string> contents;
  for (const auto& [name, item] : weights.items()) {
    std::string text = item.entry->type->name;
    for (int64_t extent : item.entry->shape) text.append(1, ',').append(std::to_string(extent));
    contents[name] = text + ":" + std::string(item.file->Bytes(*item.entry));
  }
  return contents;
}

TEST(Pack, KeepsEveryTensorAndText) {
  const TempDir dir;
  for (const char* name : {"qwen3-gqa5-d16-sharded-f32", "qwen2-gqa7-d8-bf16"}) {
    const std::string out = dir / (std::string(name) + ".bin");
    const Status packed = PackModel(Golden(name), out, {});
    ASSERT_TRUE(packed.ok()) << packed.message();
    const auto original = FileWeights::Open(Golden(name));
    const auto copy = FileWeights::Open(out);
    ASSERT_TRUE(original.ok()) << original.status().message();
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    EXPECT_EQ(Contents(**original), Contents(**copy));
    EXPECT_EQ((*copy)->files().config_json, (*original)->files().config_json);
    for (const auto& [tensor, item] : (*copy)->items()) {
      const auto address = reinterpret_cast<uintptr_t>(item.file->Bytes(*item.entry).data());
      EXPECT_EQ(address % (item.entry->type->bits / 8), 0u) << tensor;
    }
    // Packing a container gives the same container.
    ASSERT_TRUE(PackModel(out, out + ".again", {}).ok());
    EXPECT_EQ(test::ReadFile(out), test::ReadFile(out + ".again"));
  }
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
  }
}

TEST(Pack, CarriesTheTokenizer) {
  const TempDir dir;
  fs::copy(Golden("qwen2-gqa7-d8-f32"), dir / "m", fs::copy_options::recursive);
  WriteFile(dir / "m/tokenizer.json", R"({"text": "ẞ\u0000"})");
  WriteFile(dir / "m/tokenizer_config.json", "{}");
  WriteFile(dir / "m/generation_config.json", R"({"top_k": 20})");
  ASSERT_TRUE(PackModel(dir / "m", dir / "m.bin", {}).ok());
  fs::remove_all(dir / "m");
  const auto copy = FileWeights::Open(dir / "m.bin");
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ((*copy)->files().tokenizer_json, R"({"text": "ẞ\u0000"})");
  EXPECT_EQ((*copy)->files().tokenizer_config_json, "{}");
  EXPECT_EQ((*copy)->files().generation_config_json, R"({"top_k": 20})");
}

TEST(Pack, ConvertsAndSaysSoInTheConfig) {
  const TempDir dir;
  PackOptions options;
  options.dtype = DType::kBF16;
  ASSERT_TRUE(PackModel(Golden("qwen3-gqa2-d128-f32"), dir / "b.bin", options).ok());
  const auto packed = FileWeights::Open(dir / "b.bin");
  const auto original = FileWeights::Open(Golden("qwen3-gqa2-d128-f32"));
  ASSERT_TRUE(packed.ok() && original.ok());
  ASSERT_EQ((*packed)->items().size(), (*original)->items().size());
  for (const auto& [name, item] : (*original)->items()) {
    const std::string_view from = item.file->Bytes(*item.entry);
    const FileWeights::Item& other = (*packed)->items().at(name);
    const std::string_view to = other.file->Bytes(*other.entry);
    ASSERT_STREQ(other.entry->type->name, "BF16");
    ASSERT_EQ(other.entry->shape, item.entry->shape);
    for (size_t i = 0; i < to.size() / 2; ++i) {
      float value;
      uint16_t bits;
      std::memcpy(&value, from.data() + 4 * i, 4);
      std::memcpy(&bits, to.data() + 2 * i, 2);
      // Half a unit in the last place of 8 significant bits.
      ASSERT_NEAR(ToFloat(BFloat16{bits}), value, std::abs(value) / 256) << name << " " << i;
    }
  }
  EXPECT_NE((*packed)->files().config_json.find("bfloat16"), std::string::npos);
  EXPECT_EQ((*packed)->files().config_json.find("float32"), std::string::npos);
}

TEST(Pack, RefusesValuesThatDoNotFit) {
  const TempDir dir;
  fs::create_directory(dir / "m");
  fs::copy(Golden("qwen2-gqa7-d8-f32") + "/config.json", dir / "m/config.json");
  WriteFile(dir / "m/model.safetensors",
            SafetensorsBytes(kHeaderA, BytesOf<float>({1, 2, 3, 1e30f})));
  PackOptions options;
  options.dtype = DType::kF16;
  const Status status = PackModel(dir / "m", dir / "m.bin", options);
  EXPECT_EQ(status.code(), StatusCode::kModel);
  EXPECT_EQ(status.message(), "tensor \"a\" has values too large for FP16");
  EXPECT_FALSE(fs::exists(dir / "m.bin")) << "nothing half-written stays";
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1);
}

TEST(Pack, ReportsAnOutputThatCannotBeWritten) {
  const TempDir dir;
  const Status status = PackModel(Golden("qwen2-gqa7-d8-f32"), dir / "no/such/dir.bin", {});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(),
            "cannot write " + (dir / "no/such/dir.bin") + ": No such file or directory");
}

}  // namespace
}  // namespace kuiper
