// Random weights without files: the loader's result on every device.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "kuiper/kernels/cpu/linear/cpu_linear.h"
#include "kuiper/model/model.h"
#include "kuiper/model/opened_model.h"
#include "kuiper/ops/ops.h"
#include "model_files.h"
#include "test/model/quantized_values.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

// Returns the rows of a dense matrix from the panels made by CpuLinear::Prepack: [32 rows, 16 with
// AVX2] [K block][lane, four bits reversed][step][row in the panel] words of four bytes. A word is
// an FP32 element or a pair of BF16. In FP16, eight rows have the elements of one step, then of the
// next.
std::vector<char> RowsOf(const std::vector<char>& panels, DType dtype, int64_t in) {
  constexpr int64_t kLanes = 16, kWord = 4;
  const int64_t panel_rows = cpu::CpuLinear::KernelName() == "AVX2" ? 16 : 32;
  const bool is_half = dtype == DType::kF16;
  const int64_t fold_bytes = is_half ? 4096 : 8192, piece = is_half ? 2 : kWord;
  const int64_t together = is_half ? 8 : panel_rows;  // rows stored together
  const int64_t row_bytes = static_cast<int64_t>(DTypeBytes(dtype)) * in;
  std::vector<char> rows(panels.size());
  const char* from = panels.data();
  const auto take = [&](char* panel, int64_t column) {
    for (int64_t first = 0; first < panel_rows; first += together) {
      for (int64_t at = column; at < column + kLanes * kWord; at += kLanes * piece) {
        for (int64_t row = first; row < first + together; ++row, from += piece) {
          std::memcpy(panel + row * row_bytes + at, from, static_cast<size_t>(piece));
        }
      }
    }
  };
  for (size_t panel = 0; panel < rows.size();
       panel += static_cast<size_t>(panel_rows * row_bytes)) {
    for (int64_t fold = 0; fold < row_bytes; fold += fold_bytes) {
      const int64_t bytes = std::min(fold_bytes, row_bytes - fold);
      for (int place = 0; place < kLanes; ++place) {
        const int lane = (place & 1) * 8 + (place & 2) * 2 + (place & 4) / 2 + place / 8;
        for (int64_t step = 0; step < bytes; step += kLanes * kWord) {
          take(rows.data() + panel, fold + step + lane * piece);
        }
      }
    }
  }
  return rows;
}

// Returns all weights of the bench's tiny shapes, in the order of their use.
std::vector<std::vector<char>> LoadedOn(Device device, DType dtype) {
  auto ops = MakeOps(device, {.num_threads = 2});
  KU_CHECK(ops.ok(), ops.status().message());
  auto opened = MakeRandomModel(Source("tools/bench_models/tiny.json"));
  KU_CHECK(opened.ok(), opened.status().message());
  LoadOptions options;
  options.weights.dtype = dtype;
  const auto model = LoadModel(std::move(opened).value(), **ops, options);
  KU_CHECK(model.ok(), model.status().message());
  const DecoderWeights& w = (*model)->decoder().weights();
  const std::vector<char> embed = Download(**ops, w.embed);
  std::vector<std::vector<char>> all = {
      w.is_embed_prepacked() ? RowsOf(embed, dtype, w.embed.shape[1]) : embed,
      Download(**ops, w.final_norm)};
  for (const LayerWeights& layer : w.layers) {
    for (const Tensor& norm : {layer.attn_norm, layer.mlp_norm, layer.q_norm, layer.k_norm}) {
      all.push_back(Download(**ops, norm));
    }
    for (const Linear& linear : {layer.qkv, layer.o, layer.gate_up, layer.down}) {
      for (int i = 0; i < linear.num_parts; ++i) {
        const WeightMatrix& matrix = linear.parts[i].weight;
        const std::vector<char> bytes = Download(**ops, matrix.values);
        all.push_back(matrix.is_prepacked ? RowsOf(bytes, dtype, linear.in) : bytes);
      }
    }
  }
  return all;
}

TEST(RandomWeightsTest, AreTheSameOnEveryDevice) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto on_cpu = LoadedOn(Device{}, dtype);
    std::set<std::vector<char>> matrices;
    for (const std::vector<char>& bytes : on_cpu) {
      if (bytes.size() > 2048) {
        EXPECT_TRUE(matrices.insert(bytes).second) << "two are equal";
      }
    }
    EXPECT_EQ(matrices.size(), 1 + 4 * 7u);
    for (const DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
      if (!MakeOps({type, 0}, {}).ok()) continue;
      EXPECT_TRUE(LoadedOn({type, 0}, dtype) == on_cpu) << DeviceName({type, 0});
    }
  }
}

TEST(RandomWeightsTest, NamesWhatIsNoConfiguration) {
  const TempDir dir;
  EXPECT_EQ(MakeRandomModel(dir / "absent.json").status().code(), StatusCode::kModel);
  WriteFile(dir / "config.json", "{");
  EXPECT_EQ(MakeRandomModel(dir / "config.json").status().code(), StatusCode::kModel);
}

}  // namespace
}  // namespace kuiper::test
