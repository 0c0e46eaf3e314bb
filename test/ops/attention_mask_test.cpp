// Attention with a mask, a sliding window and ALiBi: compares with naive loops, and tests the bit
// guarantees for each of them.
#include "attention_test_util.h"

namespace kuiper::test {
namespace {

using AttentionMaskTest = AttentionTestBase;
KU_INSTANTIATE_KV_OPS_TEST(AttentionMaskTest);

// Windows around the sizes of pages (16), tiles (64) and splits (128), one longer than a sequence,
// and one of a single key.
TEST_P(AttentionMaskTest, MatchesNaiveForEveryMask) {
  const Shape shape{4, 2, 16};
  const std::vector<Seq> seqs = {{1, 1, 1}, {2, 7, 7}, {3, 1, 130}, {4, 21, 85}, {5, 3, 129}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (bool causal : {true, false}) {
      for (int window : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 1 << 30}) {
        const Mask mask{causal, window, window % 2 == 0};
        ExpectNaive(*ops, Attend(*ops, dtype(), shape, seqs, 16, mask), shape, seqs, Describe(mask),
                    mask);
      }
    }
  }
}

TEST_P(AttentionMaskTest, EveryHeadHasItsSlope) {
  const std::vector<Seq> seqs = {{1, 1, 70}, {2, 9, 20}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (const Shape& shape : {Shape{5, 5, 8}, Shape{7, 1, 8}, Shape{50, 2, 8}, Shape{3, 3, 80}}) {
      const Mask mask{true, 0, true};
      ExpectNaive(*ops, Attend(*ops, dtype(), shape, seqs, 8, mask), shape, seqs, Describe(shape),
                  mask);
    }
  }
}

TEST_P(AttentionMaskTest, PagedEqualsContiguousAndBatchedEqualsAlone) {
  const Shape shape{6, 2, 16};
  const std::vector<Seq> seqs = {{1, 1, 200}, {2, 40, 90}, {3, 1, 1}, {4, 7, 7}, {5, 1, 64}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (const Mask& mask : {Mask{true, 50, true}, Mask{false, 0, false}, Mask{false, 33, true}}) {
      const std::vector<float> contiguous = Attend(*ops, dtype(), shape, seqs, 0, mask);
      for (int page : {1, 16, 256}) {
        EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, page, mask), contiguous))
            << Describe(mask) << ", page size " << page;
      }
      std::vector<float> alone;
      for (const Seq& s : seqs) {
        for (float x : Attend(*ops, dtype(), shape, {s}, 16, mask)) alone.push_back(x);
      }
      EXPECT_TRUE(SameBits(alone, contiguous)) << Describe(mask);
    }
  }
}

// Without causality, the first chunk would have to attend to tokens that do not exist yet.
TEST_P(AttentionMaskTest, ChunkedEqualsWholeWithAWindow) {
  const Shape shape{2, 1, 16};
  constexpr int kLen = 140;
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (const Mask& mask : {Mask{true, 40, false}, Mask{true, 64, true}, Mask{true, 0, true}}) {
      const Cache cache(*ops, dtype(), shape, {{9, kLen, kLen}}, 16, 1);
      const std::vector<float> whole = Attend(*ops, cache, dtype(), shape, {{9, kLen, kLen}}, mask);
      for (int chunk : {1, 7, 64, 100}) {
        std::vector<float> chunked;
        // Single tokens follow a prompt.
        for (int begin = 0, end; begin < kLen; begin = end) {
          end = chunk == 1 && begin == 0 ? kLen - 20 : std::min(kLen, begin + chunk);
          const std::vector<Seq> seq = {{9, end - begin, end}};
          for (float x : Attend(*ops, cache, dtype(), shape, seq, mask)) chunked.push_back(x);
        }
        EXPECT_TRUE(SameBits(chunked, whole)) << Describe(mask) << ", chunks of " << chunk;
      }
    }
  }
}

TEST_P(AttentionMaskTest, WindowThatCoversEverythingChangesNoBit) {
  const Shape shape{4, 2, 16};
  const std::vector<Seq> seqs = {{1, 1, 130}, {2, 40, 90}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    const std::vector<float> off = Attend(*ops, dtype(), shape, seqs, 16);
    EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, 16, {true, 130, false}), off));
    EXPECT_FALSE(SameBits(Attend(*ops, dtype(), shape, seqs, 16, {true, 129, false}), off));
  }
}

TEST_P(AttentionMaskTest, KeysOutsideTheWindowAreNotRead) {
  const Shape shape{4, 2, 16};
  const std::vector<Seq> seqs = {{1, 1, 150}, {2, 5, 141}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (int window : {1, 5, 30, 64, 70}) {
      ExpectNothingReadBeforeTheWindow(*ops, shape, seqs, window);
    }
  }
}

using AttentionMaskDeathTest = AttentionMaskTest;
KU_INSTANTIATE_TYPED_OPS_TEST(AttentionMaskDeathTest);

TEST_P(AttentionMaskDeathTest, WrongOptionsEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Shape shape{4, 2, 8};
  const auto ops = Make(AttentionKind::kFlash1);
  const std::vector<Seq> seqs = {{1, 1, 3}};
  const auto exits = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(Attend(*ops, dtype(), shape, seqs, 8, {true, -1, false}), exits, "negative window");
  const Cache cache(*ops, dtype(), shape, seqs, 8, 1);
  const Matrix q(*ops, DType::kF32, 1, shape.q_width()), out(*ops, DType::kF32, 1, shape.q_width());
  const Array<int32_t> cu_q(*ops, {0, 1}), lens(*ops, {3});
  const Array<float> slopes(*ops, {1.0f, 1.0f});
  AttnOptions options;
  options.alibi_slopes = slopes.tensor();
  const AttnMeta meta{cu_q.tensor(), lens.tensor(), 1, 1, 3};
  EXPECT_EXIT(ops->Run(AttentionArgs{.out = out.tensor(),
                                     .q = q.tensor(),
                                     .kv = cache.view(),
                                     .meta = meta,
                                     .scale = 1.0f,
                                     .options = options}),
              exits, "unexpected alibi_slopes FP32 .2.");
}

}  // namespace
}  // namespace kuiper::test
