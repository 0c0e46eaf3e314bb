// CpuLinear::Prepack: panels in place of rows give the same bits for any number of tokens, and what
// has no panels stays as it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/half.h"
#include "test/ops/linear_test_util.h"

namespace kuiper::cpu {
namespace {

constexpr int kMaxTokens = 521;

// Parts with weights of their own, `offset` bytes behind whole cache lines.
struct Layer {
  std::vector<std::vector<BFloat16>> memory;
  std::vector<float> bias;
  Linear linear;

  Layer(const std::vector<int>& rows, int in, bool has_bias = false, size_t offset = 0) {
    std::mt19937 rng(in);
    linear.in = in;
    for (int n : rows) {
      const size_t count = static_cast<size_t>(n) * in;
      std::vector<BFloat16>& words = memory.emplace_back(count + 64);
      auto* const data = reinterpret_cast<BFloat16*>(
          (reinterpret_cast<uintptr_t>(words.data()) + 63) / 64 * 64 + offset);
      for (size_t i = 0; i < count; ++i) data[i] = ToBFloat16(Random(rng, 1.0f));
      Linear::Part& part = linear.parts[linear.num_parts++];
      part.weight = DenseWeight(Tensor::Dense(data, DType::kBF16, {n, in}));
      linear.out += n;
      if (!has_bias) continue;
      bias.resize(512, 0.25f);
      part.bias = Tensor::Dense(bias.data(), DType::kF32, {n});
    }
  }
  int prepacked_parts() const {
    int count = 0;
    for (int i = 0; i < linear.num_parts; ++i) count += linear.parts[i].weight.is_prepacked ? 1 : 0;
    return count;
  }
};

struct Case {
  std::vector<int> rows;
  int in;
  bool has_bias;
  Epilogue epilogue;
};
const Case kCases[] = {
    {{96, 32, 64}, 1024, true, Epilogue::kStore}, {{64}, 32, false, Epilogue::kStore},
    {{32}, 3072, false, Epilogue::kAdd},          {{160}, 2080, true, Epilogue::kAdd},
    {{96, 96}, 896, false, Epilogue::kSwiGlu},    {{64}, 4864, false, Epilogue::kStore},
    {{352}, 96, true, Epilogue::kGeluTanh},       {{32}, 2048, false, Epilogue::kGeluErf},
};

std::vector<float> Apply(const std::string& set, int threads, const Case& c, const Linear& w,
                         int tokens) {
  Runner run(threads, set, kMaxTokens, c.in);
  const std::vector<float> x = RandomX(tokens, c.in, 7);
  const int columns = OutputColumns(w, c.epilogue);
  std::vector<float> y = RandomX(tokens, columns, 8);  // kAdd adds to it
  run.linear().Apply(Tensor::Dense(y.data(), DType::kF32, {tokens, columns}),
                     Tensor::Dense(const_cast<float*>(x.data()), DType::kF32, {tokens, c.in}), w,
                     c.epilogue);
  return y;
}

// The sets that have panels for BF16.
bool HasPanels(const std::string& set) {
  return set == "AVX3_BF16" || set == "AVX2";
}

TEST(PrepackedLinear, GivesTheBitsOfRowsForAnyNumberOfTokens) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    if (IsSlow(set)) continue;
    for (const Case& c : kCases) {
      for (int threads : {1, 3}) {
        const Layer rows(c.rows, c.in, c.has_bias);
        Layer panels(c.rows, c.in, c.has_bias);
        Runner(threads, set, 1, c.in).linear().Prepack(&panels.linear);
        ASSERT_EQ(panels.prepacked_parts(), HasPanels(set) ? panels.linear.num_parts : 0) << set;
        // Up to 12 tokens have a tile each.
        for (int tokens : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,
                           14, 16, 17, 19, 24, 25, 31, 33, 64, 100, 255, 256, 521}) {
          if (!HasPanels(set) && tokens > 17) continue;
          ASSERT_TRUE(SameBits(Apply(set, threads, c, panels.linear, tokens),
                               Apply(set, threads, c, rows.linear, tokens)))
              << set << " K=" << c.in << " N=" << c.rows[0] << " T=" << tokens
              << " threads=" << threads;
        }
      }
    }
  }
}

TEST(PrepackedLinear, GivesItsRowsBack) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    if (!HasPanels(set)) continue;
    for (const Case& c : kCases) {
      const Layer rows({c.rows[0]}, c.in);
      Layer panels({c.rows[0]}, c.in);
      Runner run(1, set, 1, c.in);
      run.linear().Prepack(&panels.linear);
      const Tensor& values = panels.linear.parts[0].weight.values;
      for (int row = 0; row < c.rows[0]; ++row) {
        std::vector<BFloat16> read(c.in);
        for (int begin = 0; begin < c.in; begin += CpuLinear::kFoldElements) {
          run.linear().ReadPrepacked(values, row, begin,
                                     std::min(c.in - begin, CpuLinear::kFoldElements),
                                     read.data() + begin);
        }
        ASSERT_EQ(memcmp(read.data(), rows.linear.parts[0].weight.values.row<BFloat16>(row),
                         c.in * sizeof(BFloat16)),
                  0)
            << set << " K=" << c.in << " row " << row;
      }
    }
  }
}

TEST(PrepackedLinear, LeavesWhatHasNoWholePanels) {
  Runner run(2, "", 1, 4096);
  for (const auto& [rows, in] : std::vector<std::pair<std::vector<int>, int>>{
           {{33}, 64}, {{64, 64, 17}, 64}, {{64}, 48}, {{64}, 16}}) {
    Layer layer(rows, in);
    run.linear().Prepack(&layer.linear);
    EXPECT_EQ(layer.prepacked_parts(), 0) << "N=" << rows.back() << " K=" << in;
  }
  Layer misaligned({64}, 64, false, sizeof(BFloat16));
  run.linear().Prepack(&misaligned.linear);
  EXPECT_EQ(misaligned.prepacked_parts(), 0);
}

}  // namespace
}  // namespace kuiper::cpu
