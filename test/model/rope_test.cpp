#include "kuiper/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kuiper {
namespace {

RopeConfig Yarn(int original, int max_position) {
  RopeConfig config;
  config.theta = 1e6;
  config.max_position = max_position;
  YarnConfig yarn;
  yarn.factor = 4;
  yarn.original_max_position = original;
  yarn.attention_factor = 0.1 * std::log(4.0) + 1;
  config.yarn = yarn;
  return config;
}

// Worked by hand for Qwen3 (128, 1e6, 32768, factor 4): ramp from pair 23 to pair 40.
TEST(Rope, YarnMatchesTheWorkedNumbers) {
  const std::vector<float> inv = RopeInvFreq(Yarn(32768, 131072), 128);
  const std::pair<int, double> expected[] = {{0, 1},
                                             {20, 0.0133352143},
                                             {24, 0.00537532149},
                                             {30, 0.00106436098},
                                             {40, 4.44569853e-05},
                                             {63, 3.1023444e-07}};
  for (const auto& [pair, value] : expected) EXPECT_NEAR(inv[pair] / value, 1, 3e-7) << pair;
  RopeConfig plain;
  plain.theta = 1e6;
  const std::vector<float> unscaled = RopeInvFreq(plain, 128);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(inv[i], unscaled[i]) << i;
  for (int i = 40; i < 64; ++i) EXPECT_EQ(inv[i], unscaled[i] / 4) << i;
}

TEST(Rope, YarnUsesTheOriginalLengthNotTheLimit) {
  EXPECT_NEAR(RopeInvFreq(Yarn(40960, 40960), 128)[24] / 0.00562341325, 1, 3e-7);
  EXPECT_NEAR(RopeInvFreq(Yarn(32768, 40960), 128)[24] / 0.00537532149, 1, 3e-7);
}

TEST(Rope, TableHoldsCosinesThenSines) {
  RopeConfig config;
  config.theta = 10000;
  const int dim = 8;
  const std::vector<float> table = RopeCosSin(config, dim, 0, 300);
  for (int pos : {0, 1, 17, 299}) {
    for (int i = 0; i < dim / 2; ++i) {
      const double angle = pos * std::pow(10000.0, -2.0 * i / dim);
      // The product of position and frequency is rounded to FP32, as in Hugging Face.
      EXPECT_NEAR(table[pos * dim + i], std::cos(angle), 3e-5) << pos << " " << i;
      EXPECT_NEAR(table[pos * dim + dim / 2 + i], std::sin(angle), 3e-5) << pos << " " << i;
    }
  }
}

TEST(Rope, PiecesOfTheTableJoin) {
  const RopeConfig config = Yarn(64, 256);
  const std::vector<float> whole = RopeCosSin(config, 16, 0, 50);
  std::vector<float> joined = RopeCosSin(config, 16, 0, 33);
  const std::vector<float> rest = RopeCosSin(config, 16, 33, 50);
  joined.insert(joined.end(), rest.begin(), rest.end());
  EXPECT_EQ(whole, joined);
}

TEST(Rope, AttentionFactorScalesBothHalves) {
  const RopeConfig config = Yarn(32768, 131072);
  const std::vector<float> table = RopeCosSin(config, 128, 0, 2);
  EXPECT_FLOAT_EQ(table[0], 1.138629436f);
  EXPECT_FLOAT_EQ(table[128], 1.138629436f * std::cos(1.f));
  EXPECT_FLOAT_EQ(table[128 + 64], 1.138629436f * std::sin(1.f));
}

}  // namespace
}  // namespace kuiper
