// The files of a checkpoint while it is written: parts, shards of them, and the files that a killed
// run leaves.
#include "kuiper/quant/checkpoint_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/model/model_files.h"
#include "test/temp_dir.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;

constexpr char kFingerprint[] = "a model, a text and settings";
constexpr int64_t kLimit = 100;

// I8 tensors by part: their names and sizes.
const std::vector<std::vector<std::pair<std::string, int>>> kParts = {
    {{"a", 60}, {"b", 40}}, {{"c", 20}, {"d", 200}}, {{"e", 8}, {"f", 90}}, {{"g", 2}}};
// They fill shards in order; "d" is larger than a shard may be.
const std::vector<std::set<std::string>> kShards = {{"a", "b"}, {"c"}, {"d"}, {"e", "f", "g"}};

std::unique_ptr<CheckpointDirectory> Open(const std::string& path, int64_t limit = kLimit) {
  auto directory =
      CheckpointDirectory::Open(path, kFingerprint, static_cast<int>(kParts.size()), limit);
  EXPECT_TRUE(directory.ok()) << directory.status().message();
  return std::move(directory).value();
}

void WriteParts(CheckpointDirectory& directory) {
  for (size_t part = 0; part < kParts.size(); ++part) {
    std::vector<PartTensor> tensors;
    for (const auto& [name, size] : kParts[part]) {
      tensors.push_back(
          InMemory({name, FindSafetensorsType("I8"), {size}, std::string(size, name[0])}));
    }
    const int number = static_cast<int>(part);
    ASSERT_TRUE(directory.WritePart(number, std::move(tensors), 0.5 * number).ok());
  }
}

Status Finish(CheckpointDirectory& directory, int64_t* bytes) {
  const test::TempDir source;
  return directory.Finish(source.path(), "{}", bytes);
}

std::map<std::string, std::string> FilesOf(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    files[entry.path().filename().string()] = test::ReadFile(entry.path().string());
  }
  return files;
}

std::string ShardName(size_t shard) {
  return "model-0000" + std::to_string(shard + 1) + "-of-00004.safetensors";
}

TEST(CheckpointDirectoryTest, PartsBecomeShardsOfAtMostTheLimit) {
  const test::TempDir dir;
  const auto directory = Open(dir.path());
  WriteParts(*directory);
  int64_t bytes = 0;
  ASSERT_TRUE(Finish(*directory, &bytes).ok());
  EXPECT_EQ(bytes, 420);
  std::map<std::string, std::string> files = FilesOf(dir.path());
  EXPECT_EQ(files.size(), kShards.size() + 2);
  EXPECT_EQ(files.at("config.json"), "{}");
  const auto index = nlohmann::json::parse(files.at("model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 420);
  EXPECT_EQ(index["weight_map"].size(), 7u);
  for (size_t shard = 0; shard < kShards.size(); ++shard) {
    const auto file = SafetensorsFile::Open(dir / ShardName(shard)).value();
    EXPECT_EQ(file->header().tensors.size(), kShards[shard].size());
    for (const std::string& name : kShards[shard]) {
      EXPECT_EQ(index["weight_map"][name], ShardName(shard));
      const std::string_view content = file->Bytes(file->header().tensors.at(name));
      EXPECT_EQ(content, std::string(content.size(), name[0]));
    }
  }
}

TEST(CheckpointDirectoryTest, OneShardNeedsNoIndex) {
  const test::TempDir dir;
  const auto directory = Open(dir.path(), 420);
  WriteParts(*directory);
  int64_t bytes = 0;
  ASSERT_TRUE(Finish(*directory, &bytes).ok());
  EXPECT_EQ(FilesOf(dir.path()).size(), 2u);
  const auto file = SafetensorsFile::Open(dir / "model.safetensors").value();
  EXPECT_EQ(file->header().tensors.size(), 7u);
}

// Tests each state of the folder between two steps of Finish: some shards are written, and the
// parts they contain are removed. The last of these parts may still exist.
TEST(CheckpointDirectoryTest, ContinuesAfterAKillBetweenShards) {
  const test::TempDir whole, begun;
  {
    const auto directory = Open(begun.path());
    WriteParts(*directory);
  }
  fs::copy(begun.path(), whole.path());
  int64_t bytes = 0;
  ASSERT_TRUE(Finish(*Open(whole.path()), &bytes).ok());
  const auto expected = FilesOf(whole.path());
  const std::string state = test::ReadFile(begun / "quantize.state") + "shards 4 7\n";
  // Parts that are completely in the first shards.
  constexpr int kPartsOfShards[] = {0, 1, 1, 2, 4};
  for (size_t num_shards = 0; num_shards <= kShards.size(); ++num_shards) {
    for (const int num_kept : {0, 1}) {
      const test::TempDir dir;
      fs::copy(begun.path(), dir.path());
      test::WriteFile(dir / "quantize.state", state);
      for (size_t i = 0; i < num_shards; ++i) fs::copy(whole / ShardName(i), dir / ShardName(i));
      for (int i = 0; i < kPartsOfShards[num_shards] - num_kept; ++i) {
        fs::remove(dir / ("quantize.part" + std::to_string(i)));
      }
      const auto directory = Open(dir.path());
      for (int i = 0; i < 4; ++i) EXPECT_EQ(directory->FinishedPart(i), 0.5 * i);
      ASSERT_TRUE(Finish(*directory, &bytes).ok()) << num_shards;
      EXPECT_EQ(bytes, 420);
      EXPECT_EQ(FilesOf(dir.path()), expected) << num_shards;
    }
  }
}

TEST(CheckpointDirectoryTest, MissingFilesAreFoundOut) {
  const test::TempDir dir;
  {
    const auto directory = Open(dir.path());
    WriteParts(*directory);
  }
  fs::remove(dir / "quantize.part1");
  EXPECT_FALSE(Open(dir.path())->FinishedPart(1).has_value()) << "it is made again";
  test::WriteFile(dir / "quantize.state", test::ReadFile(dir / "quantize.state") + "shards 4 7\n");
  int64_t bytes = 0;
  const Status failed = Finish(*Open(dir.path()), &bytes);
  EXPECT_EQ(failed.code(), StatusCode::kInternal);
  EXPECT_NE(failed.message().find("are missing"), std::string::npos) << failed.message();
}

}  // namespace
}  // namespace kuiper
