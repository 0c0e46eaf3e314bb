// Compares the stages of the vision encoder with those of Hugging Face transformers, on every
// device. Also tests what its bits do not depend on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "kuiper/model/convert.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/model.h"
#include "kuiper/model/vision_encoder.h"
#include "test/model/forward_runner.h"
#include "test/model/vision_goldens.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

using Grid = std::array<int, 3>;
constexpr Grid kGrids[] = {{1, 2, 2}, {1, 2, 10}, {1, 10, 2}, {1, 6, 4}, {3, 4, 2}};

std::vector<Device> Devices() {
  std::vector<Device> devices = {Device{}};
  for (const DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
    if (MakeOps({type, 0}, {}).ok()) devices.push_back({type, 0});
  }
  return devices;
}

int64_t NumPatches(const Grid& grid) {
  return int64_t{grid[0]} * grid[1] * grid[2];
}

// A loaded model and its ops.
struct Seeing {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;

  VisionEncoder& encoder() const { return *model->vision(); }
  // Reserves memory for passes of max_patches patches.
  Status Reserve(int max_patches) const {
    KU_RETURN_IF_ERROR(ops->Reserve(VisionEncoder::Limits(encoder().config(), max_patches)));
    return encoder().Reserve(max_patches);
  }
  std::vector<float> Download(const Tensor& rows) const {
    std::vector<float> values;
    for (int64_t r = 0; r < rows.rows(); ++r) {
      Tensor row = Tensor::Dense(nullptr, rows.dtype, {rows.shape[1]});
      std::vector<char> bytes(static_cast<size_t>(row.bytes()));
      row.data = bytes.data();
      Tensor from = rows.Rows(r, r + 1);
      from = Tensor::Dense(from.data, from.dtype, {rows.shape[1]}, from.device);
      ops->device().Download(row, from);
      ops->device().Sync();
      std::vector<float> floats(static_cast<size_t>(rows.shape[1]));
      EXPECT_TRUE(
          ConvertFloats(floats.data(), DType::kF32, bytes.data(), rows.dtype, rows.shape[1]));
      values.insert(values.end(), floats.begin(), floats.end());
    }
    return values;
  }
  // Returns all rows of all mergers, [tokens, (1 + K) * out_hidden].
  std::vector<float> Encode(const std::vector<float>& values, const Grid& grid,
                            const VisionProbe& probe = {}) const {
    const VisionEncoderConfig& c = encoder().config();
    const int64_t tokens = encoder().num_tokens(grid[0], grid[1], grid[2]);
    const int64_t width = int64_t{1 + c.num_deepstack()} * c.out_hidden;
    auto buffer = ops->device().Allocate(static_cast<size_t>(tokens * width) * sizeof(float));
    KU_CHECK(buffer.ok());
    const Tensor out =
        buffer->As(encoder().out_type(), {tokens, 1 + c.num_deepstack(), c.out_hidden});
    const Status encoded =
        encoder().Encode({.values = values, .t = grid[0], .h = grid[1], .w = grid[2]}, out, probe);
    EXPECT_TRUE(encoded.ok()) << encoded.message();
    return Download(Tensor::Dense(out.data, out.dtype, {tokens, width}, out.device));
  }
  std::vector<float> Picture(const std::string& name, const Grid& grid) const {
    return HashedValues(name, NumPatches(grid) * encoder().config().patch_values());
  }
};

Seeing LoadOn(const std::string& dir, Device device, std::optional<DType> dtype = {},
              OpsOptions options = {}) {
  Seeing s;
  options.num_threads = 2;
  auto ops = MakeOps(device, options);
  KU_CHECK(ops.ok(), ops.status().message());
  s.ops = std::move(ops).value();
  auto opened = OpenModel(dir);
  KU_CHECK(opened.ok(), opened.status().message());
  LoadOptions load;
  load.weights.dtype = dtype;
  auto model = LoadModel(std::move(opened).value(), *s.ops, load);
  KU_CHECK(model.ok(), model.status().message());
  s.model = std::move(model).value();
  return s;
}

std::string Golden(const std::string& name) {
  return Source("test/data/vision/" + name);
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

std::string StageName(VisionStage stage, int index) {
  switch (stage) {
    case VisionStage::kPatches:
      return "patches";
    case VisionStage::kEmbedding:
      return "embedding";
    case VisionStage::kBlock:
      return "block" + std::to_string(index);
    case VisionStage::kMerger:
      return "merger";
    case VisionStage::kDeepstack:
      return "deepstack" + std::to_string(index);
  }
  return "";
}

class VisionTest : public ::testing::TestWithParam<std::tuple<Device, const char*>> {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  std::string golden() const { return Golden(std::get<1>(GetParam())); }
  // Returns the differences from transformers' stages, over all grids, by the stage's name.
  std::map<std::string, double> Differences(const Seeing& s) const {
    const auto stages = SafetensorsFile::Open(golden() + "/stages.safetensors");
    KU_CHECK(stages.ok(), stages.status().message());
    std::map<std::string, double> found;
    for (const Grid& grid : kGrids) {
      const std::string key =
          std::to_string(grid[0]) + "x" + std::to_string(grid[1]) + "x" + std::to_string(grid[2]);
      s.Encode(s.Picture(key, grid), grid, [&](VisionStage stage, int index, const Tensor& rows) {
        const std::string name = key + "." + StageName(stage, index);
        found[name] = LargestDifference(s.Download(rows), FloatsOf(**stages, name));
      });
    }
    EXPECT_EQ(found.size(), (*stages)->header().tensors.size());
    return found;
  }
};
INSTANTIATE_TEST_SUITE_P(, VisionTest,
                         ::testing::Combine(::testing::ValuesIn(Devices()),
                                            ::testing::Values("heads-of-64", "heads-of-72")),
                         [](const auto& info) {
                           std::string name = DeviceName(std::get<0>(info.param)) +
                                              std::string("_") + std::get<1>(info.param);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

TEST_P(VisionTest, EveryStageIsThatOfTransformers) {
  const TempDir dir;
  WriteVisionCheckpoint(golden(), dir);
  for (const Determinism determinism : {Determinism::kOn, Determinism::kStrict}) {
    const Seeing s = LoadOn(dir.path(), device(), {}, {.determinism = determinism});
    ASSERT_TRUE(s.Reserve(24).ok());
    for (const auto& [name, difference] : Differences(s)) EXPECT_LE(difference, 1e-4) << name;
  }
}

// With weights of 16 bits: rounding errors of the stages, whose values reach 16.
TEST_P(VisionTest, RoundedWeightsStayNearTransformers) {
  const TempDir dir;
  WriteVisionCheckpoint(golden(), dir);
  for (const auto& [type, most] : {std::pair{DType::kF16, 0.06}, std::pair{DType::kBF16, 0.5}}) {
    const Seeing s = LoadOn(dir.path(), device(), type);
    ASSERT_TRUE(s.Reserve(24).ok());
    for (const auto& [name, difference] : Differences(s)) EXPECT_LE(difference, most) << name;
  }
}

// A frame's bits do not depend on other frames, or on the numbers of passes and panels.
TEST_P(VisionTest, FramesAreIndependent) {
  const TempDir dir;
  WriteVisionCheckpoint(golden(), dir);
  const std::optional<DType> type =
      device().type == DeviceType::kCPU ? std::nullopt : std::optional(DType::kBF16);
  const Seeing s = LoadOn(dir.path(), device(), type);
  const Grid video = {9, 10, 24}, frame = {1, 10, 24};  // 2160 patches, more than a panel
  const std::vector<float> values = s.Picture("video", video);
  ASSERT_TRUE(s.Reserve(static_cast<int>(NumPatches(video))).ok());
  const std::vector<float> whole = s.Encode(values, video);
  ASSERT_TRUE(s.Reserve(500).ok());
  EXPECT_TRUE(s.Encode(values, video) == whole) << "two frames a pass";
  ASSERT_TRUE(s.Reserve(240).ok());
  const auto per_frame = static_cast<int64_t>(values.size()) / video[0];
  const auto rows = static_cast<int64_t>(whole.size()) / video[0];
  for (const int i : {0, 4, 8}) {
    const std::vector<float> alone =
        s.Encode({values.begin() + i * per_frame, values.begin() + (i + 1) * per_frame}, frame);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + i * rows)) << i;
  }
  EXPECT_FALSE(std::equal(whole.begin(), whole.begin() + rows, whole.begin() + rows));
}

// The callback is called before each layer of each pass; when it returns false, encoding stops
// there.
TEST_P(VisionTest, StopsBetweenLayers) {
  const TempDir dir;
  WriteVisionCheckpoint(golden(), dir);
  const Seeing s = LoadOn(dir.path(), device());
  const VisionEncoderConfig& c = s.encoder().config();
  const Grid video = {3, 4, 6};
  const std::vector<float> values = s.Picture("video", video);
  ASSERT_TRUE(s.Reserve(24).ok());
  const int64_t tokens = s.encoder().num_tokens(video[0], video[1], video[2]);
  auto buffer = s.ops->device().Allocate(
      static_cast<size_t>(tokens * (1 + c.num_deepstack()) * c.out_hidden * sizeof(float)));
  ASSERT_TRUE(buffer.ok());
  const Tensor out =
      buffer->As(s.encoder().out_type(), {tokens, 1 + c.num_deepstack(), c.out_hidden});
  const size_t most = 3 * (c.depth + 1);
  for (const size_t allowed : {size_t{0}, size_t{1}, most / 2, most - 1, most}) {
    std::vector<double> shares;
    int num_blocks = 0;
    const auto count = [&](VisionStage stage, int, const Tensor&) {
      num_blocks += stage == VisionStage::kBlock ? 1 : 0;
    };
    const Status status =
        s.encoder().Encode({.values = values, .t = video[0], .h = video[1], .w = video[2]}, out,
                           count, [&](double done) {
                             shares.push_back(done);
                             return shares.size() <= allowed;
                           });
    s.ops->device().Sync();
    EXPECT_EQ(status.code(), allowed == most ? StatusCode::kOk : StatusCode::kUnavailable);
    EXPECT_EQ(shares.size(), std::min(allowed + 1, most));
    const int passes = static_cast<int>(allowed) / (c.depth + 1);
    EXPECT_EQ(num_blocks, passes * c.depth + static_cast<int>(allowed) % (c.depth + 1));
    EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
    EXPECT_EQ(shares.front(), 0);
    EXPECT_EQ(shares.back() == 1, allowed + 1 >= most);
  }
}

TEST_P(VisionTest, RefusesWhatDoesNotFit) {
  const TempDir dir;
  WriteVisionCheckpoint(golden(), dir);
  const Seeing s = LoadOn(dir.path(), device());
  ASSERT_TRUE(s.Reserve(24).ok());
  const auto refusal = [&](const Grid& grid) {
    const std::vector<float> values = s.Picture("any", grid);
    const Status status =
        s.encoder().Encode({.values = values, .t = grid[0], .h = grid[1], .w = grid[2]}, Tensor());
    EXPECT_EQ(status.code(), StatusCode::kInput);
    return status.message();
  };
  EXPECT_EQ(refusal({1, 2, 14}),
            "a picture of 2x14 patches is larger than the memory for the vision tower, 24 patches");
  EXPECT_EQ(refusal({1, 3, 4}), "a grid of 3x4 patches cannot be merged into tokens of 4");
}

// The allocated memory equals the planned one.
TEST(VisionWorkspaceTest, HasTheBytesOfThePlan) {
  const auto ops = MakeOps(Device{}, {.num_threads = 1});
  ASSERT_TRUE(ops.ok());
  VisionEncoderConfig c;
  c.hidden = 1152;
  c.heads = 16;
  c.intermediate = 4304;
  c.out_hidden = 4096;
  c.position_side = 48;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int patches : {4, 1024, 5000}) {
      const auto space = VisionWorkspace::Make((*ops)->device(), c, type, patches);
      ASSERT_TRUE(space.ok());
      const MemorySize bytes = VisionEncoder::WorkspaceBytes(c, type, patches);
      EXPECT_EQ(space->arena.bytes(), bytes.device);
      EXPECT_EQ(space->staging.bytes(), bytes.host);
    }
  }
  // For each patch and column: 4 bytes of the stream and 2 * (3 + 1) of queries, keys, values and
  // outputs.
  const size_t more = VisionEncoder::WorkspaceBytes(c, DType::kBF16, 20000).device -
                      VisionEncoder::WorkspaceBytes(c, DType::kBF16, 10000).device;
  EXPECT_NEAR(static_cast<double>(more) / 10000, 12 * 1152, 250);
}

// Without images the decoder equals a text model.
TEST(VisionModelTest, TextIsThatOfTransformers) {
  const auto logits = SafetensorsFile::Open(Golden("tiny/logits.safetensors"));
  ASSERT_TRUE(logits.ok());
  const auto prompts = nlohmann::json::parse(ReadFile(Golden("tiny/prompts.json")));
  const std::vector<int32_t> ids = prompts["text"]["ids"];
  for (const Device& device : Devices()) {
    const Seeing s = LoadOn(Golden("tiny"), device);
    ForwardRunner runner(*s.ops, s.model->decoder(), 64, {});
    EXPECT_LE(LargestDifference(runner.Append(ids), FloatsOf(**logits, "text")), 1e-4);
  }
}

// Some exports leave "model." out.
TEST(VisionModelTest, LoadsNamesWithoutModel) {
  const TempDir whole, bare;
  WriteVisionCheckpoint(Golden("heads-of-64"), whole);
  WriteVisionCheckpoint(Golden("heads-of-64"), bare, "model.");
  const Grid grid = {1, 6, 4};
  std::vector<std::vector<float>> rows;
  for (const TempDir* dir : {&whole, &bare}) {
    const Seeing s = LoadOn(dir->path(), Device{});
    ASSERT_TRUE(s.Reserve(24).ok());
    rows.push_back(s.Encode(s.Picture("any", grid), grid));
  }
  EXPECT_TRUE(rows[0] == rows[1]);
}

TEST(VisionModelTest, CountsTheTowerButNotAsReadByAStep) {
  const Seeing s = LoadOn(Golden("tiny"), Device{});
  const auto opened = OpenModel(Golden("tiny"));
  ASSERT_TRUE(opened.ok());
  const auto plan = opened->PlanWeights({});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(static_cast<int64_t>(plan->bytes), s.model->weight_bytes());
  DecoderWeights decoder;
  VisionWeights vision;
  int64_t text_values = 0, all_values = 0;
  for (const Weight& w : ListWeights(opened->config, &decoder, &vision).weights) {
    all_values += w.num_values();
    text_values += w.is_vision ? 0 : w.num_values();
  }
  EXPECT_EQ(s.model->weight_bytes(), 4 * all_values);
  EXPECT_EQ(s.model->decode_bytes(), 4 * text_values);  // the head is the embedding
  EXPECT_LT(text_values, all_values);
}

// Checkpoints with quantised decoders have a dense vision encoder.
TEST(VisionModelTest, StaysDenseBesideAQuantisedDecoder) {
  auto json = nlohmann::json::parse(ReadFile(Golden("heads-of-72/config.json")));
  json["text_config"].update(
      {{"hidden_size", 64}, {"intermediate_size", 64}, {"num_attention_heads", 2}});
  json["vision_config"]["out_hidden_size"] = 64;
  json["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4},
                                 {"group_size", 32},      {"zero_point", true},
                                 {"version", "gemm"},     {"modules_to_not_convert", {"visual"}}};
  const TempDir dir;
  WriteFile(dir / "config.json", json.dump());
  for (const Device& device : Devices()) {
    Seeing s;
    s.ops = std::move(MakeOps(device, {.num_threads = 2})).value();
    auto opened = MakeRandomModel(dir / "config.json");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const auto plan = opened->PlanWeights({});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(plan->quantized);
    auto model = LoadModel(std::move(opened).value(), *s.ops, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    s.model = std::move(model).value();
    EXPECT_TRUE(s.model->decoder().quantized());
    EXPECT_EQ(static_cast<int64_t>(plan->bytes), s.model->weight_bytes());
    ASSERT_TRUE(s.Reserve(24).ok());
    const Grid grid = {1, 6, 4};
    for (const float x : s.Encode(s.Picture("any", grid), grid)) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(VisionModelTest, SaysWhichTensorIsMissing) {
  const TempDir golden, dir;
  std::filesystem::copy(Golden("heads-of-64"), golden.path(),
                        std::filesystem::copy_options::recursive);
  auto json = nlohmann::json::parse(ReadFile(golden / "tensors.json"));
  json["tensors"].erase("model.visual.merger.norm.bias");
  WriteFile(golden / "tensors.json", json.dump());
  WriteVisionCheckpoint(golden.path(), dir);
  const auto ops = MakeOps(Device{}, {});
  ASSERT_TRUE(ops.ok());
  auto opened = OpenModel(dir.path());
  ASSERT_TRUE(opened.ok());
  const Status status = LoadModel(std::move(opened).value(), **ops, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kModel);
  EXPECT_NE(status.message().find("tensor \"model.visual.merger.norm.bias\" is missing"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace kuiper::test
