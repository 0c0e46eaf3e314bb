// Dot products with 8-bit rows, which decode attention multiplies in place, with every instruction
// set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kuiper/base/float8.h"
#include "kuiper/base/half.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/ops/kv_format.h"

namespace kuiper::cpu {
namespace {

constexpr int kRows = 12, kMaxElements = 160;

template <typename T>
class CodeDotsTest : public testing::Test {};
using Codes = testing::Types<Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(CodeDotsTest, Codes);

struct alignas(64) Activations {
  uint8_t chunks[kMaxTileRows][4 * kMaxElements];
};

std::vector<float> Sums(const LinearKernel& kernel, DotFn dots, const Activations& x, int num_x,
                        const std::vector<const uint8_t*>& rows, int k) {
  std::vector<float> sums(num_x * kRows);
  DotArgs args;
  args.x = x.chunks[0];
  args.x_stride = sizeof(x.chunks[0]);
  args.rows = rows.data();
  args.count = kRows;
  args.k = k;
  args.sums = sums.data();
  args.sum_stride = kRows;
  EXPECT_LE(kernel.Words(k) * sizeof(float), sizeof(x.chunks[0]));
  dots(args);
  return sums;
}

// All codes of a type are exact in BF16, so converting them first changes nothing.
TYPED_TEST(CodeDotsTest, GiveTheBitsOfRowsWidenedToBf16) {
  std::mt19937 rng(7);
  int num_sets = 0;
  for (const LinearKernelSet& set : LinearKernelSets()) {
    const LinearKernel& kernel = set[WeightFormat::Dense(DType::kBF16)];
    const DotFn* float8_dots = kernel.float8_dots[Float8Index(DTypeOf<TypeParam>::value)];
    if (float8_dots[1] == nullptr) continue;  // the kernel multiplies words of BF16
    ++num_sets;
    for (const int k : {1, 31, 32, 64, 80, 128, kMaxElements}) {
      TypeParam codes[kRows][kMaxElements];
      BFloat16 wide[kRows][kMaxElements];
      std::vector<const uint8_t*> code_rows, wide_rows;
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < k; ++i) {
          const auto bits = static_cast<uint8_t>(rng());
          std::memcpy(&codes[r][i], &bits, 1);
          wide[r][i] = ToBFloat16(ToFloat(codes[r][i]) / kElementScale<TypeParam>);
        }
        code_rows.push_back(reinterpret_cast<const uint8_t*>(codes[r]));
        wide_rows.push_back(reinterpret_cast<const uint8_t*>(wide[r]));
      }
      Activations x = {};
      std::normal_distribution<float> normal;
      for (auto& chunks : x.chunks) {
        std::vector<float> values(k);
        for (float& value : values) value = normal(rng);
        kernel.convert(values.data(), k, chunks);
      }
      for (int num_x = 1; num_x <= kernel.tile_rows; ++num_x) {
        const std::vector<float> sums = Sums(kernel, float8_dots[num_x], x, num_x, code_rows, k);
        const std::vector<float> expected =
            Sums(kernel, kernel.dots[num_x], x, num_x, wide_rows, k);
        for (size_t i = 0; i < sums.size(); ++i) {
          if (std::isnan(expected[i])) {
            EXPECT_TRUE(std::isnan(sums[i])) << set.name << ", sum " << i << " of " << k;
          } else {
            EXPECT_EQ(std::memcmp(&sums[i], &expected[i], sizeof(float)), 0)
                << set.name << ", sum " << i << " of " << k << ": " << sums[i] << " beside "
                << expected[i];
          }
        }
      }
    }
  }
  EXPECT_GT(num_sets, 0);
}

}  // namespace
}  // namespace kuiper::cpu
