// The tensor core attention of the CUDA backend over 8-bit keys and values: compares with naive
// loops, and tests what a row's bits may depend on. Queries are FP16 and BF16; attention_test.cpp
// covers the kernels for FP32 queries.
#include "attention_test_util.h"

namespace kuiper::test {
namespace {

class AttentionMmaBytesTest : public AttentionTestBase {
 protected:
  std::vector<float> Run(Ops& ops, DType activation, const Shape& shape,
                         const std::vector<Seq>& seqs, int page, const Mask& mask = {}) const {
    return Attend(ops, Cache(ops, dtype(), shape, seqs, page, 1), dtype(), shape, seqs, mask, false,
                  activation);
  }
  // INT8 keys and values (element times scale) are rounded once more, and so are softmax weights.
  void ExpectNaive(Ops& ops, DType activation, const Shape& shape, const std::vector<Seq>& seqs,
                   const Mask& mask = {}) const {
    const double rounding = RoundingError(activation);
    ExpectNear(Run(ops, activation, shape, seqs, 16, mask),
               Naive(activation, dtype(), DType::kF32, shape, seqs, mask), 2e-5 + 4 * rounding,
               rounding,
               Describe(shape) + ", " + Describe(mask) + ", queries " + DTypeName(activation));
  }
};

std::vector<std::tuple<Device, DType>> GpusAndCodes() {
  std::vector<std::tuple<Device, DType>> all;
  for (const Device& device : DevicesUnderTest()) {
    if (device.type == DeviceType::kCPU) continue;
    for (const DType codes : {DType::kI8, DType::kF8E4M3}) all.emplace_back(device, codes);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(, AttentionMmaBytesTest, ::testing::ValuesIn(GpusAndCodes()),
                         DeviceTypeTestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionMmaBytesTest);

constexpr DType kActivations[] = {DType::kF16, DType::kBF16};

TEST_P(AttentionMmaBytesTest, TakesTheTensorCores) {
  const auto ops = Make(AttentionKind::kAuto);
  for (const DType activation : kActivations) {
    for (const int head_dim : {64, 128}) {
      EXPECT_EQ(ops->AttentionFor(activation, KvFormat::Of(dtype()), head_dim),
                AttentionKind::kFlash2);
    }
    EXPECT_EQ(ops->AttentionFor(activation, KvFormat::Of(dtype()), 80), AttentionKind::kFlash1);
  }
}

// Prompts, chunks and single rows in one batch, with lengths around the ends of tiles and splits.
TEST_P(AttentionMmaBytesTest, MatchesNaive) {
  const std::vector<Seq> seqs = {{1, 1, 1},    {2, 5, 65},    {3, 1, 193}, {4, 17, 17},
                                 {5, 70, 130}, {6, 127, 127}, {7, 1, 129}};
  const auto ops = Make(AttentionKind::kFlash2);
  for (const DType activation : kActivations) {
    for (const Shape& shape : {Shape{1, 1, 64}, {8, 2, 64}, {14, 2, 128}, {70, 1, 64}}) {
      ExpectNaive(*ops, activation, shape, seqs);
    }
    ExpectNaive(*ops, activation, {3, 1, 128}, seqs, {true, 65, true});
    ExpectNaive(*ops, activation, {3, 1, 64}, seqs, {false, 0, false});
  }
}

TEST_P(AttentionMmaBytesTest, PagedEqualsContiguousForEveryPageSize) {
  const auto ops = Make(AttentionKind::kFlash2);
  for (const DType activation : kActivations) {
    for (const int page : {1, 8, 16, 64, 256}) {
      std::vector<Seq> seqs = {{90, 30, 200}, {91, 1, 130}};
      for (const int len : {1, page - 1, page, page + 1, 3 * page + 1}) {
        if (len > 0 && len < 300) seqs.push_back({len, std::min(len, 40), len});
      }
      const Shape shape{4, 2, page == 16 ? 128 : 64};
      EXPECT_TRUE(
          SameBits(Run(*ops, activation, shape, seqs, page), Run(*ops, activation, shape, seqs, 0)))
          << page;
    }
  }
}

// Decode computes chunks of one token. For a single row, several blocks divide its splits.
TEST_P(AttentionMmaBytesTest, DecodedEqualsChunkedEqualsWholeEqualsBatched) {
  const Shape shape{3, 1, 128};
  constexpr int kLen = 140;
  const auto ops = Make(AttentionKind::kFlash2);
  for (const DType activation : kActivations) {
    const std::vector<float> whole = Run(*ops, activation, shape, {{9, kLen, kLen}}, 16);
    for (const int chunk : {1, 7, 64}) {
      std::vector<Seq> chunks;
      for (int begin = 0; begin < kLen; begin += chunk) {
        const int end = std::min(kLen, begin + chunk);
        chunks.push_back({9, end - begin, end});
      }
      EXPECT_TRUE(SameBits(Run(*ops, activation, shape, chunks, 64), whole)) << chunk;
    }
    const std::vector<float> alone = Run(*ops, activation, shape, {{9, 1, kLen}}, 16);
    EXPECT_TRUE(SameBits(alone, {whole.end() - shape.q_width(), whole.end()}));
  }
}

}  // namespace
}  // namespace kuiper::test
