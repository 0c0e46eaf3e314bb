// Helpers for the tests of the operator API: an object for a device, and a call with its own
// sequences and cache.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kuiper/ops/paged_attention.h"
#include "test/ops/attention_test_util.h"

namespace kuiper::test {

enum class Layout { kTokenMajor, kHeadMajor, kSeparateHeadMajor, kPadded };
enum class QLayout { kDense, kPaddedHeads, kHeadMajor };

inline PagedAttention MakeAttention(Device device,
                                    const PagedAttentionLimits& limits = {8, 64, 1024, 512},
                                    AttentionKind kind = AttentionKind::kFlash1) {
  OpsOptions options;
  options.num_threads = 2;
  options.attention = kind;
  auto made = PagedAttention::Create(device, limits, options);
  KU_CHECK(made.ok(), made.status().message());
  return std::move(made).value();
}

// The sequences of a call with their own cache: NaN except for what StoreKv writes, on pages in a
// shuffled order.
class Call {
 public:
  Call(PagedAttention& attention, DType dtype, DType cache, const Shape& shape,
       const std::vector<Seq>& seqs, int page_size, Layout layout, const Mask& mask = {},
       QLayout q_layout = QLayout::kDense)
      : attention_(attention), shape_(shape), seqs_(seqs), dtype_(dtype), mask_(mask) {
    int max_len = 1, max_q = 1, rows = 0;
    for (const Seq& s : seqs) {
      max_len = std::max(max_len, s.kv_len);
      max_q = std::max(max_q, s.q_len);
      rows += s.q_len;
    }
    const int blocks = (max_len + page_size - 1) / page_size;
    MakeCache(cache, static_cast<int>(seqs.size()) * blocks + 1, page_size, layout);
    MakeTables(blocks + 1, page_size);
    Store(page_size, blocks + 1);
    MakeQueries(rows, q_layout);
    args_.kv = kv_;
    args_.max_q_len = max_q;
    args_.max_kv_len = max_len;
    args_.causal = mask.causal;
    args_.window = mask.window;
    if (mask.alibi) args_.alibi_slopes = slopes_->tensor().ptr<float>();
  }

  PagedAttentionArgs& args() { return args_; }
  const PagedKv& kv() const { return kv_; }
  // cache(): the whole cache, without scales stored elsewhere. scales(): those scales.
  const Matrix& cache() const { return *cache_; }
  const Matrix& scales() const { return *scales_; }
  int32_t page(int seq, int block) const { return tables_[seq * args_.block_table_stride + block]; }

  std::vector<float> Run() {
    const Status status = attention_.Run(args_);
    EXPECT_TRUE(status.ok()) << status.message();
    return Output();
  }
  // Waits for the object's stream.
  std::vector<float> Output() const { return out_->Get(); }
  void ClearOutput() { out_->Set(std::vector<float>(args_.num_tokens * shape_.q_width(), kNaN)); }
  void ExpectNaive(const std::string& what) {
    const DType products = ProductType(attention_.device(), kv_.dtype);
    const double rounding = 2e-5 + 2 * ProductError(attention_.device(), kv_.dtype);
    ExpectNear(Run(), Naive(dtype_, kv_.dtype, products, shape_, seqs_, mask_), rounding,
               rounding + RoundingError(dtype_), what);
  }

 private:
  void MakeCache(DType cache, int num_pages, int page_size, Layout layout) {
    ComputeDevice& device = attention_.device();
    const int d = shape_.head_dim, g = shape_.kv_heads;
    const int plane = num_pages * page_size * g * d;  // all keys, or all values
    const int gap = layout == Layout::kPadded ? 16 : 0;
    const int padded = num_pages * (page_size * (g * (d + gap) + gap) + gap);
    const auto plane_bytes = static_cast<int>(std::max(plane, padded) * DTypeBytes(cache));
    const int64_t head_major = PagedKv::HeadMajorBytes(cache, num_pages, page_size, g, d);
    const int bytes = std::max(2 * plane_bytes, static_cast<int>(head_major));
    cache_ = std::make_unique<Matrix>(device, DType::kU8, 1, bytes);
    char* data = static_cast<char*>(cache_->tensor().data);
    if (layout == Layout::kHeadMajor) {
      kv_ = PagedKv::HeadMajor(data, cache, num_pages, page_size, g, d);
      return;
    }
    // The values are stored before the keys.
    char* keys = data + plane_bytes;
    if (layout == Layout::kSeparateHeadMajor) {
      kv_ = PagedKv::HeadMajor(keys, data, cache, num_pages, page_size, g, d);
    } else {
      kv_ = PagedKv::TokenMajor(keys, data, cache, num_pages, page_size, g, d);
    }
    if (gap != 0) {
      kv_.head_stride = d + gap;
      kv_.token_stride = g * kv_.head_stride + gap;
      kv_.page_stride = page_size * kv_.token_stride + gap;
    }
    if (cache == DType::kI8) MakeScales(gap);
  }

  // The scales of the values are also stored before those of the keys.
  void MakeScales(int gap) {
    const int g = shape_.kv_heads, tokens = kv_.num_pages * kv_.page_size;
    const int plane = tokens * (g * (1 + gap) + gap);
    scales_ = std::make_unique<Matrix>(attention_.device(), DType::kF32, 1, 2 * plane);
    auto* const values = scales_->tensor().ptr<float>();
    kv_ = kv_.WithScales(values + plane, values);
    if (gap == 0) return;
    kv_.scale_head_stride = 1 + gap;
    kv_.scale_token_stride = g * kv_.scale_head_stride + gap;
    kv_.scale_page_stride = kv_.page_size * kv_.scale_token_stride;
  }

  void MakeTables(int table_stride, int page_size) {
    ComputeDevice& device = attention_.device();
    std::vector<int32_t> order(kv_.num_pages), cu{0}, lens;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    tables_.assign(seqs_.size() * table_stride, -1);
    size_t next = 0;
    for (size_t s = 0; s < seqs_.size(); ++s) {
      for (int block = 0; block * page_size < seqs_[s].kv_len; ++block) {
        tables_[s * table_stride + block] = order[next++];
      }
      cu.push_back(cu.back() + seqs_[s].q_len);
      lens.push_back(seqs_[s].kv_len);
    }
    for (const std::vector<int32_t>& values : {cu, lens, tables_}) {
      arrays_.push_back(std::make_unique<Array<int32_t>>(device, values));
    }
    args_.num_seqs = static_cast<int>(seqs_.size());
    args_.cu_seqlens_q = arrays_[0]->tensor().ptr<int32_t>();
    args_.kv_lens = arrays_[1]->tensor().ptr<int32_t>();
    args_.block_tables = arrays_[2]->tensor().ptr<int32_t>();
    args_.block_table_stride = table_stride;
  }

  void Store(int page_size, int table_stride) {
    ComputeDevice& device = attention_.device();
    const int width = shape_.kv_width();
    std::vector<float> k, v;
    std::vector<int32_t> slots;
    for (size_t s = 0; s < seqs_.size(); ++s) {
      for (int pos = 0; pos < seqs_[s].kv_len; ++pos) {
        for (float x : TokenData(seqs_[s].id, pos, 1, width)) k.push_back(x);
        for (float x : TokenData(seqs_[s].id, pos, 2, width)) v.push_back(x);
        const int32_t page = tables_[s * table_stride + pos / page_size];
        slots.push_back(page * page_size + pos % page_size);
      }
    }
    const int n = static_cast<int>(slots.size());
    const Matrix mk(device, dtype_, n, width, k, width + 16), mv(device, dtype_, n, width, v);
    const Array<int32_t> device_slots(device, slots);
    PagedStoreArgs store;
    store.kv = kv_;
    store.k = mk.tensor().data;
    store.v = mv.tensor().data;
    store.dtype = dtype_;
    store.k_stride = width + 16;
    store.num_tokens = n;
    store.slots = device_slots.tensor().ptr<int32_t>();
    const Status status = attention_.StoreKv(store);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(attention_.Sync().ok());
  }

  void MakeQueries(int rows, QLayout layout) {
    ComputeDevice& device = attention_.device();
    const int width = shape_.q_width(), d = shape_.head_dim;
    constexpr int kGap = 24;
    if (layout == QLayout::kPaddedHeads) {
      args_.q_head_stride = d + kGap;
      args_.q_stride = shape_.heads * args_.q_head_stride;
    } else if (layout == QLayout::kHeadMajor) {
      args_.q_head_stride = rows * d;
      args_.q_stride = d;
    }
    const int64_t head_stride = layout == QLayout::kDense ? d : args_.q_head_stride;
    const int64_t token_stride = layout == QLayout::kDense ? width : args_.q_stride;
    std::vector<float> q(static_cast<size_t>(rows) * shape_.heads * (d + kGap), kNaN), slopes;
    int row = 0;
    for (const Seq& s : seqs_) {
      for (int pos = s.kv_len - s.q_len; pos < s.kv_len; ++pos, ++row) {
        const std::vector<float> data = TokenData(s.id, pos, 3, width);
        for (int i = 0; i < width; ++i) {
          q[row * token_stride + i / d * head_stride + i % d] = data[i];
        }
      }
    }
    for (int h = 0; h < shape_.heads; ++h) slopes.push_back(AlibiSlope(h));
    slopes_ = std::make_unique<Array<float>>(device, slopes);
    q_ = std::make_unique<Matrix>(device, dtype_, 1, static_cast<int>(q.size()), q);
    out_ = std::make_unique<Matrix>(device, dtype_, rows, width, width + 8);
    args_.out = out_->tensor().data;
    args_.q = q_->tensor().data;
    args_.dtype = dtype_;
    args_.out_stride = width + 8;
    args_.num_tokens = rows;
    args_.num_heads = shape_.heads;
  }

  PagedAttention& attention_;
  Shape shape_;
  std::vector<Seq> seqs_;
  DType dtype_;
  Mask mask_;
  PagedKv kv_;
  PagedAttentionArgs args_;
  std::vector<int32_t> tables_;
  std::unique_ptr<Matrix> cache_, scales_, q_, out_;
  std::vector<std::unique_ptr<Array<int32_t>>> arrays_;
  std::unique_ptr<Array<float>> slopes_;
};

}  // namespace kuiper::test
