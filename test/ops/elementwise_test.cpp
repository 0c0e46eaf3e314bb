// Embed, FillRandom, GatherRows, PatchRows, RmsNorm and QkNormRopeStore against naive double loops:
// odd sizes, row strides larger than the row, every weight type, every instruction set.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "../test_data.h"
#include "cpu_targets.h"
#include "kv_rows.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

// Runs f as dispatched and, on the CPU, once per instruction set.
template <typename F>
void OnEveryTarget(Device device, const F& f) {
  f(std::string("dispatched"));
  if (device.type == DeviceType::kCPU) ForEachCpuTarget(f);
}

class ElementwiseTest : public TypedOpsTest {
 protected:
  Device device() const { return std::get<0>(GetParam()); }
  DType weight_type() const { return std::get<1>(GetParam()); }
  const std::unique_ptr<Ops> ops_ = MakeTestOps(device());
  const DType activation_ = ops_->ActivationType(weight_type());
  const double rounding_ = RoundingError(activation_);
  // Data as a tensor of activations holds it.
  std::vector<float> Activations(size_t n, uint32_t seed, float scale = 1.0f) const {
    return Rounded(RandomFloats(n, seed, scale), activation_);
  }
};
KU_INSTANTIATE_TYPED_OPS_TEST(ElementwiseTest);

TEST_P(ElementwiseTest, EmbedCopiesTheRowsOfIds) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (int hidden : {1, 17, 257, 1024}) {
      constexpr int kVocab = 9;
      const std::vector<float> table = RandomFloats(kVocab * hidden, 3);
      const Matrix m(*ops_, weight_type(), kVocab, hidden, table, hidden + 3);
      const Array<int32_t> ids(*ops_, {8, 0, 3, 3, 1});
      const Matrix out(*ops_, activation_, 5, hidden, hidden + 1);
      ops_->Run(EmbedArgs{.out = out.tensor(), .table = m.tensor(), .ids = ids.tensor()});
      std::vector<double> expected;
      for (int id : ids.Get()) {
        for (int i = 0; i < hidden; ++i) {
          expected.push_back(Rounded(table[id * hidden + i], weight_type()));
        }
      }
      ExpectNear(out.Get(), expected, 1e-30, 0, target);
    }
  });
}

// A tied table has the order that the head's products take, if they take one.
TEST_P(ElementwiseTest, EmbedReadsATableThatIsPrepacked) {
  constexpr int kVocab = 96;
  for (int hidden : {32, 1024, 4128}) {
    const std::vector<float> table = RandomFloats(kVocab * hidden, 3);
    const Matrix m(*ops_, weight_type(), kVocab, hidden, table);
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
    std::vector<double> expected;
    for (int id : ids.Get()) {
      for (int i = 0; i < hidden; ++i) {
        expected.push_back(Rounded(table[id * hidden + i], weight_type()));
      }
    }
    ExpectNear(out.Get(), expected, 1e-30, 0, "");
  }
}

// Ids below zero are looked up among the tokens that were sampled last, wherever those come to lie.
TEST_P(ElementwiseTest, EmbedReadsSampledTokens) {
  OnEveryTarget(device(), [&](const std::string& target) {
    constexpr int kVocab = 9, kHidden = 17;
    const std::vector<float> table = RandomFloats(kVocab * kHidden, 3);
    const Matrix m(*ops_, weight_type(), kVocab, kHidden, table);
    const Array<int32_t> ids(*ops_, {-1, 4, -3, -2}), sampled(*ops_, {8, -1, 2});
    const Matrix out(*ops_, activation_, 4, kHidden);
    ops_->Run(EmbedArgs{.out = out.tensor(),
                        .table = m.tensor(),
                        .ids = ids.tensor(),
                        .sampled = sampled.tensor()});
    const std::vector<float> rows = out.Get();
    std::vector<double> expected;
    for (int id : {8, 4, 2}) {
      for (int i = 0; i < kHidden; ++i) {
        expected.push_back(Rounded(table[id * kHidden + i], weight_type()));
      }
    }
    ExpectNear({rows.begin(), rows.begin() + 3 * kHidden}, expected, 1e-30, 0, target);
    for (int i = 0; i < kHidden; ++i) EXPECT_TRUE(std::isnan(rows[3 * kHidden + i])) << target;
  });
}

// The definition in other words: SplitMix64 as java.util.SplittableRandom steps it, a byte a value.
TEST_P(ElementwiseTest, FillRandomIsTheSameOnEveryDevice) {
  for (const int count : {1, 7, 8, 1025, 70001}) {
    const Matrix out(*ops_, weight_type(), 1, count, count + 9);
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
        const Matrix m(*ops_, weight_type(), kRows, n, x, 3 * n + 2);
        const Matrix out(*ops_, DType::kF32, kRows, n, before, n + 9);
        ops_->Run(PatchRowsArgs{.out = out.tensor(), .x = m.tensor(), .add = add});
        std::vector<float> expected;
        for (int i = 0; i < kRows * n; ++i) {
          expected.push_back(Rounded(x[i], weight_type()) + (add ? before[i] : 0.f));
        }
        EXPECT_EQ(out.Get(), expected) << target << " n=" << n << " add=" << add;
      }
    }
  });
}

std::vector<double> NaiveRmsNorm(const std::vector<float>& x, const std::vector<float>& weight,
                                 double eps) {
  const size_t n = weight.size();
  std::vector<double> out;
  for (size_t row = 0; row < x.size() / n; ++row) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += double{x[row * n + i]} * x[row * n + i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i) out.push_back(x[row * n + i] * scale * weight[i]);
  }
  return out;
}

TEST_P(ElementwiseTest, RmsNormMatchesNaive) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (int n : {1, 2, 8, 15, 16, 17, 64, 257, 1024, 5120}) {
      for (int rows : {1, 3, 33}) {
        const std::vector<float> x = Activations(size_t{1} * rows * n, n, 3.0f);
        const std::vector<float> w = Rounded(RandomFloats(n, n + 1), weight_type());
        const Matrix mx(*ops_, activation_, rows, n, x, n + 5);
        const Matrix mw(*ops_, weight_type(), 1, n, w);
        const Matrix out(*ops_, activation_, rows, n, n + 1);
        ops_->Run(RmsNormArgs{
            .out = out.tensor(), .x = mx.tensor(), .weight = mw.vector(), .eps = 1e-6f});
        ExpectNear(out.Get(), NaiveRmsNorm(x, w, 1e-6), 1e-6, 2e-6 + rounding_, target);
      }
    }
  });
}

TEST_P(ElementwiseTest, RmsNormOfZerosIsZeroAndInPlaceWorks) {
  const Matrix w(*ops_, weight_type(), 1, 20, std::vector<float>(20, 2.0f));
  const Matrix x(*ops_, activation_, 2, 20, std::vector<float>(40, 0.0f));
  ops_->Run(RmsNormArgs{.out = x.tensor(), .x = x.tensor(), .weight = w.vector(), .eps = 1e-6f});
  ExpectNear(x.Get(), std::vector<double>(40, 0.0), 1e-30, 0);
}

// Rows of one batch equal the same rows alone, to the bit.
TEST_P(ElementwiseTest, RowsDoNotSeeTheirNeighbours) {
  constexpr int kRows = 40, kWidth = 1000;
  const std::vector<float> x = RandomFloats(kRows * kWidth, 5);
  const Matrix mx(*ops_, activation_, kRows, kWidth, x);
  const Matrix w(*ops_, weight_type(), 1, kWidth, RandomFloats(kWidth, 6));
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

// --- QkNormRopeStore --------------------------------------------------------------------------

struct RopeCase {
  int head_dim, heads, kv_heads;
  bool norm;
  int axes;
};

// Storage of either kind for two layers, filled with NaN, seen from the second: four pages of four
// tokens in slabs of two pages, or two rows of eight tokens.
class KvStorage {
 public:
  KvStorage(Ops& ops, DType dtype, int kv_heads, int head_dim, KvView::Kind kind) {
    const bool paged = kind == KvView::Kind::kPaged;
    page_size_ = paged ? 4 : 8;
    const int pages = kNumSlots / page_size_;
    view_.kind = kind;
    view_.format = KvFormat::Of(dtype);
    view_.kv_heads = kv_heads;
    view_.max_len = page_size_;
    view_.page_shift = 2;
    view_.slab_shift = 1;
    view_.SetPages(kLayers, head_dim, page_size_, /*layer=*/1);
    run_ = {dtype, head_dim, page_size_};
    const int num_slabs = paged ? 2 : 1;
    for (int i = 0; i < num_slabs; ++i) {
      slabs_.emplace_back(ops, DType::kU8, pages / num_slabs, static_cast<int>(PageBytes()));
    }
    std::vector<int64_t> addresses;
    for (const Matrix& slab : slabs_) {
      addresses.push_back(reinterpret_cast<intptr_t>(slab.tensor().data));
    }
    pointers_ = std::make_unique<Array<int64_t>>(ops, addresses);
    view_.slabs = static_cast<void* const*>(pointers_->tensor().data);
    view_.base = slabs_[0].tensor().data;
  }

  static constexpr int kNumSlots = 16;
  // Contiguous rows are numbered from 1.
  int first_slot() const { return view_.kind == KvView::Kind::kPaged ? 0 : page_size_; }
  const KvView& view() const { return view_; }
  // All bytes of it.
  std::vector<char> Get() const {
    std::vector<char> all;
    for (const Matrix& slab : slabs_) {
      const std::vector<char> part = slab.Bytes();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  // The values of a key or value, whose bytes become those of storage that nobody wrote to.
  std::vector<float> Take(std::vector<char>* all, int slot, int head, bool value) const {
    slot -= first_slot();
    char* const run = all->data() + slot / page_size_ * PageBytes() +
                      ((view_.kv_heads + head) * 2 + value) * run_.Bytes();
    char* const row = run + run_.Row(slot % page_size_);
    char* const scale = run + run_.Scale(slot % page_size_);
    std::vector<float> values = DecodeRow(run_.cache, row, scale, run_.head_dim);
    std::fill_n(row, run_.RowBytes(), kUnwritten);
    if (run_.cache == DType::kI8) std::fill_n(scale, 4, kUnwritten);
    return values;
  }
  static constexpr char kUnwritten = '\xFF';

 private:
  static constexpr int kLayers = 2;
  int64_t PageBytes() const { return int64_t{kLayers} * view_.kv_heads * 2 * run_.Bytes(); }

  int page_size_ = 0;
  NaiveRun run_;
  std::vector<Matrix> slabs_;
  std::unique_ptr<Array<int64_t>> pointers_;
  KvView view_;
};

constexpr int kRopeTokens = 11, kMaxPos = 50;

// Heads of x [tokens, heads, d] normalised (unless `norm` is empty) and rotated, in double.
std::vector<double> NaiveRope(const std::vector<float>& x, const std::vector<float>& norm, int d,
                              const std::vector<int32_t>& axis_of_pair,
                              const std::vector<int32_t>& positions) {
  const int half = d / 2, heads = static_cast<int>(x.size()) / kRopeTokens / d;
  std::vector<double> y(x.begin(), x.end());
  if (!norm.empty()) y = NaiveRmsNorm(x, norm, 1e-6);
  for (int t = 0; t < kRopeTokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      double* head = y.data() + (t * heads + h) * d;
      for (int i = 0; i < half; ++i) {
        const int pos = positions[axis_of_pair[i] * kRopeTokens + t];
        const double angle = pos * std::pow(1e4, -2.0 * i / d);
        const double a = head[i], b = head[half + i];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[half + i] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

void CheckRope(Ops& ops, DType weight_type, DType kv_type, KvView::Kind kind, const RopeCase& c,
               const std::string& target) {
  const DType activation = ops.ActivationType(weight_type);
  const int d = c.head_dim, half = d / 2, kv_width = c.kv_heads * d;
  std::vector<float> table;
  for (int pos = 0; pos < kMaxPos; ++pos) {
    for (int i = 0; i < d; ++i) {
      const double angle = pos * std::pow(1e4, -2.0 * (i % half) / d);
      table.push_back(static_cast<float>(i < half ? std::cos(angle) : std::sin(angle)));
    }
  }
  std::vector<int32_t> axis_of_pair(half), positions, slots;
  for (int i = 0; i < half; ++i) axis_of_pair[i] = i % c.axes;
  for (int i = 0; i < c.axes * kRopeTokens; ++i) positions.push_back(i * 17 % kMaxPos);
  const auto random = [&](int n, int seed, DType type) {
    return Rounded(RandomFloats(n, seed), type);
  };
  std::vector<float> q_norm = random(d, 1, weight_type), k_norm = random(d, 2, weight_type);
  const std::vector<float> q = random(kRopeTokens * c.heads * d, 3, activation);
  const std::vector<float> k = random(kRopeTokens * kv_width, 4, activation);
  const std::vector<float> v = random(kRopeTokens * kv_width, 5, activation);

  const KvStorage storage(ops, kv_type, c.kv_heads, d, kind);
  for (int t = 0; t < kRopeTokens; ++t) {
    slots.push_back(storage.first_slot() + (t * 5 + 3) % KvStorage::kNumSlots);
  }
  const Matrix mtable(ops, DType::kF32, kMaxPos, d, table);
  const Array<int32_t> maxis(ops, axis_of_pair), mpos(ops, positions, c.axes), mslots(ops, slots);
  const Matrix mq(ops, activation, kRopeTokens, c.heads * d, q, c.heads * d + 6);
  const Matrix mk(ops, activation, kRopeTokens, kv_width, k, kv_width + 1);
  const Matrix mv(ops, activation, kRopeTokens, kv_width, v, kv_width + 3);
  const Matrix mqn(ops, weight_type, 1, d, q_norm), mkn(ops, weight_type, 1, d, k_norm);
  ops.Run(QkNormRopeStoreArgs{
      .q = mq.tensor(),
      .store = {.kv = storage.view(), .k = mk.tensor(), .v = mv.tensor(), .slots = mslots.tensor()},
      .q_norm = c.norm ? mqn.vector() : Tensor(),
      .k_norm = c.norm ? mkn.vector() : Tensor(),
      .eps = 1e-6f,
      .rope = {mtable.tensor(), maxis.tensor()},
      .positions = mpos.matrix()});

  if (!c.norm) q_norm.clear(), k_norm.clear();
  ExpectNear(mq.Get(), NaiveRope(q, q_norm, d, axis_of_pair, positions), 3e-6,
             3e-6 + RoundingError(activation), target + " q");
  const std::vector<double> keys = NaiveRope(k, k_norm, d, axis_of_pair, positions);
  std::vector<char> stored = storage.Get();
  std::vector<float> got_k, got_v;
  for (int t = 0; t < kRopeTokens; ++t) {
    for (int g = 0; g < c.kv_heads; ++g) {
      for (float x : storage.Take(&stored, slots[t], g, false)) got_k.push_back(x);
      for (float x : storage.Take(&stored, slots[t], g, true)) got_v.push_back(x);
    }
  }
  double max_key = 0;
  for (double x : keys) max_key = std::max(max_key, std::abs(x));
  const KeepingError error = KeepingErrorOf(kv_type, max_key);
  ExpectNear(got_k, keys, 3e-6 + error.abs, 3e-6 + error.rel, target + " k");
  EXPECT_TRUE(SameBits(got_v, Kept(v, kv_type, d))) << target;
  EXPECT_TRUE(
      std::all_of(stored.begin(), stored.end(), [](char x) { return x == KvStorage::kUnwritten; }))
      << target << ": written outside the slots";
}

TEST_P(ElementwiseTest, QkNormRopeStoreMatchesNaive) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (int head_dim : {2, 6, 8, 16, 64, 72, 80, 128, 160, 512}) {
      for (bool norm : {false, true}) {
        for (const DType kv_type : KvTypes()) {
          if (!IsFloat(kv_type) || kv_type == weight_type()) {
            CheckRope(*ops_, weight_type(), kv_type, KvView::Kind::kPaged,
                      {head_dim, 4, 2, norm, 1}, target);
          }
          CheckRope(*ops_, weight_type(), kv_type, KvView::Kind::kContiguous,
                    {head_dim, 7, 1, norm, 3}, target);
        }
      }
    }
  });
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
// fixture, so it is taken from 16 rows of one file (the median of output / normalised input, in
// BF16) and must predict another file's row.
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
    // Three BF16 roundings lie between the two: input, normalised, output.
    ExpectNear(actual, std::vector<double>(expected.begin(), expected.end()), 1e-6, 0.012);
  }
}

}  // namespace
}  // namespace kuiper::test
