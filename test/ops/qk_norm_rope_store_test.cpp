// Compares QkNormRopeStore with naive double loops: every storage of keys and values, head size,
// weight type and instruction set.
#include <algorithm>
#include <utility>

#include "cpu_targets.h"
#include "kv_rows.h"
#include "naive_norm.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

class QkNormRopeStoreTest : public TypedOpsTest {
 protected:
  const std::unique_ptr<Ops> ops_ = MakeTestOps(device());
};
KU_INSTANTIATE_TYPED_OPS_TEST(QkNormRopeStoreTest);

struct RopeCase {
  int head_dim, heads, kv_heads;
  bool norm;
  int axes;
};

// Storage of either kind for two layers, filled with NaN, with a view of the second layer. It has
// four pages of four tokens in slabs of two pages, or two rows of eight tokens.
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
  // Returns all its bytes.
  std::vector<char> Get() const {
    std::vector<char> all;
    for (const Matrix& slab : slabs_) {
      const std::vector<char> part = slab.Bytes();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  // Returns the values of a key or value. Resets its bytes in `all` to those of unwritten storage.
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

// Returns the heads of x [tokens, heads, d], normalised (unless `norm` is empty) and rotated, in
// double precision.
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

TEST_P(QkNormRopeStoreTest, MatchesNaive) {
  OnEveryTarget(device(), [&](const std::string& target) {
    for (int head_dim : {2, 6, 8, 16, 64, 72, 80, 128, 160, 512}) {
      for (bool norm : {false, true}) {
        for (const DType kv_type : KvTypes()) {
          if (!IsFloat(kv_type) || kv_type == dtype()) {
            CheckRope(*ops_, dtype(), kv_type, KvView::Kind::kPaged, {head_dim, 4, 2, norm, 1},
                      target);
          }
          CheckRope(*ops_, dtype(), kv_type, KvView::Kind::kContiguous, {head_dim, 7, 1, norm, 3},
                    target);
        }
      }
    }
  });
}

}  // namespace
}  // namespace kuiper::test
