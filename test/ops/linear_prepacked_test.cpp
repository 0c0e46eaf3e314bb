// CpuLinear::Prepack: panels give the same bits as rows for any number of tokens, and matrices
// without panels stay unchanged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/half.h"
#include "kuiper/kernels/common/visit.h"
#include "test/ops/linear_test_util.h"

namespace kuiper::cpu {
namespace {

constexpr int kMaxTokens = 521;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

// Parts with their own weights, `offset` bytes after a cache line boundary.
struct Layer {
  std::vector<std::vector<uint8_t>> memory;
  std::vector<float> bias;
  Linear linear;

  Layer(DType type, const std::vector<int>& rows, int in, bool has_bias = false,
        size_t offset = 0) {
    std::mt19937 rng(in);
    linear.in = in;
    for (int n : rows) {
      const size_t count = static_cast<size_t>(n) * in;
      std::vector<uint8_t>& bytes = memory.emplace_back(count * DTypeBytes(type) + 128);
      void* const data = reinterpret_cast<void*>(
          (reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64 + offset);
      VisitFloat(type, [&](auto zero) {
        using T = decltype(zero);
        for (size_t i = 0; i < count; ++i) {
          static_cast<T*>(data)[i] = FromFloat<T>(Random(rng, 1.0f));
        }
      });
      Linear::Part& part = linear.parts[linear.num_parts++];
      part.weight = DenseWeight(Tensor::Dense(data, type, {n, in}));
      linear.out += n;
      if (!has_bias) continue;
      bias.resize(512, 0.25f);
      part.bias = Tensor::Dense(bias.data(), DType::kF32, {n});
    }
  }
};

// A quantised Layer, with random codes. Scales and zero points have random bits, restricted to
// numbers.
struct CodedLayer {
  std::vector<std::vector<uint8_t>> memory;
  Linear linear;

  CodedLayer(const std::vector<int>& rows, int in, const WeightFormat& format, bool has_zeros)
      : rng(in) {
    linear.in = in;
    for (int n : rows) {
      WeightMatrix& w = linear.parts[linear.num_parts++].weight;
      w.format = format;
      w.values = Allocate(DType::kU8, n, format.RowBytes(in), 0xff);
      const int64_t row_groups = format.row_groups(n), groups = format.column_groups(in);
      // High bytes of floats of any sign between 2^-15 and 2.
      w.scales = Allocate(format.scale_type, row_groups, groups, 0xff);
      const auto number_bytes = static_cast<int64_t>(DTypeBytes(format.scale_type));
      for (int64_t i = number_bytes - 1; i < w.scales.bytes(); i += number_bytes) {
        uint8_t& high = static_cast<uint8_t*>(w.scales.data)[i];
        high = format.scale_type == DType::kF16 ? high & 0xbb : 0x38 | (high & 0x87);
      }
      if (has_zeros) {
        w.zeros =
            Allocate(DType::kU8, n, groups, static_cast<uint8_t>(2 * format.default_zero() - 1));
      }
      linear.out += n;
    }
  }

 private:
  std::mt19937 rng;

  Tensor Allocate(DType type, int64_t rows, int64_t columns, uint8_t mask) {
    const size_t bytes = static_cast<size_t>(rows * columns) * DTypeBytes(type);
    std::vector<uint8_t>& space = memory.emplace_back(bytes + 64);
    uint8_t* const data = space.data() + (64 - reinterpret_cast<uintptr_t>(space.data()) % 64);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(rng() >> 8) & mask;
    return Tensor::Dense(data, type, {rows, columns});
  }
};

int PrepackedParts(const Linear& w) {
  int count = 0;
  for (int i = 0; i < w.num_parts; ++i) count += w.parts[i].weight.is_prepacked ? 1 : 0;
  return count;
}

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

bool HasPanels(const std::string& set, DType type) {
  return set == "AVX2" || (set == "AVX3_BF16" && type == DType::kBF16);
}

void ExpectBitsOfRows(const std::string& set, int threads, DType type, const Case& c) {
  const Layer rows(type, c.rows, c.in, c.has_bias);
  Layer panels(type, c.rows, c.in, c.has_bias);
  Runner(threads, set, 1, c.in).linear().Prepack(&panels.linear);
  const bool has_panels = HasPanels(set, type);
  ASSERT_EQ(PrepackedParts(panels.linear), has_panels ? panels.linear.num_parts : 0);
  // Up to 12 tokens, each number has its own tile.
  for (int tokens : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,
                     14, 16, 17, 19, 24, 25, 31, 33, 64, 100, 255, 256, 521}) {
    if (!has_panels && tokens > 17) continue;
    ASSERT_TRUE(SameBits(Apply(set, threads, c, panels.linear, tokens),
                         Apply(set, threads, c, rows.linear, tokens)))
        << "T=" << tokens;
  }
}

TEST(PrepackedLinear, GivesTheBitsOfRowsForAnyNumberOfTokens) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    if (IsSlow(set)) continue;
    for (DType type : kTypes) {
      for (const Case& c : kCases) {
        for (int threads : {1, 3}) {
          SCOPED_TRACE(set + " " + std::string(DTypeName(type)) + " K=" + std::to_string(c.in) +
                       " threads=" + std::to_string(threads));
          ExpectBitsOfRows(set, threads, type, c);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

struct CodedCase {
  WeightFormat format;
  bool has_zeros;
};
constexpr WeightFormat Coded(WeightFormat::Kind kind, DType scale_type, int group_columns,
                             int group_rows = 1) {
  return {kind, DType::kBF16, scale_type, group_columns, group_rows};
}
constexpr auto kInt4 = WeightFormat::Kind::kInt4, kInt8 = WeightFormat::Kind::kInt8;
const CodedCase kCodedCases[] = {
    {Coded(kInt4, DType::kF16, 128), true},      {Coded(kInt4, DType::kBF16, 32), false},
    {Coded(kInt4, DType::kF32, 1 << 20), false}, {Coded(kInt8, DType::kBF16, 32), true},
    {Coded(kInt8, DType::kF32, 128), false},     {Coded(kInt8, DType::kF16, 1 << 20), true},
};

bool HasCodePanels(const std::string& set) {
  return set != "SCALAR";
}

TEST(PrepackedLinear, CodesGiveTheBitsOfRowsForAnyNumberOfTokens) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    for (const CodedCase& codes : kCodedCases) {
      for (const Case& c : kCases) {
        if (c.has_bias) continue;
        for (DType x_type : {DType::kBF16, DType::kI8}) {
          WeightFormat format = codes.format;
          format.operand_type = x_type;
          const CodedLayer rows(c.rows, c.in, format, codes.has_zeros);
          CodedLayer panels(c.rows, c.in, format, codes.has_zeros);
          Runner(3, set, 1, c.in).linear().Prepack(&panels.linear);
          ASSERT_EQ(PrepackedParts(panels.linear),
                    HasCodePanels(set) ? panels.linear.num_parts : 0);
          if (!HasCodePanels(set)) continue;
          for (int tokens : {1, 2, 3, 4, 5, 6, 7, 12, 13, 64, 255}) {
            if (IsSlow(set) && tokens > 7) break;
            const std::vector<float> expected = Apply(set, 3, c, rows.linear, tokens);
            ASSERT_TRUE(std::isfinite(expected[0]));
            ASSERT_TRUE(SameBits(Apply(set, 3, c, panels.linear, tokens), expected))
                << set << " K=" << c.in << " N=" << c.rows[0] << " T=" << tokens;
            ASSERT_TRUE(SameBits(Apply(set, 1, c, panels.linear, tokens), expected));
          }
        }
      }
    }
  }
}

// The largest codes times the largest integers of x, of either sign: no intermediate sum overflows.
// The middle code of 2^(b-1) is subtracted from each code.
TEST(PrepackedLinear, LargestSumsOfCodesAreExact) {
  constexpr int kIn = 288, kTokens = 7;
  for (const std::string& set : CpuLinear::InstructionSets()) {
    if (!HasCodePanels(set)) continue;
    for (const auto kind : {kInt4, kInt8}) {
      for (const int group : {32, 128}) {
        WeightFormat format = Coded(kind, DType::kF32, group);
        format.operand_type = DType::kI8;
        CodedLayer layer({64}, kIn, format, false);
        WeightMatrix& w = layer.linear.parts[0].weight;
        std::fill_n(w.values.ptr<uint8_t>(), w.values.bytes(), uint8_t{0xff});
        std::fill_n(w.scales.ptr<float>(), w.scales.numel(), 1.0f);
        Runner run(2, set, kTokens, kIn);
        run.linear().Prepack(&layer.linear);
        ASSERT_EQ(PrepackedParts(layer.linear), 1) << set;
        for (const float x : {127.0f, -127.0f}) {
          const std::vector<float> rows(size_t{kTokens} * kIn, x);
          const float expected = x * kIn * static_cast<float>(format.default_zero() - 1);
          for (const float y : run.Run(rows.data(), kTokens, layer.linear)) {
            ASSERT_EQ(y, expected) << set << " " << group;
          }
        }
      }
    }
  }
}

TEST(PrepackedLinear, LeavesCodesOfWhichUnitsShareScales) {
  for (const auto& [format, rows] :
       std::vector<std::pair<WeightFormat, int>>{{Coded(kInt8, DType::kF32, 256), 64},
                                                 {Coded(kInt8, DType::kF32, 128, 32), 64},
                                                 {Coded(kInt4, DType::kF32, 32), 33},
                                                 {{kInt4, DType::kF32, DType::kF32, 32, 1}, 64}}) {
    CodedLayer layer({rows}, 512, format, false);
    Runner(1, "", 1, 512).linear().Prepack(&layer.linear);
    EXPECT_EQ(PrepackedParts(layer.linear), 0) << format.group_columns;
  }
}

void ExpectRowsBack(const std::string& set, DType type, const Case& c) {
  const Layer rows(type, {c.rows[0]}, c.in);
  Layer panels(type, {c.rows[0]}, c.in);
  Runner run(1, set, 1, c.in);
  run.linear().Prepack(&panels.linear);
  const Tensor &stored = rows.linear.parts[0].weight.values,
               &values = panels.linear.parts[0].weight.values;
  const size_t bytes = DTypeBytes(type);
  const int fold = run.linear().FoldElements(type);
  for (int row = 0; row < c.rows[0]; ++row) {
    std::vector<uint8_t> read(c.in * bytes);
    for (int begin = 0; begin < c.in; begin += fold) {
      run.linear().ReadPrepacked(values, row, begin, std::min(c.in - begin, fold),
                                 read.data() + begin * bytes);
    }
    const auto* const expected = static_cast<const uint8_t*>(stored.data) + row * c.in * bytes;
    ASSERT_EQ(memcmp(read.data(), expected, read.size()), 0)
        << set << " " << DTypeName(type) << " K=" << c.in << " row " << row;
  }
}

TEST(PrepackedLinear, GivesItsRowsBack) {
  for (const std::string& set : CpuLinear::InstructionSets()) {
    for (DType type : kTypes) {
      if (!HasPanels(set, type)) continue;
      for (const Case& c : kCases) ExpectRowsBack(set, type, c);
    }
  }
}

TEST(PrepackedLinear, LeavesWhatHasNoWholePanels) {
  Runner run(2, "", 1, 4096);
  for (DType type : kTypes) {
    for (const auto& [rows, in] : std::vector<std::pair<std::vector<int>, int>>{
             {{33}, 64}, {{64, 64, 17}, 64}, {{64}, 56}, {{64}, 24}}) {
      Layer layer(type, rows, in);
      run.linear().Prepack(&layer.linear);
      EXPECT_EQ(PrepackedParts(layer.linear), 0) << "N=" << rows.back() << " K=" << in;
    }
    Layer misaligned(type, {64}, 64, false, DTypeBytes(type));
    run.linear().Prepack(&misaligned.linear);
    EXPECT_EQ(PrepackedParts(misaligned.linear), 0);
  }
}

}  // namespace
}  // namespace kuiper::cpu
