// Compares the operator API on plain pointers with naive loops, for both cache layouts and the
// caller's choice of strides.
#include "paged_attention_test_util.h"

namespace kuiper::test {
namespace {

class PagedAttentionTest : public TypedOpsTest {
 protected:
  DType activation() const { return IsFloat(dtype()) ? dtype() : DType::kF32; }
};
KU_INSTANTIATE_KV_OPS_TEST(PagedAttentionTest);

TEST_P(PagedAttentionTest, MatchesNaiveForEveryHeadSize) {
  struct Case {
    Shape shape;
    int page_size;
    Layout layout;
  };
  const Case cases[] = {
      {{4, 4, 64}, 1, Layout::kTokenMajor},    {{4, 1, 80}, 16, Layout::kHeadMajor},
      {{6, 2, 128}, 256, Layout::kPadded},     {{2, 1, 256}, 16, Layout::kTokenMajor},
      {{1, 1, 512}, 16, Layout::kHeadMajor},   {{2, 1, 1024}, 16, Layout::kTokenMajor},
      {{2, 2, 1024}, 256, Layout::kHeadMajor}, {{5, 1, 2}, 8, Layout::kTokenMajor},
      {{2, 1, 254}, 4, Layout::kHeadMajor},    {{1, 1, 264}, 64, Layout::kPadded},
  };
  const std::vector<Seq> seqs = {{1, 1, 1}, {2, 3, 3}, {3, 1, 33}, {4, 2, 17}};
  for (AttentionKind kind : kKinds) {
    PagedAttention attention = MakeAttention(device(), {4, 8, 1024, 64}, kind);
    for (const Case& c : cases) {
      Call call(attention, activation(), dtype(), c.shape, seqs, c.page_size, c.layout);
      call.ExpectNaive(Describe(c.shape));
    }
  }
}

TEST_P(PagedAttentionTest, LayoutAndPageSizeChangeNoBit) {
  const Shape shape{4, 2, 64};
  const std::vector<Seq> seqs = {{1, 1, 256}, {2, 5, 17}, {3, 1, 257}};
  for (AttentionKind kind : {AttentionKind::kMha, AttentionKind::kFlash1, AttentionKind::kFlash2}) {
    PagedAttention attention = MakeAttention(device(), {3, 4, 64, 257}, kind);
    std::vector<float> first;
    for (int page_size : {1, 16, 256}) {
      for (Layout layout :
           {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kSeparateHeadMajor, Layout::kPadded}) {
        Call call(attention, activation(), dtype(), shape, seqs, page_size, layout);
        if (first.empty()) {
          // Tensor cores round the softmax weights to the type of the cache.
          first = call.Run();
          const DType products = ProductType(attention.device(), dtype());
          const double tolerance =
              2e-5 + RoundingError(activation()) + ProductError(attention.device(), dtype());
          ExpectNear(first, Naive(activation(), dtype(), products, shape, seqs, {}), tolerance,
                     tolerance);
        }
        EXPECT_TRUE(SameBits(call.Run(), first)) << "page size " << page_size;
      }
    }
  }
}

TEST_P(PagedAttentionTest, Fp32QueriesReadACacheOfAnyType) {
  PagedAttention attention = MakeAttention(device());
  Call call(attention, DType::kF32, dtype(), {4, 2, 16}, {{1, 1, 40}, {2, 5, 5}}, 16,
            Layout::kTokenMajor);
  call.ExpectNaive("");
}

// Heads of q with gaps between them, and [H, T, D]: the numbers are the same, so the bits must be.
TEST_P(PagedAttentionTest, StridesOfQChangeNoBit) {
  const std::vector<Seq> seqs = {{1, 1, 33}, {2, 5, 17}, {3, 16, 16}};
  for (const Shape& shape : {Shape{4, 2, 64}, Shape{6, 1, 20}}) {
    for (AttentionKind kind : kKinds) {
      PagedAttention attention = MakeAttention(device(), {3, 8, 64, 64}, kind);
      const auto run = [&](QLayout layout) {
        Call call(attention, activation(), dtype(), shape, seqs, 16, Layout::kHeadMajor, {},
                  layout);
        if (layout == QLayout::kDense) call.ExpectNaive(Describe(shape));
        return call.Run();
      };
      const std::vector<float> dense = run(QLayout::kDense);
      EXPECT_TRUE(SameBits(run(QLayout::kPaddedHeads), dense)) << Describe(shape);
      EXPECT_TRUE(SameBits(run(QLayout::kHeadMajor), dense)) << Describe(shape);
    }
  }
}

// The default scale is 1 / sqrt(head_size), which the other tests rely on.
TEST_P(PagedAttentionTest, ScaleIsTheOneGiven) {
  PagedAttention attention = MakeAttention(device());
  Call call(attention, activation(), dtype(), {4, 2, 16}, {{1, 1, 40}}, 16, Layout::kHeadMajor);
  const std::vector<float> by_default = call.Run();
  call.args().scale = 0.25f;
  EXPECT_TRUE(SameBits(call.Run(), by_default));
  call.args().scale = 0.5f;
  EXPECT_FALSE(SameBits(call.Run(), by_default));
}

TEST_P(PagedAttentionTest, MasksReachTheKernel) {
  PagedAttention attention = MakeAttention(device());
  for (const Mask& mask : {Mask{true, 9, false}, Mask{false, 0, false}, Mask{true, 0, true}}) {
    Call call(attention, activation(), dtype(), {4, 2, 16}, {{1, 1, 40}, {2, 7, 20}}, 16,
              Layout::kTokenMajor, mask);
    call.ExpectNaive(Describe(mask));
  }
}

// Where the header defines an element and a scale to be.
TEST_P(PagedAttentionTest, StoreKvWritesWhereTheStridesSay) {
  PagedAttention attention = MakeAttention(device());
  const Shape shape{2, 2, 8};
  const std::vector<Seq> seqs = {{1, 1, 5}, {2, 1, 3}};
  constexpr char kUnwritten = '\xFF';
  const auto all_unwritten = [](const std::vector<char>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](char x) { return x == kUnwritten; });
  };
  for (Layout layout :
       {Layout::kTokenMajor, Layout::kHeadMajor, Layout::kSeparateHeadMajor, Layout::kPadded}) {
    Call call(attention, activation(), dtype(), shape, seqs, 4, layout);
    const PagedKv& kv = call.kv();
    std::vector<char> cache = call.cache().Bytes();
    const bool scales_elsewhere = dtype() == DType::kI8 && layout != Layout::kHeadMajor;
    std::vector<char> scales = scales_elsewhere ? call.scales().Bytes() : std::vector<char>();
    // Returns the host byte for a device pointer.
    const auto host = [&](const void* p) {
      const Matrix& memory =
          scales_elsewhere && p != kv.k && p != kv.v ? call.scales() : call.cache();
      const auto begin = reinterpret_cast<uintptr_t>(memory.tensor().data);
      std::vector<char>& bytes = &memory == &call.cache() ? cache : scales;
      return bytes.data() + (reinterpret_cast<uintptr_t>(p) - begin);
    };
    for (int s = 0; s < 2; ++s) {
      for (int pos = 0; pos < seqs[s].kv_len; ++pos) {
        for (int which : {1, 2}) {
          const std::vector<float> expected =
              Kept(TokenData(seqs[s].id, pos, which, shape.kv_width()), dtype(), 8);
          for (int g = 0; g < 2; ++g) {
            const int64_t element = call.page(s, pos / 4) * kv.page_stride +
                                    pos % 4 * kv.token_stride + g * kv.head_stride;
            const auto bytes = static_cast<int64_t>(DTypeBytes(dtype()));
            char* const row = host(which == 1 ? kv.k : kv.v) + element * bytes;
            char* scale = nullptr;
            if (dtype() == DType::kI8) {
              scale = host(which == 1 ? kv.k_scales : kv.v_scales) +
                      4 * (call.page(s, pos / 4) * kv.scale_page_stride +
                           pos % 4 * kv.scale_token_stride + g * kv.scale_head_stride);
            }
            const std::vector<float> stored = DecodeRow(dtype(), row, scale, 8);
            EXPECT_TRUE(std::equal(stored.begin(), stored.end(), expected.begin() + 8 * g));
            std::fill_n(row, 8 * bytes, kUnwritten);
            if (scale != nullptr) std::fill_n(scale, 4, kUnwritten);
          }
        }
      }
    }
    EXPECT_TRUE(all_unwritten(cache) && all_unwritten(scales)) << "written elsewhere";
  }
}

// A model calls it for one layer after the other, each with its own cache.
TEST_P(PagedAttentionTest, OneObjectServesManyCaches) {
  PagedAttention attention = MakeAttention(device());
  const std::vector<Seq> one = {{1, 1, 40}}, two = {{2, 1, 40}};
  Call first(attention, activation(), dtype(), {4, 2, 16}, one, 16, Layout::kTokenMajor);
  Call second(attention, activation(), dtype(), {2, 1, 8}, two, 8, Layout::kHeadMajor);
  ASSERT_TRUE(attention.Run(first.args()).ok());
  ASSERT_TRUE(attention.Run(second.args()).ok());
  first.ExpectNaive("first");
  second.ExpectNaive("second");
}

TEST_P(PagedAttentionTest, NoRowsIsNoWork) {
  PagedAttention attention = MakeAttention(device());
  Call call(attention, activation(), dtype(), {4, 2, 16}, {{1, 1, 4}}, 16, Layout::kTokenMajor);
  call.args().num_tokens = 0;
  for (float x : call.Run()) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace kuiper::test
