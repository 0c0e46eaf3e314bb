// Helpers of the attention tests: a cache of either kind, a call, and the reference, naive loops in
// double precision. Every cache element that is not a key or value of a sequence is NaN, so a read
// beyond a row's length is detected.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kv_rows.h"
#include "ops_test_util.h"

namespace kuiper::test {

struct Shape {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

// The last q_len of a sequence's kv_len tokens are queries; `id` selects its data. The whole pages
// of the first `shared` tokens are shared with the previous sequence.
struct Seq {
  int id = 0;
  int q_len = 1;
  int kv_len = 1;
  int shared = 0;
};

// AttnOptions as plain data of a test; with ALiBi, head h has the slope AlibiSlope(h).
struct Mask {
  bool causal = true;
  int window = 0;
  bool alibi = false;
};
inline float AlibiSlope(int head) {
  return std::exp2(-0.5f * static_cast<float>(head + 1));
}

// Data of token `pos` of sequence `id`, independent of all other tokens: approximately normal with
// variance 1, from a multiplicative hash. Seeding a library engine per token would dominate the
// test.
inline std::vector<float> TokenData(int id, int pos, int which, int width) {
  uint64_t state = (uint64_t{1} * id << 40) + (uint64_t{1} * pos << 8) + which;
  std::vector<float> values(width);
  for (float& x : values) {
    int sum = 0;  // sum of four uniform 16-bit numbers
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
      const int shared = paged_ ? seqs[s].shared / page_size_ : 0;
      for (int p = 0; p < used; ++p) {
        tables_[s * table_stride + p] =
            p < shared ? tables_[(s - 1) * table_stride + p] : order[next++];
      }
      shared_lens_.push_back(shared * page_size_);
    }
    device_tables_ = std::make_unique<Array<int32_t>>(ops, tables_);

    constexpr int kLayers = 3, kSlabShift = 1;
    const NaiveRun run{dtype, shape.head_dim, page_size_};
    const int page_bytes = kLayers * shape.kv_heads * 2 * static_cast<int>(run.Bytes());
    const int slab_pages = paged_ ? 1 << kSlabShift : num_pages;
    for (int first = 0; first < num_pages; first += slab_pages) {
      slabs_.emplace_back(ops, DType::kU8, slab_pages, page_bytes);
      slab_pointers_.push_back(slabs_.back().tensor().data);
    }
    std::vector<int64_t> addresses;
    for (void* slab : slab_pointers_) addresses.push_back(reinterpret_cast<intptr_t>(slab));
    device_slabs_ = std::make_unique<Array<int64_t>>(ops, addresses);
    view_.kind = paged_ ? KvView::Kind::kPaged : KvView::Kind::kContiguous;
    view_.format = KvFormat::Of(dtype);
    view_.kv_heads = shape.kv_heads;
    view_.slabs = static_cast<void* const*>(device_slabs_->tensor().data);
    view_.base = slab_pointers_[0];
    view_.tables = device_tables_->tensor().ptr<int32_t>();
    view_.table_stride = table_stride;
    view_.slab_shift = kSlabShift;
    while (paged_ && (1 << view_.page_shift) < page_size_) ++view_.page_shift;
    view_.max_len = page_size_;
    view_.SetPages(kLayers, shape.head_dim, page_size_, /*layer=*/1);
    Fill(seqs);
  }

  const KvView& view() const { return view_; }
  const std::vector<int32_t>& shared_lens() const { return shared_lens_; }
  int32_t page(int seq, int block) const { return tables_[seq * view_.table_stride + block]; }
  // Makes the positions before `end` unreadable: invalid page numbers, and NaN in their part of the
  // last page.
  void Forget(int seq, int end) {
    std::vector<int32_t> slots;
    for (int pos = end / page_size_ * page_size_; pos < end; ++pos) {
      slots.push_back(page(seq, pos / page_size_) * page_size_ + pos % page_size_);
    }
    const int n = static_cast<int>(slots.size());
    const Matrix nan(ops_, DType::kF32, std::max(1, n), shape_.kv_width());
    const Array<int32_t> device_slots(ops_, slots);
    const Tensor rows = nan.tensor().Rows(0, n);
    ops_.Run(StoreKvArgs{.kv = view_, .k = rows, .v = rows, .slots = device_slots.tensor()});
    for (int block = 0; block < end / page_size_; ++block) {
      tables_[seq * view_.table_stride + block] = -1;
    }
    device_tables_ = std::make_unique<Array<int32_t>>(ops_, tables_);
    view_.tables = device_tables_->tensor().ptr<int32_t>();
  }

 private:
  void Fill(const std::vector<Seq>& seqs) {
    std::vector<float> k, v;
    std::vector<int32_t> slots;
    for (size_t s = 0; s < seqs.size(); ++s) {
      for (int pos = shared_lens_[s]; pos < seqs[s].kv_len; ++pos) {
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
    ops_.Run(StoreKvArgs{
        .kv = view_, .k = mk.tensor(), .v = mv.tensor(), .slots = device_slots.tensor()});
  }

  Ops& ops_;
  Shape shape_;
  bool paged_;
  int page_size_ = 0;
  std::vector<int32_t> tables_, shared_lens_;
  std::unique_ptr<Array<int32_t>> device_tables_;
  std::vector<Matrix> slabs_;
  std::vector<void*> slab_pointers_;
  std::unique_ptr<Array<int64_t>> device_slabs_;
  KvView view_;
};

// `activation` is the type of queries and outputs; absent: ActivationFor the cache's type.
// `appends`: as in AttnMeta, for one query row per sequence.
inline std::vector<float> Attend(Ops& ops, const Cache& cache, DType dtype, const Shape& shape,
                                 const std::vector<Seq>& seqs, const Mask& mask,
                                 bool cascade = false, std::optional<DType> activation = {},
                                 bool appends = false) {
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
  const Array<int32_t> device_shared(ops, cache.shared_lens());
  meta.cu_seqlens_q = device_cu_q.tensor();
  meta.kv_lens = device_lens.tensor();
  meta.num_seqs = static_cast<int>(seqs.size());
  meta.appends = appends;
  if (cascade) meta.shared_lens = device_shared.tensor();
  const DType type = activation.value_or(ActivationFor(ops, dtype));
  const Matrix mq(ops, type, rows, shape.q_width(), q, shape.q_width() + 7);
  const Matrix out(ops, type, rows, shape.q_width(), shape.q_width() + 2);
  std::vector<float> slopes;
  for (int h = 0; h < shape.heads && mask.alibi; ++h) slopes.push_back(AlibiSlope(h));
  const Array<float> device_slopes(ops, slopes);
  AttnOptions options;
  options.causal = mask.causal;
  options.window = mask.window;
  if (mask.alibi) options.alibi_slopes = device_slopes.tensor();
  ops.Run(AttentionArgs{.out = out.tensor(),
                        .q = mq.tensor(),
                        .kv = cache.view(),
                        .meta = meta,
                        .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                        .options = options});
  ops.device().Sync();
  return out.Get();
}

inline std::vector<float> Attend(Ops& ops, DType dtype, const Shape& shape,
                                 const std::vector<Seq>& seqs, int page_size, const Mask& mask = {},
                                 uint32_t shuffle_seed = 1) {
  return Attend(ops, Cache(ops, dtype, shape, seqs, page_size, shuffle_seed), dtype, shape, seqs,
                mask);
}

// Returns the type to which scaled queries and softmax weights are rounded before the products. For
// INT8, the CPU multiplies by INT16, which is not rounding to a type.
inline DType ProductType(const ComputeDevice& device, DType cache) {
  const bool wide = cache == DType::kF32 || cache == DType::kF16 || cache == DType::kI8;
  return device.id().type == DeviceType::kCPU && !wide ? DType::kBF16 : DType::kF32;
}
// Returns the relative error of that rounding.
inline double ProductError(const ComputeDevice& device, DType cache) {
  if (device.id().type == DeviceType::kCPU && cache == DType::kI8) return 0x1p-14;
  return RoundingError(ProductType(device, cache));
}

// `activation` is the type of the queries, `dtype` that of the cache; softmax weights are not
// rounded.
inline std::vector<double> Naive(DType activation, DType dtype, DType products, const Shape& shape,
                                 const Seq& seq, const Mask& mask) {
  const int d = shape.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<std::vector<float>> k, v;
  for (int pos = 0; pos < seq.kv_len; ++pos) {
    k.push_back(Kept(TokenData(seq.id, pos, 1, shape.kv_width()), dtype, d));
    v.push_back(Kept(TokenData(seq.id, pos, 2, shape.kv_width()), dtype, d));
  }
  std::vector<double> out;
  for (int pos = seq.kv_len - seq.q_len; pos < seq.kv_len; ++pos) {
    std::vector<float> q = Rounded(TokenData(seq.id, pos, 3, shape.q_width()), activation);
    for (float& x : q) x *= scale;
    q = Rounded(q, products);
    for (int h = 0; h < shape.heads; ++h) {
      const int g = h / (shape.heads / shape.kv_heads);
      std::vector<double> p(seq.kv_len, 0.0);
      double sum = 0;
      for (int j = 0; j < seq.kv_len; ++j) {
        if (mask.causal && j > pos) continue;
        if (mask.window > 0 && std::abs(j - pos) >= mask.window) continue;
        double dot = 0;
        for (int i = 0; i < d; ++i) dot += double{q[h * d + i]} * k[j][g * d + i];
        const double bias = mask.alibi ? double{AlibiSlope(h)} * (j - pos) : 0.0;
        p[j] = std::exp(dot + bias);
        sum += p[j];
      }
      for (int i = 0; i < d; ++i) {
        double x = 0;
        for (int j = 0; j < seq.kv_len; ++j) x += p[j] * v[j][g * d + i];
        out.push_back(x / sum);
      }
    }
  }
  return out;
}

inline std::vector<double> Naive(DType activation, DType dtype, DType products, const Shape& shape,
                                 const std::vector<Seq>& seqs, const Mask& mask = {}) {
  std::vector<double> out;
  for (const Seq& s : seqs) {
    for (double x : Naive(activation, dtype, products, shape, s, mask)) out.push_back(x);
  }
  return out;
}

inline std::string Describe(const Shape& s) {
  return std::to_string(s.heads) + " heads, " + std::to_string(s.kv_heads) + " kv heads of " +
         std::to_string(s.head_dim);
}
inline std::string Describe(const Mask& m) {
  return std::string(m.causal ? "causal" : "all keys") + ", window " + std::to_string(m.window) +
         (m.alibi ? ", ALiBi" : "");
}

constexpr AttentionKind kKinds[] = {AttentionKind::kMha, AttentionKind::kFlash1};

class AttentionTestBase : public TypedOpsTest {
 protected:
  std::unique_ptr<Ops> Make(AttentionKind kind, int threads = 2) {
    OpsOptions options;
    options.attention = kind;
    options.num_threads = threads;
    return MakeTestOps(device(), options);
  }
  void ExpectNaive(const Ops& ops, const std::vector<float>& out, const Shape& shape,
                   const std::vector<Seq>& seqs, const std::string& what = "",
                   const Mask& mask = {}) const {
    const DType activation = ActivationFor(ops, dtype());
    const DType products = ProductType(ops.device(), dtype());
    // All values are within [-4, 4].
    const double rounding = 2e-5 + 2 * ProductError(ops.device(), dtype());
    ExpectNear(out, Naive(activation, dtype(), products, shape, seqs, mask), rounding,
               rounding + RoundingError(activation), what);
  }
  // Page numbers before the window are invalid, and keys around the window are NaN.
  void ExpectNothingReadBeforeTheWindow(Ops& ops, const Shape& shape, const std::vector<Seq>& seqs,
                                        int window) const {
    const Mask mask{true, window, false};
    Cache cache(ops, dtype(), shape, seqs, 16, 1);
    const std::vector<float> out = Attend(ops, cache, dtype(), shape, seqs, mask);
    for (size_t s = 0; s < seqs.size(); ++s) {
      cache.Forget(static_cast<int>(s), seqs[s].kv_len - seqs[s].q_len + 1 - window);
    }
    EXPECT_TRUE(SameBits(Attend(ops, cache, dtype(), shape, seqs, mask), out)) << window;
  }
};
}  // namespace kuiper::test
