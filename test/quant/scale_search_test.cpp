#include "kuiper/quant/scale_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kuiper {
namespace {

constexpr int kIn = 64, kOut = 24, kRows = 40;

std::unique_ptr<Ops> MakeCpu() {
  auto ops = MakeOps(Device{}, {.num_threads = 2}).value();
  OpsLimits limits;
  limits.max_tokens = InputStatistics::kMaxSamples;
  limits.max_seqs = 1;
  limits.max_features = kIn;
  EXPECT_TRUE(ops->Reserve(limits).ok());
  return ops;
}

// Some inputs are much larger than others.
std::vector<float> Inputs() {
  std::mt19937 random(1);
  std::normal_distribution<float> value(0.f, 1.f);
  std::vector<float> x(kRows * kIn);
  for (int i = 0; i < kRows * kIn; ++i) x[i] = value(random) * (i % kIn % 9 == 0 ? 30.f : 0.3f);
  return x;
}

FloatMatrix Weights() {
  std::mt19937 random(2);
  std::normal_distribution<float> value(0.f, 0.1f);
  FloatMatrix w{kOut, kIn, std::vector<float>(kOut * kIn)};
  for (float& x : w.values) x = value(random);
  return w;
}

double NaiveEnergy(const std::vector<float>& w, const std::vector<float>& x) {
  double sum = 0;
  for (int row = 0; row < kRows; ++row) {
    for (int o = 0; o < kOut; ++o) {
      double y = 0;
      for (int k = 0; k < kIn; ++k) y += static_cast<double>(w[o * kIn + k]) * x[row * kIn + k];
      sum += y * y;
    }
  }
  return sum;
}

InputStatistics StatisticsOf(const std::vector<float>& x) {
  InputStatistics statistics(kIn, 32, kRows, 2);
  statistics.Add(x.data(), 17, kIn);
  statistics.Add(x.data() + 17 * kIn, kRows - 17, kIn);
  return statistics;
}

TEST(InputStatisticsTest, AreThoseOfNaiveLoops) {
  const std::vector<float> x = Inputs();
  InputStatistics statistics = StatisticsOf(x);
  std::vector<float> s(kIn);
  for (int k = 0; k < kIn; ++k) s[k] = 0.5f + 0.01f * static_cast<float>(k);
  for (const bool divided : {false, true}) {
    if (divided) statistics.DivideBy(s);
    const auto at = [&](int row, int k) { return x[row * kIn + k] / (divided ? s[k] : 1.f); };
    const std::vector<float> means = statistics.MeanMagnitudes();
    for (int k = 0; k < kIn; ++k) {
      double mean = 0;
      for (int row = 0; row < kRows; ++row) mean += std::abs(at(row, k)) / kRows;
      EXPECT_NEAR(means[k], mean, 1e-4 * mean);
    }
    for (int group = 0; group < 2; ++group) {
      for (int i = 0; i < 32; ++i) {
        for (int j = 0; j < 32; ++j) {
          double sum = 0, size = 0;
          for (int row = 0; row < kRows; ++row) {
            const double product =
                static_cast<double>(at(row, group * 32 + i)) * at(row, group * 32 + j);
            sum += product;
            size += std::abs(product);
          }
          EXPECT_NEAR(statistics.Products(group)[i * 32 + j], sum, 1e-5 * size + 1e-9);
        }
      }
    }
    ASSERT_EQ(statistics.num_samples(), kRows);
    for (int i = 0; i < kRows * kIn; ++i) {
      EXPECT_FLOAT_EQ(statistics.samples()[i], at(i / kIn, i % kIn));
    }
  }
}

TEST(InputStatisticsTest, SamplesAreSpreadAndBounded) {
  const int64_t rows = 3 * InputStatistics::kMaxSamples + 1;
  InputStatistics statistics(32, 32, rows, 1);
  std::vector<float> x(32);
  for (int64_t row = 0; row < rows; ++row) {
    x[0] = static_cast<float>(row);
    statistics.Add(x.data(), 1, 32);
  }
  EXPECT_LE(statistics.num_samples(), InputStatistics::kMaxSamples);
  EXPECT_GE(statistics.num_samples(), InputStatistics::kMaxSamples / 2);
  EXPECT_GT(statistics.samples()[(statistics.num_samples() - 1) * 32],
            static_cast<float>(rows - 5));
}

TEST(ScaleSearch, EnergyIsThatOfNaiveLoops) {
  const auto ops = MakeCpu();
  const std::vector<float> x = Inputs();
  const FloatMatrix w = Weights();
  const double naive = NaiveEnergy(w.values, x);
  EXPECT_NEAR(OutputEnergy(w, StatisticsOf(x), *ops), naive, 1e-4 * naive);
}

// The found scales make a smaller error than no scales, which are among the candidates.
TEST(ScaleSearch, FindsScalesThatHelpLargeInputs) {
  const auto ops = MakeCpu();
  const std::vector<float> x = Inputs();
  const FloatMatrix w = Weights();
  const CodeScheme scheme{4, 32, true, DType::kF32};
  int ticks = 0;
  const std::vector<float> s = SearchScales({&w}, StatisticsOf(x), scheme, *ops, [&] { ++ticks; });
  EXPECT_EQ(ticks, kNumExponents);
  const auto error = [&](const std::vector<float>& scales) {
    std::vector<float> scaled = w.values;
    for (int i = 0; i < kOut * kIn; ++i) scaled[i] *= scales[i % kIn];
    std::vector<float> difference = Decode(Encode(scaled, kOut, kIn, {}, scheme, 1));
    for (int i = 0; i < kOut * kIn; ++i) {
      difference[i] = w.values[i] - difference[i] / scales[i % kIn];
    }
    return NaiveEnergy(difference, x);
  };
  EXPECT_LT(error(s), 0.7 * error(std::vector<float>(kIn, 1.f)));
  EXPECT_GT(s[0], s[1]) << "finer steps for the large inputs";
}

// No other factor makes a smaller error of the group; an outlier is clipped.
TEST(ScaleSearch, ShrinksAreTheBestOfTheirGroups) {
  const std::vector<float> x = Inputs();
  FloatMatrix w = Weights();
  w.values[5] = 0.6f;  // where the input is small
  const CodeScheme scheme{4, 32, true, DType::kF32};
  const std::vector<float> shrinks = SearchShrinks(w, StatisticsOf(x), scheme);
  ASSERT_EQ(shrinks.size(), static_cast<size_t>(kOut * 2));
  EXPECT_LT(shrinks[0], 1.f);
  for (int g = 0; g < kOut * 2; ++g) {
    const auto group = std::span<const float>(w.values).subspan(g * 32, 32);
    const auto error = [&](float shrink) {
      std::vector<float> rounded(32);
      RoundTo(GridOf(group, shrink, scheme), scheme, group, rounded.data());
      double sum = 0;
      for (int row = 0; row < kRows; ++row) {
        double y = 0;
        for (int k = 0; k < 32; ++k) {
          y += static_cast<double>(rounded[k] - group[k]) * x[row * kIn + g % 2 * 32 + k];
        }
        sum += y * y;
      }
      return sum;
    };
    for (int step = 0; step < 10; ++step) {
      EXPECT_LE(error(shrinks[g]), 1.001 * error(1.f - 0.05f * static_cast<float>(step)) + 1e-9);
    }
  }
}

}  // namespace
}  // namespace kuiper
