// Attention and StoreKv against naive double-precision loops, and the bit guarantees: paged ==
// contiguous, batched == alone, chunked == whole, any thread count. Every cache element that is not
// a key or value of a sequence is NaN, so a read beyond a row's length shows.
#include <algorithm>
#include <numeric>

#include "cpu_targets.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

struct Shape {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

// The last q_len of a sequence's kv_len tokens are queries; `id` selects its data.
struct Seq {
  int id = 0;
  int q_len = 1;
  int kv_len = 1;
};

// Data of token `pos` of sequence `id`, independent of everything else: about normal with variance
// 1, from a multiplicative hash (seeding a library engine per token would dominate the test).
std::vector<float> TokenData(int id, int pos, int which, int width) {
  uint64_t state = (uint64_t{1} * id << 40) + (uint64_t{1} * pos << 8) + which;
  std::vector<float> values(width);
  for (float& x : values) {
    int sum = 0;  // of four uniform 16-bit numbers
    state += 0x9E3779B97F4A7C15u;
    uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    z ^= z >> 27;
    z *= 0x94D049BB133111EBu;
    z ^= z >> 31;
    for (int i = 0; i < 4; ++i) sum += static_cast<int>(z >> (16 * i) & 0xFFFF);
    x = (static_cast<float>(sum) / 65536.0f - 2.0f) * 1.7320508f;
  }
  return values;
}

// One layer (of three) of a cache of either kind, poisoned with NaN and filled by StoreKv.
class Cache {
 public:
  // page_size 0: contiguous with rows of max_len.
  Cache(Ops& ops, DType dtype, const Shape& shape, const std::vector<Seq>& seqs, int page_size,
        uint32_t shuffle_seed)
      : ops_(ops), shape_(shape), paged_(page_size > 0) {
    int max_len = 0;
    for (const Seq& s : seqs) max_len = std::max(max_len, s.kv_len);
    page_size_ = paged_ ? page_size : max_len + 3;
    const int pages_per_seq = (max_len + page_size_ - 1) / page_size_;
    const int num_pages = static_cast<int>(seqs.size()) * pages_per_seq + 2;
    std::vector<int32_t> order(num_pages - 1);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), std::mt19937(shuffle_seed));

    const int table_stride = pages_per_seq + 1;
    tables_.assign(seqs.size() * table_stride, -1);
    size_t next = 0;
    for (size_t s = 0; s < seqs.size(); ++s) {
      const int used = (seqs[s].kv_len + page_size_ - 1) / page_size_;
      for (int p = 0; p < used; ++p) tables_[s * table_stride + p] = order[next++];
    }
    device_tables_ = std::make_unique<Array<int32_t>>(ops, tables_);

    constexpr int kLayers = 3, kSlabShift = 1;
    const int64_t head_stride = int64_t{2} * page_size_ * shape.head_dim;
    const int64_t page_stride = kLayers * shape.kv_heads * head_stride;
    const int slab_pages = paged_ ? 1 << kSlabShift : num_pages;
    for (int first = 0; first < num_pages; first += slab_pages) {
      slabs_.emplace_back(ops, dtype, slab_pages, static_cast<int>(page_stride));
      slab_pointers_.push_back(slabs_.back().tensor().data);
    }
    std::vector<int64_t> addresses;
    for (void* slab : slab_pointers_) addresses.push_back(reinterpret_cast<intptr_t>(slab));
    device_slabs_ = std::make_unique<Array<int64_t>>(ops, addresses);
    view_.kind = paged_ ? KvView::Kind::kPaged : KvView::Kind::kContiguous;
    view_.dtype = dtype;
    view_.kv_heads = shape.kv_heads;
    view_.slabs = static_cast<void* const*>(device_slabs_->tensor().data);
    view_.base = slab_pointers_[0];
    view_.tables = device_tables_->tensor().ptr<int32_t>();
    view_.table_stride = table_stride;
    view_.slab_shift = kSlabShift;
    while (paged_ && (1 << view_.page_shift) < page_size_) ++view_.page_shift;
    view_.max_len = page_size_;
    view_.s.page_stride = page_stride;
    view_.s.layer_offset = shape.kv_heads * head_stride;
    view_.s.head_stride = head_stride;
    view_.s.v_offset = int64_t{page_size_} * shape.head_dim;
    view_.s.token_stride = shape.head_dim;
    view_.s.head_dim = shape.head_dim;
    Fill(seqs);
  }

  const KvView& view() const { return view_; }
  int32_t page(int seq, int block) const { return tables_[seq * view_.table_stride + block]; }

 private:
  void Fill(const std::vector<Seq>& seqs) {
    std::vector<float> k, v;
    std::vector<int32_t> slots;
    for (size_t s = 0; s < seqs.size(); ++s) {
      for (int pos = 0; pos < seqs[s].kv_len; ++pos) {
        for (float x : TokenData(seqs[s].id, pos, 1, shape_.kv_width())) k.push_back(x);
        for (float x : TokenData(seqs[s].id, pos, 2, shape_.kv_width())) v.push_back(x);
        const int32_t page = tables_[s * view_.table_stride + pos / page_size_];
        slots.push_back(page * page_size_ + pos % page_size_);
      }
    }
    const int n = static_cast<int>(slots.size());
    const Matrix mk(ops_, DType::kF32, n, shape_.kv_width(), k, shape_.kv_width() + 5);
    const Matrix mv(ops_, DType::kF32, n, shape_.kv_width(), v, shape_.kv_width() + 3);
    const Array<int32_t> device_slots(ops_, slots);
    ops_.StoreKv(view_, mk.tensor(), mv.tensor(), device_slots.tensor());
  }

  Ops& ops_;
  Shape shape_;
  bool paged_;
  int page_size_ = 0;
  std::vector<int32_t> tables_;
  std::unique_ptr<Array<int32_t>> device_tables_;
  std::vector<Matrix> slabs_;
  std::vector<void*> slab_pointers_;
  std::unique_ptr<Array<int64_t>> device_slabs_;
  KvView view_;
};

std::vector<float> Attend(Ops& ops, DType dtype, const Shape& shape, const std::vector<Seq>& seqs,
                          int page_size, uint32_t shuffle_seed = 1) {
  const Cache cache(ops, dtype, shape, seqs, page_size, shuffle_seed);
  std::vector<float> q;
  std::vector<int32_t> cu_q{0}, kv_lens;
  AttnMeta meta;
  for (const Seq& s : seqs) {
    for (int pos = s.kv_len - s.q_len; pos < s.kv_len; ++pos) {
      for (float x : TokenData(s.id, pos, 3, shape.q_width())) q.push_back(x);
    }
    cu_q.push_back(cu_q.back() + s.q_len);
    kv_lens.push_back(s.kv_len);
    meta.max_q_len = std::max(meta.max_q_len, s.q_len);
    meta.max_kv_len = std::max(meta.max_kv_len, s.kv_len);
  }
  const int rows = cu_q.back();
  const Array<int32_t> device_cu_q(ops, cu_q), device_lens(ops, kv_lens);
  meta.cu_seqlens_q = device_cu_q.tensor();
  meta.kv_lens = device_lens.tensor();
  meta.num_seqs = static_cast<int>(seqs.size());
  const DType activation = ops.ActivationType(dtype);
  const Matrix mq(ops, activation, rows, shape.q_width(), q, shape.q_width() + 7);
  const Matrix out(ops, activation, rows, shape.q_width(), shape.q_width() + 2);
  ops.Attention(out.tensor(), mq.tensor(), cache.view(), meta,
                1.0f / std::sqrt(static_cast<float>(shape.head_dim)));
  ops.Sync();
  return out.Get();
}

std::vector<double> Naive(const Ops& ops, DType dtype, const Shape& shape, const Seq& seq) {
  const int d = shape.head_dim;
  std::vector<std::vector<float>> k, v;
  for (int pos = 0; pos < seq.kv_len; ++pos) {
    k.push_back(Rounded(TokenData(seq.id, pos, 1, shape.kv_width()), dtype));
    v.push_back(Rounded(TokenData(seq.id, pos, 2, shape.kv_width()), dtype));
  }
  std::vector<double> out;
  for (int pos = seq.kv_len - seq.q_len; pos < seq.kv_len; ++pos) {
    const std::vector<float> q =
        Rounded(TokenData(seq.id, pos, 3, shape.q_width()), ops.ActivationType(dtype));
    for (int h = 0; h < shape.heads; ++h) {
      const int g = h / (shape.heads / shape.kv_heads);
      std::vector<double> p(pos + 1);
      double sum = 0;
      for (int j = 0; j <= pos; ++j) {
        double dot = 0;
        for (int i = 0; i < d; ++i) dot += double{q[h * d + i]} * k[j][g * d + i];
        p[j] = std::exp(dot / std::sqrt(static_cast<double>(d)));
        sum += p[j];
      }
      for (int i = 0; i < d; ++i) {
        double x = 0;
        for (int j = 0; j <= pos; ++j) x += p[j] * v[j][g * d + i];
        out.push_back(x / sum);
      }
    }
  }
  return out;
}

std::vector<double> Naive(const Ops& ops, DType dtype, const Shape& shape,
                          const std::vector<Seq>& seqs) {
  std::vector<double> out;
  for (const Seq& s : seqs) {
    for (double x : Naive(ops, dtype, shape, s)) out.push_back(x);
  }
  return out;
}

std::string Describe(const Shape& s) {
  return std::to_string(s.heads) + " heads, " + std::to_string(s.kv_heads) + " kv heads of " +
         std::to_string(s.head_dim);
}

const AttentionKind kKinds[] = {AttentionKind::kMha, AttentionKind::kFlash1};

class AttentionTest : public TypedOpsTest {
 protected:
  std::unique_ptr<Ops> Make(AttentionKind kind, int threads = 2) {
    OpsOptions options;
    options.attention = kind;
    options.num_threads = threads;
    return MakeTestOps(std::get<0>(GetParam()), options);
  }
  DType dtype() const { return std::get<1>(GetParam()); }
  void ExpectNaive(const Ops& ops, const std::vector<float>& out, const Shape& shape,
                   const std::vector<Seq>& seqs, const std::string& what = "") const {
    const double rounding = RoundingError(ops.ActivationType(dtype()));
    ExpectNear(out, Naive(ops, dtype(), shape, seqs), 2e-5, 2e-5 + rounding, what);
  }
};
KU_INSTANTIATE_TYPED_OPS_TEST(AttentionTest);

TEST_P(AttentionTest, MatchesNaiveForEveryShape) {
  const std::vector<Seq> seqs = {{1, 1, 1}, {2, 5, 5}, {3, 1, 70}, {4, 33, 65}, {5, 1, 129}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (int head_dim : {2, 6, 8, 16, 64, 80, 128}) {
      for (int group : {1, 2, 4, 5, 7, 8}) {
        const Shape shape{2 * group, 2, head_dim};
        ExpectNaive(*ops, Attend(*ops, dtype(), shape, seqs, 16), shape, seqs, Describe(shape));
      }
    }
  }
}

TEST_P(AttentionTest, MatchesNaiveOnWideGroupsAndHeads) {
  const std::vector<Seq> seqs = {{1, 3, 67}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (const Shape& shape : {Shape{50, 1, 16}, Shape{1, 1, 256}, Shape{2, 1, 512}}) {
      ExpectNaive(*ops, Attend(*ops, dtype(), shape, seqs, 8), shape, seqs, Describe(shape));
    }
  }
}

TEST_P(AttentionTest, PagedEqualsContiguousForEveryPageSize) {
  const Shape shape{4, 2, 16};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (int page : {1, 4, 8, 16, 32, 64, 128, 256}) {
      std::vector<Seq> seqs;
      for (int len : {1, page - 1, page, page + 1, 3 * page + 1, 63, 64, 65, 127, 128, 129}) {
        if (len > 0) seqs.push_back({len, std::min(len, 3), len});
      }
      const std::vector<float> contiguous = Attend(*ops, dtype(), shape, seqs, 0);
      for (uint32_t shuffle : {1u, 2u}) {
        EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, page, shuffle), contiguous))
            << "page size " << page;
      }
      ExpectNaive(*ops, contiguous, shape, seqs);
    }
  }
}

// Lengths around the ends of the key ranges that a backend may give to different blocks, alone (so
// that they are shared) and in a batch with prompts.
TEST_P(AttentionTest, LongContextsMatchNaive) {
  const Shape shape{2, 1, 16};
  std::vector<Seq> seqs;
  for (int len : {128, 129, 255, 257, 640, 2047, 2048, 2049, 2305}) seqs.push_back({len, 1, len});
  seqs.push_back({7, 9, 300});
  const auto ops = Make(AttentionKind::kFlash1);
  const std::vector<float> batch = Attend(*ops, dtype(), shape, seqs, 16);
  ExpectNaive(*ops, batch, shape, seqs);
  size_t row = 0;
  for (const Seq& seq : seqs) {
    const std::vector<float> alone = Attend(*ops, dtype(), shape, {seq}, 64);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch.begin() + row)) << seq.kv_len;
    row += alone.size();
  }
}

TEST_P(AttentionTest, BatchedEqualsAlone) {
  const Shape shape{6, 2, 64};
  const std::vector<Seq> seqs = {{1, 1, 200}, {2, 40, 90}, {3, 1, 1}, {4, 7, 7}, {5, 1, 64}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    std::vector<float> alone;
    for (const Seq& s : seqs) {
      for (float x : Attend(*ops, dtype(), shape, {s}, 16)) alone.push_back(x);
    }
    EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, 16), alone));
  }
}

TEST_P(AttentionTest, ChunkedEqualsWhole) {
  const Shape shape{6, 3, 32};
  constexpr int kLen = 210;
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    const std::vector<float> whole = Attend(*ops, dtype(), shape, {{9, kLen, kLen}}, 16);
    for (int chunk : {1, 7, 16, 64, 100}) {
      std::vector<float> chunked;
      for (int begin = 0; begin < kLen; begin += chunk) {
        const int end = std::min(kLen, begin + chunk);
        for (float x : Attend(*ops, dtype(), shape, {{9, end - begin, end}}, 16)) {
          chunked.push_back(x);
        }
      }
      EXPECT_TRUE(SameBits(chunked, whole)) << "chunks of " << chunk;
    }
  }
}

TEST_P(AttentionTest, ThreadCountDoesNotChangeBits) {
  const Shape shape{8, 2, 64};
  const std::vector<Seq> seqs = {{1, 100, 150}, {2, 1, 300}, {3, 1, 5}};
  for (AttentionKind kind : kKinds) {
    const std::vector<float> one = Attend(*Make(kind, 1), dtype(), shape, seqs, 16);
    EXPECT_TRUE(SameBits(Attend(*Make(kind, 2), dtype(), shape, seqs, 16), one));
    EXPECT_TRUE(SameBits(Attend(*Make(kind, 3), dtype(), shape, seqs, 16), one));
  }
}

TEST_P(AttentionTest, EveryInstructionSetMatchesNaiveAndKeepsTheGuarantees) {
  if (std::get<0>(GetParam()).type != DeviceType::kCPU) GTEST_SKIP() << "instruction sets of CPUs";
  const std::vector<Seq> seqs = {{1, 20, 90}, {2, 1, 131}, {3, 1, 1}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    ForEachCpuTarget([&](const std::string& target) {
      for (const Shape& shape : {Shape{5, 1, 16}, Shape{4, 2, 80}, Shape{4, 4, 10}}) {
        const std::vector<float> out = Attend(*ops, dtype(), shape, seqs, 16);
        ExpectNaive(*ops, out, shape, seqs, target + ": " + Describe(shape));
        EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, 0), out)) << target;
        const std::vector<float> alone = Attend(*ops, dtype(), shape, {seqs[0]}, 16);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin())) << target;
      }
    });
  }
}

// Masked positions are skipped, not multiplied by zero.
TEST_P(AttentionTest, NaNInAKeyReachesLaterRowsOnly) {
  const Shape shape{2, 1, 16};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (bool in_value : {false, true}) {
      constexpr int kLen = 100, kBad = 70;
      const std::vector<Seq> seqs = {{1, kLen, kLen}};
      Cache cache(*ops, dtype(), shape, seqs, 128, 1);
      // Position kBad of the only page.
      const Matrix k(*ops, DType::kF32, 1, 16,
                     in_value ? TokenData(1, kBad, 1, 16) : std::vector<float>(16, kNaN));
      const Matrix v(*ops, DType::kF32, 1, 16,
                     in_value ? std::vector<float>(16, kNaN) : TokenData(1, kBad, 2, 16));
      const int32_t page = cache.page(0, 0);
      const Array<int32_t> slot(*ops, {page * 128 + kBad});
      ops->StoreKv(cache.view(), k.tensor(), v.tensor(), slot.tensor());

      std::vector<float> q;
      for (int pos = 0; pos < kLen; ++pos) {
        for (float x : TokenData(1, pos, 3, shape.q_width())) q.push_back(x);
      }
      const Matrix mq(*ops, DType::kF32, kLen, shape.q_width(), q);
      const Matrix out(*ops, DType::kF32, kLen, shape.q_width());
      const Array<int32_t> cu_q(*ops, {0, kLen}), lens(*ops, {kLen});
      AttnMeta meta{cu_q.tensor(), lens.tensor(), 1, kLen, kLen};
      ops->Attention(out.tensor(), mq.tensor(), cache.view(), meta, 0.25f);
      const std::vector<float> result = out.Get();
      for (int pos = 0; pos < kLen; ++pos) {
        for (int i = 0; i < shape.q_width(); ++i) {
          ASSERT_EQ(std::isnan(result[pos * shape.q_width() + i]), pos >= kBad) << "row " << pos;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kuiper::test
