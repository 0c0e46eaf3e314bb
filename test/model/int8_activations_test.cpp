// Layers with integer weights: activations rounded to INT8, and weights that are copied.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/model/model.h"
#include "test/model/forward_runner.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper::test {
namespace {

const std::vector<int32_t> kIds = {5, 1, 60, 7,  7,  31, 2,  90, 11, 4,
                                   4, 8, 77, 63, 12, 9,  30, 2,  41};
constexpr WeightOptions kInt8{.dtype = {}, .int8_head = false, .int8_activations = true};

StatusOr<std::unique_ptr<Model>> Load(const std::string& name, Ops& ops,
                                      const WeightOptions& weights,
                                      MappedWeights mapped = MappedWeights::kRead) {
  KU_ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(Source("test/data/" + name)));
  LoadOptions options;
  options.weights = weights;
  options.mapped = mapped;
  return LoadModel(std::move(opened), ops, options);
}

std::unique_ptr<Ops> Cpu(int threads) {
  return MakeOps(Device{}, {.num_threads = threads}).value();
}

std::vector<float> LogitsOf(const std::string& name, const WeightOptions& weights) {
  const std::unique_ptr<Ops> ops = Cpu(2);
  const auto model = Load(name, *ops, weights);
  KU_CHECK(model.ok(), model.status().message());
  const int length = static_cast<int>(kIds.size());
  return ForwardRunner(*ops, (*model)->decoder(), length, {}).Append(kIds);
}

double RmsOf(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i], 2);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

// Activations with standard deviation s are rounded in steps of about 3 s / 127 in each group. The
// error is 0.7 % and propagates through the layers to a few percent of the logits.
TEST(Int8Activations, ChangeLogitsByTheirRounding) {
  for (const char* name : {"quantized/qwen3-awq", "quantized/qwen3-gptq8-row",
                           "quantized/qwen2-ct-w4-asym", "quantized/qwen2-ct-w8-row"}) {
    const std::vector<float> wide = LogitsOf(name, {}), narrow = LogitsOf(name, kInt8);
    ASSERT_EQ(narrow.size(), wide.size());
    const double rms = RmsOf(narrow, wide);
    EXPECT_GT(rms, 0) << name;
    EXPECT_LE(rms, 0.05 * RmsOf(wide, std::vector<float>(wide.size()))) << name;
  }
}

// Number of threads, and whether weights stay in the file.
constexpr std::pair<int, MappedWeights> kLoads[] = {{1, MappedWeights::kRead},
                                                    {3, MappedWeights::kRead},
                                                    {1, MappedWeights::kCopy},
                                                    {3, MappedWeights::kCopy}};

TEST(Int8Activations, PagesChunksThreadsAndCopiesDoNotChangeABit) {
  const int length = static_cast<int>(kIds.size());
  for (const char* name :
       {"quantized/qwen3-awq", "quantized/qwen2-ct-w4-asym", "quantized/qwen2-ct-w8-row"}) {
    const std::vector<float> expected = LogitsOf(name, kInt8);
    for (const auto& [threads, mapped] : kLoads) {
      const std::unique_ptr<Ops> ops = Cpu(threads);
      const auto model = Load(name, *ops, kInt8, mapped).value();
      for (const bool paged : {false, true}) {
        for (const int chunk : {1, 3, 8}) {
          ForwardRunner runner(*ops, model->decoder(), length, {.paged = paged, .page_size = 8});
          std::vector<float> logits;
          for (int begin = 0; begin < length; begin += chunk) {
            const auto end = kIds.begin() + std::min(begin + chunk, length);
            const std::vector<float> rows = runner.Append({kIds.begin() + begin, end});
            logits.insert(logits.end(), rows.begin(), rows.end());
          }
          EXPECT_EQ(logits, expected) << name << " paged " << paged << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(CopiedCodes, GiveTheLogitsOfMappedOnes) {
  const std::unique_ptr<Ops> ops = Cpu(2);
  const int length = static_cast<int>(kIds.size());
  for (const char* name : {"qwen3-ct-w4", "qwen2-ct-w4-asym", "qwen2-ct-w8-row"}) {
    const std::string path = std::string("quantized/") + name;
    const auto model = Load(path, *ops, {}, MappedWeights::kCopy).value();
    EXPECT_EQ(ForwardRunner(*ops, model->decoder(), length, {}).Append(kIds), LogitsOf(path, {}));
  }
}

TEST(Int8Activations, NeedCodesOfIntegersAndTheCpu) {
  const std::unique_ptr<Ops> cpu = Cpu(1);
  for (const char* name : {"goldens/qwen3-gqa2-d128-bf16", "quantized/qwen3-fp8"}) {
    const auto refused = Load(name, *cpu, kInt8);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("int8 is for weights of INT4 or INT8"),
              std::string::npos)
        << refused.status().message();
  }
  WeightOptions with_head = kInt8;
  with_head.int8_head = true;
  EXPECT_TRUE(Load("quantized/qwen3-fp8", *cpu, with_head).ok());
  const auto simt = MakeOps({DeviceType::kSimt, 0}, {});
  if (!simt.ok()) GTEST_SKIP() << simt.status().message();
  const auto refused = Load("quantized/qwen3-awq", **simt, kInt8);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("is for the CPU"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace kuiper::test
