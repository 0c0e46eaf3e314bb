// Weights without files: what the loader makes of them on every device.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "kuiper/model/model.h"
#include "kuiper/model/opened_model.h"
#include "kuiper/ops/ops.h"
#include "model_files.h"
#include "test/model/quantized_values.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

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
  std::vector<std::vector<char>> all = {Download(**ops, w.embed), Download(**ops, w.final_norm)};
  for (const LayerWeights& layer : w.layers) {
    for (const Tensor& norm : {layer.attn_norm, layer.mlp_norm, layer.q_norm, layer.k_norm}) {
      all.push_back(Download(**ops, norm));
    }
    for (const Linear& linear : {layer.qkv, layer.o, layer.gate_up, layer.down}) {
      for (int i = 0; i < linear.num_parts; ++i) {
        all.push_back(Download(**ops, linear.parts[i].weight.values));
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
