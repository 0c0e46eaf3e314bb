// WeightFormat and WeightMatrix: supported shapes of a format, and the tensors that it requires.
#include "kuiper/ops/weight_format.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace kuiper {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST(WeightFormat, DenseFormatsTakeTheBytesOfTheirTensor) {
  float memory[35];
  for (const DType type : kTypes) {
    const WeightMatrix w = DenseWeight(Tensor::Dense(memory, type, {5, 7}));
    EXPECT_EQ(w.format, WeightFormat::Dense(type));
    EXPECT_EQ(w.format.numeric_type(), type);
    EXPECT_EQ(w.rows(), 5);
    EXPECT_EQ(w.bytes(), w.values.bytes());
    EXPECT_EQ(w.format.Bytes(w.rows(), 7), w.values.bytes());
    EXPECT_EQ(w.format.Bytes(1, 7) * w.rows(), w.values.bytes());
  }
}

TEST(WeightFormat, EachTypeIsAFormatOfItsOwn) {
  for (const DType a : kTypes) {
    for (const DType b : kTypes) {
      EXPECT_EQ(WeightFormat::Dense(a) == WeightFormat::Dense(b), a == b);
    }
  }
}

TEST(WeightMatrix, FitsOnlyWhatItsFormatSays) {
  float memory[40];
  const Tensor dense = Tensor::Dense(memory, DType::kF32, {5, 7});
  EXPECT_TRUE(DenseWeight(dense).Fits(7, Device()));
  EXPECT_FALSE(DenseWeight(dense).Fits(8, Device()));
  EXPECT_FALSE(DenseWeight(dense).Fits(7, Device{DeviceType::kCUDA, 0}));
  EXPECT_FALSE(DenseWeight(dense.Cols(0, 6)).Fits(6, Device())) << "gaps between the rows";
  EXPECT_FALSE(DenseWeight(Tensor()).Fits(0, Device())) << "no matrix";
  EXPECT_FALSE(DenseWeight(Tensor::Dense(nullptr, DType::kF32, {5, 7})).Fits(7, Device()));
  EXPECT_FALSE(DenseWeight(Tensor::Dense(memory, DType::kI32, {5, 7})).Fits(7, Device()));
  EXPECT_FALSE((WeightMatrix{WeightFormat::Dense(DType::kF16), dense}.Fits(7, Device())));
}

}  // namespace
}  // namespace kuiper
