// Host memory after loading: weights that are uploaded or converted pass through in pieces, and the
// pages they were read from are released.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/model/manifest.h"
#include "kuiper/model/model.h"
#include "kuiper/model/weight_source.h"
#include "kuiper/ops/ops.h"
#include "test/model/model_files.h"

namespace kuiper {
namespace {

constexpr int64_t kHidden = 512, kIntermediate = 2048, kVocab = 8192, kLayers = 4;

// A model of 76 MB whose weights are a hole in the sparse file.
class SparseModel {
 public:
  SparseModel() {
    test::WriteFile(
        dir_ / "config.json",
        R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 512,
            "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 8192,
            "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "tie_word_embeddings": true, "hidden_act": "silu", "torch_dtype": "float32"})");
    Add("model.embed_tokens.weight", {kVocab, kHidden});
    Add("model.norm.weight", {kHidden});
    for (int i = 0; i < kLayers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      Add(layer + "input_layernorm.weight", {kHidden});
      Add(layer + "post_attention_layernorm.weight", {kHidden});
      Add(layer + "self_attn.q_norm.weight", {128});
      Add(layer + "self_attn.k_norm.weight", {128});
      Add(layer + "self_attn.q_proj.weight", {512, kHidden});
      Add(layer + "self_attn.k_proj.weight", {256, kHidden});
      Add(layer + "self_attn.v_proj.weight", {256, kHidden});
      Add(layer + "self_attn.o_proj.weight", {kHidden, 512});
      Add(layer + "mlp.gate_proj.weight", {kIntermediate, kHidden});
      Add(layer + "mlp.up_proj.weight", {kIntermediate, kHidden});
      Add(layer + "mlp.down_proj.weight", {kHidden, kIntermediate});
    }
    std::string header = "{" + header_ + "}";
    header.resize((header.size() + 63) / 64 * 64, ' ');  // aligned data can stay in the file
    const std::string bytes = test::SafetensorsBytes(header, "");
    test::WriteFile(file(), bytes);
    data_begin_ = static_cast<int64_t>(bytes.size());
    std::filesystem::resize_file(file(), bytes.size() + data_bytes_);
  }

  // Sets the embeddings [kVocab, kHidden].
  void Write(const std::vector<float>& embeddings) const {
    std::fstream out(file(), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(data_begin_);
    out.write(reinterpret_cast<const char*>(embeddings.data()),
              static_cast<std::streamsize>(embeddings.size() * sizeof(float)));
  }

  const std::string& path() const { return dir_.path(); }
  std::string file() const { return dir_ / "model.safetensors"; }

 private:
  void Add(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t bytes = 4;
    std::ostringstream entry;
    entry << (header_.empty() ? "" : ",") << '"' << name << R"(":{"dtype":"F32","shape":[)";
    for (size_t i = 0; i < shape.size(); ++i) {
      bytes *= shape[i];
      entry << (i == 0 ? "" : ",") << shape[i];
    }
    entry << R"(],"data_offsets":[)" << data_bytes_ << ',' << data_bytes_ + bytes << "]}";
    header_ += entry.str();
    data_bytes_ += bytes;
  }

  test::TempDir dir_;
  std::string header_;
  int64_t data_bytes_ = 0, data_begin_ = 0;
};

// Returns the file-mapped memory of this process in bytes; -1 if the system does not report it.
int64_t FileRss() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8)) * 1024;
  }
  return -1;
}

using Range = std::pair<const char*, const char*>;

// Records which tensors were requested and which bytes were released.
class RecordingSource : public WeightSource {
 public:
  explicit RecordingSource(std::unique_ptr<WeightSource> files) : files_(std::move(files)) {}

  const ModelFiles& files() const override { return files_->files(); }
  StatusOr<Tensor> Get(const Weight& weight) override {
    auto tensor = files_->Get(weight);
    if (tensor.ok()) tensors_[weight.name] = {weight.is_matrix(), RangeOf(*tensor)};
    return tensor;
  }
  std::vector<std::string> Unused() const override { return files_->Unused(); }
  void WillNeed(const void* data, size_t bytes) override { files_->WillNeed(data, bytes); }
  void DontNeed(const void* data, size_t bytes) override {
    const char* begin = static_cast<const char*>(data);
    dropped_.emplace_back(begin, begin + bytes);
    files_->DontNeed(data, bytes);
  }
  int64_t file_bytes() const override { return files_->file_bytes(); }

  // Returns the released ranges by address. Neighbours are joined, so that a gap or a byte released
  // twice is detected.
  std::vector<Range> dropped() const { return Joined(dropped_); }
  std::vector<Range> tensors(bool vectors_too) const {
    std::vector<Range> ranges;
    for (const auto& [name, tensor] : tensors_) {
      if (tensor.is_matrix || vectors_too) ranges.push_back(tensor.range);
    }
    return Joined(ranges);
  }

 private:
  struct Entry {
    bool is_matrix;
    Range range;
  };
  static Range RangeOf(const Tensor& t) {
    const char* begin = static_cast<const char*>(t.data);
    return {begin, begin + t.bytes()};
  }
  static std::vector<Range> Joined(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end());
    std::vector<Range> joined;
    for (const Range& range : ranges) {
      if (!joined.empty() && joined.back().second == range.first) {
        joined.back().second = range.second;
      } else {
        joined.push_back(range);
      }
    }
    return joined;
  }

  std::unique_ptr<WeightSource> files_;
  std::map<std::string, Entry> tensors_;
  std::vector<Range> dropped_;
};

struct Case {
  Device device;
  std::optional<DType> dtype;
  MappedWeights mapped = MappedWeights::kRead;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{Device{}, DType::kF16}, {Device{}, {}, MappedWeights::kCopy}};
  for (DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
    if (MakeOps({type, 0}, {}).ok()) cases.push_back({{type, 0}, std::nullopt});
  }
  return cases;
}

TEST(LoadingTest, NeverHoldsMoreOfTheFilesThanOnePiece) {
  constexpr int64_t kPiece = int64_t{8} << 20;
  if (FileRss() < 0) GTEST_SKIP() << "the system does not tell the resident pages of files";
  const SparseModel model;
  for (const Case& c : Cases()) {
    const auto ops = MakeOps(c.device, {.num_threads = 1}).value();
    const int64_t before = FileRss();
    int64_t most = 0;
    LoadOptions options;
    options.weights.dtype = c.dtype;
    options.mapped = c.mapped;
    options.progress = [&](int64_t, int64_t) { most = std::max(most, FileRss() - before); };
    const auto loaded = LoadModel(OpenModel(model.path()).value(), *ops, options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_LT(most, kPiece + (int64_t{4} << 20)) << DeviceName(c.device);
  }
}

TEST(LoadingTest, GivesEveryCopiedByteBackOnce) {
  const SparseModel model;
  for (const Case& c : Cases()) {
    const auto ops = MakeOps(c.device, {.num_threads = 1}).value();
    OpenedModel opened = OpenModel(model.path()).value();
    auto recording = std::make_unique<RecordingSource>(std::move(opened.source));
    const RecordingSource& source = *recording;
    opened.source = std::move(recording);
    LoadOptions options;
    options.weights.dtype = c.dtype;
    options.mapped = c.mapped;
    const auto loaded = LoadModel(std::move(opened), *ops, options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    // Unconverted tensors stay in the file if kernels can read them there.
    const bool copies_vectors =
        c.device.type != DeviceType::kCPU || c.mapped == MappedWeights::kCopy;
    EXPECT_GT(source.dropped().size(), 0u);
    EXPECT_EQ(source.dropped(), source.tensors(copies_vectors)) << DeviceName(c.device);
  }
}

TEST(LoadingTest, GivesNothingBackOfWhatStaysInTheFile) {
  const SparseModel model;
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  OpenedModel opened = OpenModel(model.path()).value();
  auto recording = std::make_unique<RecordingSource>(std::move(opened.source));
  const RecordingSource& source = *recording;
  opened.source = std::move(recording);
  const auto loaded = LoadModel(std::move(opened), *ops, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(source.dropped().empty());
}

TEST(LoadingTest, CopiesBeginWhereHugePagesDo) {
  const SparseModel model;
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  LoadOptions options;
  options.mapped = MappedWeights::kCopy;
  const auto loaded = LoadModel(OpenModel(model.path()).value(), *ops, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Tensor& gate = (*loaded)->decoder().weights().layers[0].gate_up.parts[0].weight.values;
  ASSERT_GE(gate.bytes(), int64_t{2} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(gate.data) % (size_t{2} << 20), 0u);
}

TEST(LoadingTest, WhatStaysInTheFileIsMappedWhenItIsLoaded) {
  if (FileRss() < 0) GTEST_SKIP() << "the system does not tell the resident pages of files";
  const SparseModel model;
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  const int64_t before = FileRss();
  OpenedModel opened = OpenModel(model.path()).value();
  const int64_t bytes = opened.source->file_bytes();
  const auto loaded = LoadModel(std::move(opened), *ops, {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_GT(FileRss() - before, bytes - (int64_t{1} << 20));
}

// Pieces are divided among threads in unequal parts. Returns all rows of the embedding by looking
// them up.
std::vector<float> Embeddings(Ops& ops, const DecoderWeights& weights) {
  std::vector<float> rows(kVocab * kHidden);
  std::vector<TokenRef> ids;
  for (int32_t id = 0; id < kVocab; ++id) ids.push_back(TokenRef::Known(id));
  ops.Run(EmbedArgs{.out = Tensor::Dense(rows.data(), DType::kF32, {kVocab, kHidden}),
                    .table = weights.embed,
                    .ids = Tensor::Dense(ids.data(), DType::kI32, {kVocab}),
                    .is_table_prepacked = weights.is_embed_prepacked()});
  return rows;
}

TEST(LoadingTest, ManyThreadsCopyWhatOneCopies) {
  const SparseModel model;
  std::vector<float> embeddings(kVocab * kHidden);
  for (size_t i = 0; i < embeddings.size(); ++i) embeddings[i] = static_cast<float>(i % 65521);
  model.Write(embeddings);
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  LoadOptions options;
  options.mapped = MappedWeights::kCopy;
  options.num_threads = 3;
  const auto loaded = LoadModel(OpenModel(model.path()).value(), *ops, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(Embeddings(*ops, (*loaded)->decoder().weights()) == embeddings);

  options.weights.dtype = DType::kF16;
  for (const size_t at : {size_t{0}, embeddings.size() / 2, embeddings.size() - 1}) {
    std::vector<float> large(embeddings.size());
    large[at] = 65536;
    model.Write(large);
    const auto refused = LoadModel(OpenModel(model.path()).value(), *ops, options);
    ASSERT_FALSE(refused.ok()) << at;
    EXPECT_EQ(refused.status().code(), StatusCode::kModel);
  }
}

TEST(LoadingTest, ReadsNothingThatIsLeftForLater) {
  if (FileRss() < 0) GTEST_SKIP() << "the system does not tell the resident pages of files";
  const SparseModel model;
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  const int64_t before = FileRss();
  LoadOptions options;
  options.mapped = MappedWeights::kLeave;
  const auto loaded = LoadModel(OpenModel(model.path()).value(), *ops, options);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_LT(FileRss() - before, int64_t{4} << 20);
}

}  // namespace
}  // namespace kuiper
