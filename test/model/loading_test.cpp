// What loading leaves in host memory: weights that go elsewhere (to a device, or converted) pass
// through in pieces, and the pages they were read from are given back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kuiper/model/model.h"
#include "test/model/model_files.h"

namespace kuiper {
namespace {

constexpr int64_t kHidden = 512, kIntermediate = 2048, kVocab = 8192, kLayers = 4;

// A model of 76 MB whose weights are a hole in the file.
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
    const std::string bytes = test::SafetensorsBytes("{" + header_ + "}", "");
    test::WriteFile(file(), bytes);
    std::filesystem::resize_file(file(), bytes.size() + data_bytes_);
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
  int64_t data_bytes_ = 0;
};

// Pages of files in this process, in bytes; -1 where the system does not say.
int64_t FileRss() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssFile:")) return std::stoll(line.substr(8)) * 1024;
  }
  return -1;
}

// The share of the file that is in the page cache.
double CachedShare(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const size_t bytes = std::filesystem::file_size(path);
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(map, bytes, pages.data()), 0);
  munmap(map, bytes);
  close(fd);
  const auto cached = std::count_if(pages.begin(), pages.end(), [](int p) { return (p & 1) != 0; });
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

// Whether this file system has a page cache that can be told to forget a file.
bool CanForget(const std::string& path) {
  test::ReadFile(path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
  return CachedShare(path) < 0.1;
}

struct Case {
  Device device;
  std::optional<DType> dtype;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{Device{}, DType::kF16}};
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
    options.dtype = c.dtype;
    options.progress = [&](int64_t, int64_t) { most = std::max(most, FileRss() - before); };
    const auto loaded = LoadModel(OpenModel(model.path()).value(), *ops, options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_LT(most, kPiece + (int64_t{4} << 20)) << DeviceName(c.device);
  }
}

TEST(LoadingTest, DropsThePageCacheBehindIt) {
  const SparseModel model;
  if (!CanForget(model.file())) GTEST_SKIP() << "this file system keeps what was read";
  for (const Case& c : Cases()) {
    const auto ops = MakeOps(c.device, {.num_threads = 1}).value();
    LoadOptions options;
    options.dtype = c.dtype;
    const auto loaded = LoadModel(OpenModel(model.path()).value(), *ops, options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_LT(CachedShare(model.file()), 0.1) << DeviceName(c.device);
  }
}

}  // namespace
}  // namespace kuiper
