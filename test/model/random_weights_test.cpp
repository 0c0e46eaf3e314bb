// Weights without files: what the loader makes of them on every device.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "kuiper/kernels/cpu/cpu_linear.h"
#include "kuiper/model/model.h"
#include "kuiper/model/opened_model.h"
#include "kuiper/ops/ops.h"
#include "model_files.h"
#include "test/model/quantized_values.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

// The rows of a BF16 matrix that CpuLinear::Prepack has made panels of: [32 rows, 16 with
// AVX2][fold block of 8,192 bytes][lane, four bits reversed][step][row in the panel] pairs of
// elements.
std::vector<char> RowsOf(const std::vector<char>& panels, int64_t in) {
  constexpr int64_t kLanes = 16, kPair = 4, kFoldBytes = 8192;
  const int64_t kRows = cpu::CpuLinear::KernelName() == "AVX2" ? 16 : 32;
  const int64_t row_bytes = 2 * in;
  std::vector<char> rows(panels.size());
  const char* from = panels.data();
  for (int64_t panel = 0; panel < static_cast<int64_t>(rows.size()); panel += kRows * row_bytes) {
    for (int64_t fold = 0; fold < row_bytes; fold += kFoldBytes) {
      const int64_t steps = std::min(kFoldBytes, row_bytes - fold) / (kLanes * kPair);
      for (int place = 0; place < kLanes; ++place) {
        const int lane = (place & 1) * 8 + (place & 2) * 2 + (place & 4) / 2 + place / 8;
        for (int64_t step = 0; step < steps; ++step) {
          const int64_t column = fold + (step * kLanes + lane) * kPair;
          for (int64_t row = 0; row < kRows; ++row, from += kPair) {
            std::memcpy(&rows[panel + row * row_bytes + column], from, kPair);
          }
        }
      }
    }
  }
  return rows;
}

// All weights of the bench's tiny shapes, in the order of their use.
std::vector<std::vector<char>> LoadedOn(Device device, DType dtype) {
  auto ops = MakeOps(device, {.num_threads = 2});
  KU_CHECK(ops.ok(), ops.status().message());
  auto opened = InventModel(Source("tools/bench_models/tiny.json"));
  KU_CHECK(opened.ok(), opened.status().message());
  LoadOptions options;
  options.weights.dtype = dtype;
  const auto model = LoadModel(std::move(opened).value(), **ops, options);
  KU_CHECK(model.ok(), model.status().message());
  const DecoderWeights& w = (*model)->decoder().weights();
  const std::vector<char> embed = Download(**ops, w.embed);
  std::vector<std::vector<char>> all = {
      w.is_embed_prepacked() ? RowsOf(embed, w.embed.shape[1]) : embed,
      Download(**ops, w.final_norm)};
  for (const LayerWeights& layer : w.layers) {
    for (const Tensor& norm : {layer.attn_norm, layer.mlp_norm, layer.q_norm, layer.k_norm}) {
      all.push_back(Download(**ops, norm));
    }
    for (const Linear& linear : {layer.qkv, layer.o, layer.gate_up, layer.down}) {
      for (int i = 0; i < linear.num_parts; ++i) {
        const WeightMatrix& matrix = linear.parts[i].weight;
        const std::vector<char> bytes = Download(**ops, matrix.values);
        all.push_back(matrix.is_prepacked ? RowsOf(bytes, linear.in) : bytes);
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
  EXPECT_EQ(InventModel(dir / "absent.json").status().code(), StatusCode::kModel);
  WriteFile(dir / "config.json", "{");
  EXPECT_EQ(InventModel(dir / "config.json").status().code(), StatusCode::kModel);
}

}  // namespace
}  // namespace kuiper::test
