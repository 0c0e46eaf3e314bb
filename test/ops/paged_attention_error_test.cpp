// All error messages of the operator API.
#include <functional>
#include <limits>

#include "paged_attention_test_util.h"

namespace kuiper::test {
namespace {

using PagedAttentionErrorTest = OpsTest;
KU_INSTANTIATE_OPS_TEST(PagedAttentionErrorTest);

void ExpectError(const Status& status, const std::string& message) {
  ASSERT_FALSE(status.ok()) << message;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "paged attention: " + message);
}

// A valid call with one error.
template <typename T>
T* Shifted(T* p, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes));
}

TEST_P(PagedAttentionErrorTest, CacheErrorsNameTheField) {
  PagedAttention attention = MakeAttention(GetParam());
  Call call(attention, DType::kF16, DType::kF16, {4, 2, 64}, {{1, 1, 4}}, 16, Layout::kTokenMajor);
  const struct {
    std::function<void(PagedKv&)> spoil;
    const char* message;
  } cases[] = {
      {[](PagedKv& kv) { kv.dtype = DType::kI32; },
       "kv.dtype is I32; it must be FP32, FP16, BF16, INT8, FP8 E4M3 or FP8 E5M2"},
      {[](PagedKv& kv) { kv.dtype = DType::kI8; }, "kv.k_scales is null"},
      {[](PagedKv& kv) { kv.k_scales = kv.v_scales = static_cast<float*>(kv.k); },
       "scales are given, and kv.dtype is FP16, which has none"},
      {[](PagedKv& kv) {
         auto* const scales = static_cast<float*>(kv.k);
         kv.dtype = DType::kI8;
         kv = kv.WithScales(scales, Shifted(scales, 2));
       },
       "kv.v_scales is not aligned to 4 bytes"},
      {[](PagedKv& kv) {
         auto* const scales = static_cast<float*>(kv.k);
         kv.dtype = DType::kI8;
         kv = kv.WithScales(scales, scales);
         kv.scale_page_stride = 31;
       },
       "kv.scale_page_stride is 31; it must be in [32, 576460752303423487]"},
      {[](PagedKv& kv) { kv.dtype = DType::kF8E4M3, kv.k = Shifted(kv.k, 4); },
       "kv.k is not aligned to 8 bytes"},
      {[](PagedKv& kv) { kv.head_size = 0; }, "kv.head_size is 0; it must be in [2, 1024]"},
      {[](PagedKv& kv) { kv.head_size = 1032; }, "kv.head_size is 1032; it must be in [2, 1024]"},
      {[](PagedKv& kv) { kv.head_size = 63; },
       "kv.head_size is 63; it must be even, and a multiple of 8 above 256"},
      {[](PagedKv& kv) { kv.head_size = 258; },
       "kv.head_size is 258; it must be even, and a multiple of 8 above 256"},
      {[](PagedKv& kv) { kv.page_size = 0; }, "kv.page_size is 0; it must be in [1, 256]"},
      {[](PagedKv& kv) { kv.page_size = 512; }, "kv.page_size is 512; it must be in [1, 256]"},
      {[](PagedKv& kv) { kv.page_size = 24; }, "kv.page_size is 24; it must be a power of two"},
      {[](PagedKv& kv) { kv.num_pages = 0; }, "kv.num_pages is 0; it must be in [1, 134217727]"},
      {[](PagedKv& kv) { kv.kv_heads = 0; }, "kv.kv_heads is 0; it must be in [1, 33554431]"},
      {[](PagedKv& kv) { kv.k = nullptr; }, "kv.k is null"},
      {[](PagedKv& kv) { kv.v = nullptr; }, "kv.v is null"},
      {[](PagedKv& kv) { kv.v = kv.k; }, "kv.v is the same pointer as kv.k"},
      {[](PagedKv& kv) { kv.k = Shifted(kv.k, 8); }, "kv.k is not aligned to 16 bytes"},
      {[](PagedKv& kv) { kv.head_size = 62, kv.v = Shifted(kv.v, 2); },
       "kv.v is not aligned to 4 bytes"},
      {[](PagedKv& kv) { kv.head_stride = 56; },
       "kv.head_stride is 56; it must be in [64, 576460752303423487]"},
      {[](PagedKv& kv) { kv.head_stride = -64; },
       "kv.head_stride is -64; it must be in [64, 576460752303423487]"},
      {[](PagedKv& kv) { kv.token_stride = int64_t{1} << 31; },
       "kv.token_stride is 2147483648; it must be in [64, 2147483647]"},
      {[](PagedKv& kv) { kv.token_stride = 120; },
       "kv.token_stride is 120; it must be in [128, 576460752303423487]"},
      {[](PagedKv& kv) { kv.token_stride = 132; },
       "kv.token_stride is 132; it must be a multiple of 8 elements"},
      {[](PagedKv& kv) { kv.page_stride = 2040; },
       "kv.page_stride is 2040; it must be in [2048, 576460752303423487]"},
  };
  for (const auto& c : cases) {
    PagedAttentionArgs args = call.args();
    c.spoil(args.kv);
    ExpectError(attention.Run(args), c.message);
    PagedStoreArgs store;
    store.kv = args.kv;
    ExpectError(attention.StoreKv(store), c.message);
  }
}

TEST_P(PagedAttentionErrorTest, CallErrorsNameTheArgument) {
  PagedAttention attention = MakeAttention(GetParam());
  Call call(attention, DType::kF16, DType::kF16, {4, 2, 64}, {{1, 1, 40}}, 16, Layout::kTokenMajor);
  using Args = PagedAttentionArgs;
  const struct {
    std::function<void(Args&)> spoil;
    const char* message;
  } cases[] = {
      {[](Args& a) { a.dtype = DType::kU8; }, "dtype is U8; it must be FP32, FP16 or BF16"},
      {[](Args& a) { a.dtype = DType::kBF16; },
       "dtype is BF16 and kv.dtype FP16; dtype must be FP32 or that of the cache"},
      {[](Args& a) { a.num_heads = 0; }, "num_heads is 0; it must be in [1, 64]"},
      {[](Args& a) { a.num_heads = 66; }, "num_heads is 66; it must be in [1, 64]"},
      {[](Args& a) { a.num_heads = 5; }, "num_heads is 5; it must be a multiple of kv.kv_heads, 2"},
      {[](Args& a) { a.num_tokens = -1; }, "num_tokens is -1; it must be in [0, 536870911]"},
      {[](Args& a) { a.q = nullptr; }, "q is null"},
      {[](Args& a) { a.out = nullptr; }, "out is null"},
      {[](Args& a) { a.q = Shifted(a.q, 2); }, "q is not aligned to 16 bytes"},
      {[](Args& a) { a.q_stride = 248; },
       "q_stride is 248; it must be in [256, 576460752303423487]"},
      {[](Args& a) { a.q_head_stride = 56; },
       "q_head_stride is 56; it must be in [64, 576460752303423487]"},
      {[](Args& a) { a.q_head_stride = 65; },
       "q_head_stride is 65; it must be a multiple of 8 elements"},
      {[](Args& a) { a.q_head_stride = 72; },
       "q_stride is 256; it must be in [280, 576460752303423487]"},
      {[](Args& a) { a.out_stride = 257; },
       "out_stride is 257; it must be a multiple of 8 elements"},
      {[](Args& a) { a.num_seqs = 9; }, "num_seqs is 9; it must be in [0, 8]"},
      {[](Args& a) { a.max_q_len = 0; }, "max_q_len is 0; it must be in [1, 2147483647]"},
      {[](Args& a) { a.max_kv_len = 513; }, "max_kv_len is 513; it must be in [1, 512]"},
      {[](Args& a) { a.cu_seqlens_q = nullptr; }, "cu_seqlens_q is null"},
      {[](Args& a) { a.kv_lens = nullptr; }, "kv_lens is null"},
      {[](Args& a) { a.block_tables = nullptr; }, "block_tables is null"},
      {[](Args& a) { a.kv_lens = Shifted(a.kv_lens, 2); }, "kv_lens is not aligned to 4 bytes"},
      {[](Args& a) { a.block_table_stride = 2; },
       "block_table_stride is 2; it must be in [3, 2147483647]"},
      {[](Args& a) { a.scale = -1.0f; },
       "scale is -1.000000; it must be positive, or 0 for 1 / sqrt(head_size)"},
      {[](Args& a) { a.scale = kNaN; },
       "scale is nan; it must be positive, or 0 for 1 / sqrt(head_size)"},
      {[](Args& a) { a.window = -1; }, "window is -1; it must be in [0, 2147483647]"},
      {[](Args& a) { a.alibi_slopes = Shifted(reinterpret_cast<const float*>(a.kv_lens), 1); },
       "alibi_slopes is not aligned to 4 bytes"},
  };
  for (const auto& c : cases) {
    Args args = call.args();
    c.spoil(args);
    ExpectError(attention.Run(args), c.message);
  }
}

TEST_P(PagedAttentionErrorTest, StoreErrorsNameTheArgument) {
  PagedAttention attention = MakeAttention(GetParam());
  Call call(attention, DType::kF16, DType::kF16, {4, 2, 64}, {{1, 1, 4}}, 16, Layout::kTokenMajor);
  const Array<int32_t> slots(attention.device(), {0});
  PagedStoreArgs valid;
  valid.kv = call.kv();
  valid.k = valid.v = call.args().q;
  valid.num_tokens = 1;
  valid.slots = slots.tensor().ptr<int32_t>();
  ASSERT_TRUE(attention.StoreKv(valid).ok());
  using Args = PagedStoreArgs;
  const struct {
    std::function<void(Args&)> spoil;
    const char* message;
  } cases[] = {
      {[](Args& a) { a.dtype = DType::kBF16; },
       "dtype is BF16 and kv.dtype FP16; dtype must be FP32 or that of the cache"},
      {[](Args& a) { a.num_tokens = -1; }, "num_tokens is -1; it must be in [0, 1073741823]"},
      {[](Args& a) { a.k = nullptr; }, "k is null"},
      {[](Args& a) { a.v = nullptr; }, "v is null"},
      {[](Args& a) { a.k_stride = 120; },
       "k_stride is 120; it must be in [128, 576460752303423487]"},
      {[](Args& a) { a.v_stride = 129; }, "v_stride is 129; it must be a multiple of 8 elements"},
      {[](Args& a) { a.slots = nullptr; }, "slots is null"},
  };
  for (const auto& c : cases) {
    Args args = valid;
    c.spoil(args);
    ExpectError(attention.StoreKv(args), c.message);
  }
  EXPECT_TRUE(attention.Sync().ok());
}

TEST_P(PagedAttentionErrorTest, CheckValuesReadsTheArrays) {
  PagedAttention attention = MakeAttention(GetParam());
  ComputeDevice& device = attention.device();
  Call call(attention, DType::kF32, DType::kF32, {2, 1, 8}, {{1, 2, 4}, {2, 1, 20}}, 16,
            Layout::kTokenMajor);
  EXPECT_TRUE(attention.CheckValues(call.args()).ok());
  const struct {
    std::vector<int32_t> cu, lens, tables;
    const char* message;
  } cases[] = {
      {{1, 2, 3}, {4, 20}, {0, -1, 1, 2}, "cu_seqlens_q[0] is 1; it must be 0"},
      {{0, 2, 1},
       {4, 20},
       {0, -1, 1, 2},
       "cu_seqlens_q[2] is 1 after 2; at most max_q_len 2 rows of num_tokens 3"},
      {{0, 3, 3},
       {4, 20},
       {0, -1, 1, 2},
       "cu_seqlens_q[1] is 3 after 0; at most max_q_len 2 rows of num_tokens 3"},
      {{0, 2, 4},
       {4, 20},
       {0, -1, 1, 2},
       "cu_seqlens_q[2] is 4 after 2; at most max_q_len 2 rows of num_tokens 3"},
      {{0, 2, 3}, {1, 20}, {0, -1, 1, 2}, "kv_lens[0] is 1; it must be in [2, 20]"},
      {{0, 2, 3}, {4, 21}, {0, -1, 1, 2}, "kv_lens[1] is 21; it must be in [1, 20]"},
      {{0, 2, 3}, {4, 20}, {0, -1, 1, -1}, "block_tables[3] is -1; it must be in [0, 4]"},
      {{0, 2, 3}, {4, 20}, {5, -1, 1, 2}, "block_tables[0] is 5; it must be in [0, 4]"},
      {{0, 2, 2}, {4, 20}, {0, -1, 1, 2}, "cu_seqlens_q[2] is 2; it must be num_tokens, 3"},
      {{0, 0, 2},
       {4, 0},
       {0, 0, 1, 0},
       "kv_lens[1] is 0; it must be in [2, 20]; if these are 64-bit integers, convert them to 32 "
       "bits"},
  };
  for (const auto& c : cases) {
    const Array<int32_t> cu(device, c.cu), lens(device, c.lens), tables(device, c.tables);
    PagedAttentionArgs args = call.args();
    args.cu_seqlens_q = cu.tensor().ptr<int32_t>();
    args.kv_lens = lens.tensor().ptr<int32_t>();
    args.block_tables = tables.tensor().ptr<int32_t>();
    args.block_table_stride = 2;
    ExpectError(attention.CheckValues(args), c.message);
  }
  PagedAttentionArgs args = call.args();
  args.q = nullptr;
  ExpectError(attention.CheckValues(args), "q is null");
}

// For any stride between the rows of the table: entries after the last sequence's pages must not be
// read.
TEST_P(PagedAttentionErrorTest, CheckValuesReadsThePagesOfTokensOnly) {
  PagedAttention attention = MakeAttention(GetParam());
  Call call(attention, DType::kF32, DType::kF32, {2, 1, 8}, {{1, 2, 20}}, 16, Layout::kTokenMajor);
  call.args().block_table_stride = std::numeric_limits<int>::max();
  const Status status = attention.CheckValues(call.args());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_P(PagedAttentionErrorTest, CreateChecksItsLimits) {
  const struct {
    PagedAttentionLimits limits;
    const char* message;
  } cases[] = {
      {{0, 1, 64, 64}, "limits.max_seqs is 0; it must be in [1, 1048576]"},
      {{1, 0, 64, 64}, "limits.max_heads is 0; it must be in [1, 65536]"},
      {{1, 1, 2048, 64}, "limits.max_head_size is 2048; it must be in [2, 1024]"},
      {{1, 1, 64, 0}, "limits.max_kv_len is 0; it must be in [1, 1073741824]"},
  };
  for (const auto& c : cases) {
    ExpectError(PagedAttention::Create(GetParam(), c.limits).status(), c.message);
  }
  OpsOptions options;
  options.num_threads = 1025;
  ExpectError(PagedAttention::Create(GetParam(), {1, 1, 64, 64}, options).status(),
              "options.num_threads is 1025; it must be in [0, 1024]");
  PagedAttention small = MakeAttention(GetParam(), {1, 4, 32, 64});
  Call call(small, DType::kF32, DType::kF32, {4, 2, 32}, {{1, 1, 4}}, 16, Layout::kTokenMajor);
  call.args().kv.head_size = 64;
  call.args().kv.head_stride = 64;
  call.args().kv.token_stride = 128;
  call.args().kv.page_stride = 2048;
  ExpectError(small.Run(call.args()), "kv.head_size is 64; it must be in [2, 32]");
}

TEST(PagedAttention, NamesADeviceThatIsMissing) {
  const auto made = PagedAttention::Create({DeviceType::kCUDA, 99}, {1, 1, 64, 64});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(made.status().hint(), "device cpu runs without one");
}

}  // namespace
}  // namespace kuiper::test
