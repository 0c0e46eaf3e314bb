// Embed, FillRandom, GatherRows, PatchRows and RmsNorm against naive double loops: odd sizes, row
// strides larger than the row, every weight type, every instruction set.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "../test_data.h"
#include "cpu_targets.h"
#include "naive_norm.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

class ElementwiseTest : public TypedOpsTest {
 protected:
  const std::unique_ptr<Ops> ops_ = MakeTestOps(device());
  const DType activation_ = ops_->ActivationType(dtype());
  const double rounding_ = RoundingError(activation_);
  // Returns data rounded to the type of activations.
  std::vector<float> Activations(size_t n, uint32_t seed, float scale = 1.0f) const {
    return Rounded(RandomFloats(n, seed, scale), activation_);
  }
  // Returns the rows of a weight table for these ids.
  std::vector<double> RowsOf(const std::vector<float>& table, int width,
                             const std::vector<int32_t>& ids) const {
    std::vector<double> rows;
    for (const int32_t id : ids) {
      for (int i = 0; i < width; ++i) rows.push_back(Rounded(table[id * width + i], dtype()));
    }
    return rows;
  }
};
KU_INSTANTIATE_TYPED_OPS_TEST(ElementwiseTest);

TEST_P(ElementwiseTest, EmbedCopiesTheRowsOfIds) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (int hidden : {1, 17, 257, 1024}) {
      constexpr int kVocab = 9;
      const std::vector<float> table = RandomFloats(kVocab * hidden, 3);
      const Matrix m(*ops_, dtype(), kVocab, hidden, table, hidden + 3);
      const Array<int32_t> ids(*ops_, {8, 0, 3, 3, 1});
      const Matrix out(*ops_, activation_, 5, hidden, hidden + 1);
      ops_->Run(EmbedArgs{.out = out.tensor(), .table = m.tensor(), .ids = ids.tensor()});
      ExpectNear(out.Get(), RowsOf(table, hidden, ids.Get()), 1e-30, 0, target);
    }
  });
}

// A tied table has the order of the LM head's prepacked matrix, if that is prepacked.
TEST_P(ElementwiseTest, EmbedReadsATableThatIsPrepacked) {
  constexpr int kVocab = 96;
  for (int hidden : {32, 1024, 4128}) {
    const std::vector<float> table = RandomFloats(kVocab * hidden, 3);
    const Matrix m(*ops_, dtype(), kVocab, hidden, table);
    Linear head;
    head.in = hidden;
    head.out = kVocab;
    head.num_parts = 1;
    head.parts[0].weight = DenseWeight(m.tensor());
    ops_->Prepack(&head);
    const Array<int32_t> ids(*ops_, {95, 0, 17, 17, 64, 31});
    const Matrix out(*ops_, activation_, 6, hidden);
    ops_->Run(EmbedArgs{.out = out.tensor(),
                        .table = m.tensor(),
                        .ids = ids.tensor(),
                        .is_table_prepacked = head.parts[0].weight.is_prepacked});
    ExpectNear(out.Get(), RowsOf(table, hidden, ids.Get()), 1e-30, 0, "");
  }
}

// Negative ids are looked up among the tokens that were sampled last.
TEST_P(ElementwiseTest, EmbedReadsSampledTokens) {
  OnEveryTarget(device(), [&](const std::string& target) {
    constexpr int kVocab = 9, kHidden = 17;
    const std::vector<float> table = RandomFloats(kVocab * kHidden, 3);
    const Matrix m(*ops_, dtype(), kVocab, kHidden, table);
    const Array<int32_t> ids(*ops_, {-1, 4, -3, -2}), sampled(*ops_, {8, -1, 2});
    const Matrix out(*ops_, activation_, 4, kHidden);
    ops_->Run(EmbedArgs{.out = out.tensor(),
                        .table = m.tensor(),
                        .ids = ids.tensor(),
                        .sampled = sampled.tensor()});
    const std::vector<float> rows = out.Get();
    ExpectNear({rows.begin(), rows.begin() + 3 * kHidden}, RowsOf(table, kHidden, {8, 4, 2}), 1e-30,
               0, target);
    for (int i = 0; i < kHidden; ++i) EXPECT_TRUE(std::isnan(rows[3 * kHidden + i])) << target;
  });
}

// The definition stated differently: SplitMix64 stepped as in java.util.SplittableRandom, one byte
// per value.
TEST_P(ElementwiseTest, FillRandomIsTheSameOnEveryDevice) {
  for (const int count : {1, 7, 8, 1025, 70001}) {
    const Matrix out(*ops_, dtype(), 1, count, count + 9);
    const uint64_t seed = 1234567;
    ops_->Run(FillRandomArgs{.out = out.vector(), .seed = seed});
    std::vector<float> expected;
    uint64_t state = seed, bits = 0;
    for (int i = 0; i < count; ++i) {
      if (i % 8 == 0) {
        state += 0x9E3779B97F4A7C15u;
        bits = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
        bits ^= bits >> 31;
        if (i == 0) {
          ASSERT_EQ(bits, 6457827717110365317u) << "published for this seed";
        }
      }
      const int byte = static_cast<int>(bits >> 8 * (i % 8) & 0xFF);
      expected.push_back(static_cast<float>((byte < 128 ? 1 : -1) * (128 + byte % 128)) / 16384);
    }
    EXPECT_EQ(out.Get(), expected);
  }
}

TEST_P(ElementwiseTest, GatherRowsCopiesRows) {
  for (int n : {1, 17, 257}) {
    const std::vector<float> x = RandomFloats(6 * n, 4);
    const Matrix m(*ops_, activation_, 6, n, x, n + 2);
    const Array<int32_t> rows(*ops_, {5, 0, 5});
    const Matrix out(*ops_, activation_, 3, n, n + 9);
    ops_->Run(GatherRowsArgs{.out = out.tensor(), .x = m.tensor(), .rows = rows.tensor()});
    std::vector<double> expected;
    for (int row : {5, 0, 5}) {
      for (int i = 0; i < n; ++i) expected.push_back(Rounded(x[row * n + i], activation_));
    }
    ExpectNear(out.Get(), expected, 1e-30, 0);
  }
}

TEST_P(ElementwiseTest, PatchRowsReplacesAndAdds) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (const bool add : {false, true}) {
      for (const int n : {1, 17, 257, 1032}) {
        constexpr int kRows = 3;
        const std::vector<float> x = RandomFloats(kRows * n, 4);
        const std::vector<float> before = RandomFloats(kRows * n, 5);
        const Matrix m(*ops_, dtype(), kRows, n, x, 3 * n + 2);
        const Matrix out(*ops_, DType::kF32, kRows, n, before, n + 9);
        ops_->Run(PatchRowsArgs{.out = out.tensor(), .x = m.tensor(), .add = add});
        std::vector<float> expected;
        for (int i = 0; i < kRows * n; ++i) {
          expected.push_back(Rounded(x[i], dtype()) + (add ? before[i] : 0.f));
        }
        EXPECT_EQ(out.Get(), expected) << target << " n=" << n << " add=" << add;
      }
    }
  });
}

TEST_P(ElementwiseTest, RmsNormMatchesNaive) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (int n : {1, 2, 8, 15, 16, 17, 64, 257, 1024, 5120}) {
      for (int rows : {1, 3, 33}) {
        const std::vector<float> x = Activations(size_t{1} * rows * n, n, 3.0f);
        const std::vector<float> w = Rounded(RandomFloats(n, n + 1), dtype());
        const Matrix mx(*ops_, activation_, rows, n, x, n + 5);
        const Matrix mw(*ops_, dtype(), 1, n, w);
        const Matrix out(*ops_, activation_, rows, n, n + 1);
        ops_->Run(RmsNormArgs{
            .out = out.tensor(), .x = mx.tensor(), .weight = mw.vector(), .eps = 1e-6f});
        ExpectNear(out.Get(), NaiveRmsNorm(x, w, 1e-6), 1e-6, 2e-6 + rounding_, target);
      }
    }
  });
}

TEST_P(ElementwiseTest, RmsNormOfZerosIsZeroAndInPlaceWorks) {
  const Matrix w(*ops_, dtype(), 1, 20, std::vector<float>(20, 2.0f));
  const Matrix x(*ops_, activation_, 2, 20, std::vector<float>(40, 0.0f));
  ops_->Run(RmsNormArgs{.out = x.tensor(), .x = x.tensor(), .weight = w.vector(), .eps = 1e-6f});
  ExpectNear(x.Get(), std::vector<double>(40, 0.0), 1e-30, 0);
}

// Rows of one batch are bit-identical to the same rows alone.
TEST_P(ElementwiseTest, RowsDoNotSeeTheirNeighbours) {
  constexpr int kRows = 40, kWidth = 1000;
  const std::vector<float> x = RandomFloats(kRows * kWidth, 5);
  const Matrix mx(*ops_, activation_, kRows, kWidth, x);
  const Matrix w(*ops_, dtype(), 1, kWidth, RandomFloats(kWidth, 6));
  const Matrix norm(*ops_, activation_, kRows, kWidth);
  ops_->Run(
      RmsNormArgs{.out = norm.tensor(), .x = mx.tensor(), .weight = w.vector(), .eps = 1e-6f});
  const std::vector<float> all_norms = norm.Get();
  for (int r : {0, 17, 39}) {
    const Matrix one(*ops_, activation_, 1, kWidth,
                     {x.begin() + r * kWidth, x.begin() + (r + 1) * kWidth});
    const Matrix one_norm(*ops_, activation_, 1, kWidth);
    ops_->Run(RmsNormArgs{
        .out = one_norm.tensor(), .x = one.tensor(), .weight = w.vector(), .eps = 1e-6f});
    EXPECT_TRUE(SameBits(one_norm.Get(),
                         {all_norms.begin() + r * kWidth, all_norms.begin() + (r + 1) * kWidth}));
  }
}

// --- real data --------------------------------------------------------------------------------

// One BF16 tensor of a safetensors file whose header is small and known to be well-formed.
std::vector<float> ReadBf16(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  const std::string bytes = content.str();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const std::string json = bytes.substr(8, header);
  const size_t entry = json.find("\"" + name + "\":");
  const size_t offsets = json.find("\"data_offsets\":[", entry) + 16;
  size_t begin = 0, end = 0;
  KU_CHECK(entry != std::string::npos &&
           std::sscanf(json.c_str() + offsets, "%zu,%zu", &begin, &end) == 2);
  std::vector<float> values;
  for (size_t i = begin; i < end; i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 8 + header + i, 2);
    values.push_back(ToFloat(BFloat16{bits}));
  }
  return values;
}

// RMSNorm of layer 8 of Qwen3-0.6B as Hugging Face computed it. The weight is not part of the
// fixture, so it is derived from 16 rows of one file (the median of output / normalised input, in
// BF16). It must predict another file's row.
TEST(RmsNormFixture, PredictsHuggingFaceOutput) {
  const std::string dir = "layer_fixtures/Qwen3-0.6B-layer-8/";
  KU_REQUIRE_SHARED(dir);
  constexpr int kHidden = 1024;
  for (const Device device : DevicesUnderTest()) {
    const auto ops = MakeTestOps(device);
    const auto normalise = [&](const std::vector<float>& x, const std::vector<float>& weight) {
      const int rows = static_cast<int>(x.size()) / kHidden;
      const Matrix mx(*ops, DType::kF32, rows, kHidden, x);
      const Matrix mw(*ops, DType::kBF16, 1, kHidden, weight);
      const Matrix out(*ops, DType::kF32, rows, kHidden);
      ops->Run(
          RmsNormArgs{.out = out.tensor(), .x = mx.tensor(), .weight = mw.vector(), .eps = 1e-6f});
      return out.Get();
    };
    const std::string many = Shared(dir + "norm-Qwen3-0.6B-00.safetensors");
    const std::vector<float> x = ReadBf16(many, "input_hidden_states");
    const std::vector<float> y = ReadBf16(many, "output");
    const std::vector<float> plain = normalise(x, std::vector<float>(kHidden, 1.0f));
    std::vector<float> weight;
    for (int i = 0; i < kHidden; ++i) {
      std::vector<float> ratios;
      for (size_t r = 0; r < x.size() / kHidden; ++r) {
        const float normalised = Rounded(plain[r * kHidden + i], DType::kBF16);
        if (normalised != 0) ratios.push_back(y[r * kHidden + i] / normalised);
      }
      std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2, ratios.end());
      weight.push_back(Rounded(ratios[ratios.size() / 2], DType::kBF16));
    }
    const std::string single = Shared(dir + "norm-Qwen3-0.6B-01.safetensors");
    const std::vector<float> expected = ReadBf16(single, "output");
    const std::vector<float> actual = normalise(ReadBf16(single, "input_hidden_states"), weight);
    // Three BF16 roundings separate the two: input, normalised, output.
    ExpectNear(actual, std::vector<double>(expected.begin(), expected.end()), 1e-6, 0.012);
  }
}

}  // namespace
}  // namespace kuiper::test
