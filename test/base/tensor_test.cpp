#include "kuiper/base/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "kuiper/base/buffer.h"

namespace kuiper {
namespace {

using ::testing::ExitedWithCode;

TEST(TensorTest, DenseIsRowMajor) {
  std::vector<float> data(24);
  const Tensor t = Tensor::Dense(data.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.stride[0], 12);
  EXPECT_EQ(t.stride[1], 4);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.bytes(), 96);
  EXPECT_TRUE(t.is_dense());
  EXPECT_EQ(t.row<float>(1), data.data() + 12);
}

TEST(TensorTest, SlicesPointAtTheElementsTheyName) {
  std::vector<int32_t> data(6 * 8);
  std::iota(data.begin(), data.end(), 0);
  const Tensor t = Tensor::Dense(data.data(), DType::kI32, {6, 8});
  for (int r0 = 0; r0 <= 6; ++r0) {
    for (int r1 = r0; r1 <= 6; ++r1) {
      for (int c0 = 0; c0 <= 8; ++c0) {
        for (int c1 = c0; c1 <= 8; ++c1) {
          const Tensor a = t.Rows(r0, r1).Cols(c0, c1);
          const Tensor b = t.Cols(c0, c1).Rows(r0, r1);
          ASSERT_EQ(a.rows(), r1 - r0);
          ASSERT_EQ(a.shape[1], c1 - c0);
          ASSERT_EQ(a.numel(), (r1 - r0) * (c1 - c0));
          ASSERT_EQ(a.data, b.data);
          for (int r = r0; r < r1; ++r) {
            for (int c = c0; c < c1; ++c) {
              ASSERT_EQ(a.row<int32_t>(r - r0)[c - c0], 8 * r + c);
              ASSERT_EQ(b.row<int32_t>(r - r0)[c - c0], 8 * r + c);
            }
          }
        }
      }
    }
  }
}

TEST(TensorTest, ColumnSliceIsNotDenseUnlessOneRow) {
  std::vector<Half> data(6 * 8);
  const Tensor t = Tensor::Dense(data.data(), DType::kF16, {6, 8});
  EXPECT_FALSE(t.Cols(0, 4).is_dense());
  EXPECT_TRUE(t.Cols(0, 8).is_dense());
  EXPECT_TRUE(t.Rows(2, 3).Cols(3, 5).is_dense());
  EXPECT_EQ(t.Cols(3, 5).bytes(), 6 * 2 * 2);
}

TEST(TensorTest, RowsOfHigherRanksAreWholeBlocks) {
  std::vector<uint8_t> data(2 * 3 * 4 * 5);
  const Tensor t = Tensor::Dense(data.data(), DType::kU8, {2, 3, 4, 5});
  const Tensor second = t.Rows(1, 2);
  EXPECT_EQ(second.data, data.data() + 60);
  EXPECT_EQ(second.numel(), 60);
  EXPECT_EQ(second.rank, 4);
}

TEST(TensorTest, DefaultIsEmpty) {
  EXPECT_TRUE(Tensor().empty());
  EXPECT_EQ(Tensor().rank, 0);
}

TEST(TensorTest, KeepsTheDeviceThroughSlices) {
  int64_t data[4] = {};
  const Device cuda{DeviceType::kCUDA, 1};
  const Tensor t = Tensor::Dense(data, DType::kI64, {2, 2}, cuda);
  EXPECT_EQ(t.Rows(1, 2).device, cuda);
  EXPECT_EQ(t.Cols(1, 2).device, cuda);
  EXPECT_EQ(DeviceName(cuda), "cuda:1");
  EXPECT_EQ(DeviceName({}), "cpu");
}

TEST(TensorDeathTest, MisuseEndsTheProcess) {
  float data[8] = {};
  const Tensor t = Tensor::Dense(data, DType::kF32, {2, 4});
  EXPECT_EXIT(t.Rows(1, 3), ExitedWithCode(1), "begin <= end");
  EXPECT_EXIT(t.Rows(-1, 1), ExitedWithCode(1), "begin <= end");
  EXPECT_EXIT(t.Rows(2, 1), ExitedWithCode(1), "begin <= end");
  EXPECT_EXIT(t.Cols(0, 5), ExitedWithCode(1), "begin <= end");
  EXPECT_EXIT(t.ptr<int32_t>(), ExitedWithCode(1), "FP32");
  EXPECT_EXIT(Tensor::Dense(data, DType::kF32, {1, 1, 1, 1, 8}), ExitedWithCode(1), "kMaxRank");
}

TEST(DTypeTest, SizesAndNames) {
  const std::pair<DType, size_t> sizes[] = {
      {DType::kF32, 4}, {DType::kF16, 2}, {DType::kBF16, 2},   {DType::kI32, 4},   {DType::kI64, 8},
      {DType::kU8, 1},  {DType::kI8, 1},  {DType::kF8E4M3, 1}, {DType::kF8E5M2, 1}};
  for (const auto& [dtype, bytes] : sizes) EXPECT_EQ(DTypeBytes(dtype), bytes);
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kF16), "FP16");
}

// Counts how often, and with what, the free function of a buffer ran.
int g_num_freed = 0;
size_t g_bytes_freed = 0;
void CountFree(void*, size_t bytes) {
  ++g_num_freed;
  g_bytes_freed += bytes;
}

class BufferTest : public ::testing::Test {
 protected:
  void SetUp() override { g_num_freed = g_bytes_freed = 0; }
  alignas(64) char a_[64] = {};
  alignas(64) char b_[32] = {};
};

TEST_F(BufferTest, MoveTransfersAndFreesOnce) {
  {
    Buffer first(a_, sizeof(a_), {}, CountFree);
    Buffer second(std::move(first));
    EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move): moved-from is empty by contract
    EXPECT_EQ(first.bytes(), 0u);
    EXPECT_EQ(second.data(), a_);
    EXPECT_EQ(g_num_freed, 0);
  }
  EXPECT_EQ(g_num_freed, 1);
  EXPECT_EQ(g_bytes_freed, sizeof(a_));
}

TEST_F(BufferTest, AssignmentFreesWhatWasThere) {
  Buffer target(a_, sizeof(a_), {}, CountFree);
  target = Buffer(b_, sizeof(b_), {}, CountFree);
  EXPECT_EQ(g_num_freed, 1);
  EXPECT_EQ(g_bytes_freed, sizeof(a_));
  EXPECT_EQ(target.data(), b_);
  target = Buffer();
  EXPECT_EQ(g_num_freed, 2);
  EXPECT_TRUE(target.empty());
}

TEST_F(BufferTest, SelfAssignmentKeepsTheMemory) {
  Buffer buffer(a_, sizeof(a_), {}, CountFree);
  Buffer& alias = buffer;
  buffer = std::move(alias);
  EXPECT_EQ(buffer.data(), a_);
  EXPECT_EQ(g_num_freed, 0);
}

TEST_F(BufferTest, SurvivesTheGrowthOfAVector) {
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 100; ++i) buffers.emplace_back(a_ + i % 64, 1, Device{}, CountFree);
    EXPECT_EQ(g_num_freed, 0);
  }
  EXPECT_EQ(g_num_freed, 100);
}

TEST_F(BufferTest, ViewsCarryOffsetAndDevice) {
  const Device simt{DeviceType::kSimt, 0};
  const Buffer buffer(a_, sizeof(a_), simt, nullptr);
  const Tensor t = buffer.As(DType::kF32, {2, 4}, 32);
  EXPECT_EQ(t.data, a_ + 32);
  EXPECT_EQ(t.device, simt);
  EXPECT_EXIT(buffer.As(DType::kF32, {2, 4}, 36), ExitedWithCode(1), "exceeds its buffer");
}

}  // namespace
}  // namespace kuiper
