// Compares attention and StoreKv with naive double-precision loops. Also tests the bit guarantees:
// paged == contiguous, batched == alone, chunked == whole, any thread count.
#include <map>

#include "attention_test_util.h"
#include "cpu_targets.h"

namespace kuiper::test {
namespace {

using AttentionTest = AttentionTestBase;
KU_INSTANTIATE_KV_OPS_TEST(AttentionTest);

// Head sizes that only the CPU supports.
class LargestHeadsTest : public AttentionTestBase {};
INSTANTIATE_TEST_SUITE_P(, LargestHeadsTest,
                         testing::Combine(testing::Values(Device{DeviceType::kCPU}),
                                          testing::ValuesIn(KvTypes())),
                         DeviceTypeTestName);

TEST_P(AttentionTest, MatchesNaiveForEveryShape) {
  const std::vector<Seq> mixed = {{1, 1, 1}, {2, 5, 5}, {3, 1, 70}, {4, 9, 65}, {5, 1, 129}};
  const std::vector<Seq> decode = {{1, 1, 1}, {3, 1, 70}, {5, 1, 129}};
  struct Case {
    int group, head_dim;
  };
  // Every group with one head_dim, every head_dim with a small and with a large group.
  const Case cases[] = {{1, 16}, {2, 16}, {4, 16}, {5, 16},  {7, 16}, {8, 16}, {1, 2},
                        {5, 2},  {2, 6},  {7, 6},  {1, 8},   {8, 8},  {2, 64}, {5, 64},
                        {3, 72}, {1, 80}, {4, 80}, {1, 128}, {7, 128}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (const Case& c : cases) {
      const Shape shape{2 * c.group, 2, c.head_dim};
      for (const auto& [seqs, page] : {std::pair{mixed, 16}, {decode, 16}, {decode, 0}}) {
        ExpectNaive(*ops, Attend(*ops, dtype(), shape, seqs, page), shape, seqs, Describe(shape));
      }
    }
  }
}

TEST_P(AttentionTest, MatchesNaiveOnWideGroupsAndHeads) {
  const std::vector<Seq> seqs = {{1, 3, 67}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    for (const Shape& shape : {Shape{50, 1, 16}, Shape{1, 1, 256}, Shape{2, 1, 512}}) {
      for (const int page : {8, 0}) {
        ExpectNaive(*ops, Attend(*ops, dtype(), shape, seqs, page), shape, seqs, Describe(shape));
      }
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
        EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, page, {}, shuffle), contiguous))
            << "page size " << page;
      }
      ExpectNaive(*ops, contiguous, shape, seqs);
    }
  }
}

// Lengths around the ends of the key ranges that a backend may assign to different blocks. Tested
// alone (so that blocks divide them) and in a batch with prompts.
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

// On GPUs a block computes several splits of a sequence if that fills the device better. Their
// number depends on the whole batch.
TEST_P(AttentionTest, RunsOfSplitsDoNotChangeBits) {
  const Shape shape{4, 2, 16};
  const auto ops = Make(AttentionKind::kFlash1);
  for (const int copies : {1, 2, 4}) {
    std::vector<Seq> seqs;
    for (int i = 0; i < copies; ++i) {
      for (const int len : {2100, 1, 640, 2561, 129}) seqs.push_back({len, 1, len});
    }
    const std::vector<float> batch = Attend(*ops, dtype(), shape, seqs, 16);
    for (int i = 0; i < 5; ++i) {
      const auto row = batch.begin() + i * shape.q_width();
      EXPECT_TRUE(
          SameBits(Attend(*ops, dtype(), shape, {seqs[i]}, 16), {row, row + shape.q_width()}))
          << copies << " of " << seqs[i].kv_len;
    }
  }
}

TEST_P(AttentionTest, ChunkedEqualsWhole) {
  const Shape shape{6, 3, 16};
  constexpr int kLen = 140;
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    const Cache cache(*ops, dtype(), shape, {{9, kLen, kLen}}, 16, 1);
    const std::vector<float> whole = Attend(*ops, cache, dtype(), shape, {{9, kLen, kLen}}, {});
    for (int chunk : {1, 7, 64, 100}) {
      std::vector<float> chunked;
      // Single tokens follow a prompt.
      for (int begin = 0, end; begin < kLen; begin = end) {
        end = chunk == 1 && begin == 0 ? kLen - 20 : std::min(kLen, begin + chunk);
        const std::vector<Seq> seq = {{9, end - begin, end}};
        for (float x : Attend(*ops, cache, dtype(), shape, seq, {})) chunked.push_back(x);
      }
      EXPECT_TRUE(SameBits(chunked, whole)) << "chunks of " << chunk;
    }
  }
}

TEST_P(AttentionTest, ThreadCountDoesNotChangeBits) {
  if (device().type != DeviceType::kCPU) GTEST_SKIP() << "threads of the CPU";
  const Shape shape{8, 2, 64};
  const std::vector<Seq> seqs = {{1, 100, 150}, {2, 1, 300}, {3, 1, 5}};
  for (AttentionKind kind : kKinds) {
    const std::vector<float> one = Attend(*Make(kind, 1), dtype(), shape, seqs, 16);
    EXPECT_TRUE(SameBits(Attend(*Make(kind, 2), dtype(), shape, seqs, 16), one));
    EXPECT_TRUE(SameBits(Attend(*Make(kind, 3), dtype(), shape, seqs, 16), one));
  }
}

// A thread's share of a prompt is 192, 96 or 48 rows here, depending on the number of threads.
// Parts of the prompt have few rows, whose keys are read in place.
TEST_P(AttentionTest, RowsOfAnItemDoNotChangeBits) {
  if (device().type != DeviceType::kCPU) GTEST_SKIP() << "work items of the CPU";
  constexpr int kPrompt = 200, kLen = 260;
  const std::vector<Seq> prompt = {{1, kPrompt, kLen}};
  ForEachCpuTarget([&](const std::string& target) {
    for (const Shape& shape : {Shape{4, 2, 64}, Shape{6, 2, 10}, Shape{5, 1, 80}}) {
      for (const Mask& mask : {Mask{}, Mask{true, 70, true}, Mask{false, 0, false}}) {
        const std::string at = target + ": " + Describe(shape) + ", " + Describe(mask);
        const auto ops = Make(AttentionKind::kFlash1, 1);
        const std::vector<float> one = Attend(*ops, dtype(), shape, prompt, 16, mask);
        ExpectNaive(*ops, one, shape, prompt, at, mask);
        for (int threads : {2, 3}) {
          const auto more = Make(AttentionKind::kFlash1, threads);
          EXPECT_TRUE(SameBits(Attend(*more, dtype(), shape, prompt, 0, mask), one)) << at;
        }
        if (!mask.causal) continue;  // rows of a part attend to all its own keys
        const Cache cache(*ops, dtype(), shape, prompt, 16, 1);
        for (int chunk : {3, 11, 65}) {
          std::vector<float> chunked;
          for (int begin = kLen - kPrompt, end; begin < kLen; begin = end) {
            end = std::min(kLen, begin + chunk);
            const std::vector<Seq> part = {{1, end - begin, end}};
            for (float x : Attend(*ops, cache, dtype(), shape, part, mask)) chunked.push_back(x);
          }
          EXPECT_TRUE(SameBits(chunked, one)) << at << ", chunks of " << chunk;
        }
      }
    }
  });
}

// A work item of few rows has four, two or one of the KV heads, depending on the number of threads
// and the page size. An item of a longer sequence, or of a contiguous cache, has one.
TEST_P(AttentionTest, KvHeadsOfAnItemDoNotChangeBits) {
  if (device().type != DeviceType::kCPU) GTEST_SKIP() << "work items of the CPU";
  ForEachCpuTarget([&](const std::string& target) {
    for (const Shape& shape : {Shape{16, 8, 64}, Shape{12, 6, 80}, Shape{21, 3, 32}}) {
      for (const std::vector<Seq>& seqs :
           {std::vector<Seq>{{1, 1, 200}}, {{1, 3, 130}, {2, 40, 65}, {3, 1, 64}, {4, 1, 1}}}) {
        for (const Mask& mask : {Mask{}, Mask{true, 70, true}}) {
          const std::string at = target + ": " + Describe(shape) + ", " + Describe(mask);
          const auto contiguous = Make(AttentionKind::kFlash1, 9);
          const std::vector<float> one = Attend(*contiguous, dtype(), shape, seqs, 0, mask);
          ExpectNaive(*contiguous, one, shape, seqs, at, mask);
          for (int threads : {1, 2}) {
            const auto ops = Make(AttentionKind::kFlash1, threads);
            for (int page_size : {1, 16, 64}) {
              EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, page_size, mask), one))
                  << at << ", " << threads << " threads, pages of " << page_size;
            }
          }
        }
      }
    }
  });
}

TEST_P(AttentionTest, EveryInstructionSetMatchesNaiveAndKeepsTheGuarantees) {
  if (device().type != DeviceType::kCPU) GTEST_SKIP() << "instruction sets of CPUs";
  const std::vector<Seq> seqs = {{1, 20, 90}, {2, 1, 131}, {3, 1, 1}};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    std::map<std::string, std::vector<float>> outputs;
    ForEachCpuTarget([&](const std::string& target) {
      for (const Shape& shape :
           {Shape{5, 1, 16}, Shape{4, 2, 80}, Shape{4, 4, 10}, Shape{4, 2, 64}, Shape{26, 2, 64}}) {
        const std::vector<float> out = Attend(*ops, dtype(), shape, seqs, 16);
        ExpectNaive(*ops, out, shape, seqs, target + ": " + Describe(shape));
        EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, 0), out)) << target;
        const std::vector<float> alone = Attend(*ops, dtype(), shape, {seqs[0]}, 16);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin())) << target;
        if (target != "AVX3" && target != "AVX2") continue;  // the others lack these multiply-adds
        auto [first, is_first] = outputs.try_emplace(Describe(shape), out);
        EXPECT_TRUE(SameBits(first->second, out)) << target << ": " << Describe(shape);
      }
    });
  }
}

// Masked positions are skipped, not multiplied by zero.
TEST_P(AttentionTest, NaNInAKeyReachesLaterRowsOnly) {
  const Shape shape{2, 1, 32};
  for (AttentionKind kind : kKinds) {
    const auto ops = Make(kind);
    // Position 70 or 71: the first or the second one of a pair.
    const std::vector<std::pair<bool, int>> places = {
        {false, 70}, {true, 70}, {false, 71}, {true, 71}};
    for (const auto& [in_value, bad] : places) {
      constexpr int kLen = 100;
      const std::vector<Seq> seqs = {{1, kLen, kLen}};
      Cache cache(*ops, dtype(), shape, seqs, 128, 1);
      // That position on the only page.
      const Matrix k(*ops, DType::kF32, 1, 32,
                     in_value ? TokenData(1, bad, 1, 32) : std::vector<float>(32, kNaN));
      const Matrix v(*ops, DType::kF32, 1, 32,
                     in_value ? std::vector<float>(32, kNaN) : TokenData(1, bad, 2, 32));
      const int32_t page = cache.page(0, 0);
      const Array<int32_t> slot(*ops, {page * 128 + bad});
      ops->Run(StoreKvArgs{
          .kv = cache.view(), .k = k.tensor(), .v = v.tensor(), .slots = slot.tensor()});

      std::vector<float> q;
      for (int pos = 0; pos < kLen; ++pos) {
        for (float x : TokenData(1, pos, 3, shape.q_width())) q.push_back(x);
      }
      const Matrix mq(*ops, DType::kF32, kLen, shape.q_width(), q);
      const Matrix out(*ops, DType::kF32, kLen, shape.q_width());
      const Array<int32_t> cu_q(*ops, {0, kLen}), lens(*ops, {kLen});
      AttnMeta meta{cu_q.tensor(), lens.tensor(), 1, kLen, kLen};
      ops->Run(AttentionArgs{
          .out = out.tensor(), .q = mq.tensor(), .kv = cache.view(), .meta = meta, .scale = 0.25f});
      const std::vector<float> result = out.Get();
      for (int pos = 0; pos < kLen; ++pos) {
        for (int i = 0; i < shape.q_width(); ++i) {
          ASSERT_EQ(std::isnan(result[pos * shape.q_width() + i]), pos >= bad) << "row " << pos;
        }
      }
    }
  }
}

// Rows of equal elements, which give the largest possible products: integers must not overflow.
TEST_P(LargestHeadsTest, KeysLikeTheQueryWin) {
  constexpr int kLen = 40;
  for (const int head_dim : {512, 1024}) {
    const Shape shape{2, 1, head_dim};
    for (AttentionKind kind : kKinds) {
      const auto ops = Make(kind);
      Cache cache(*ops, dtype(), shape, {{1, kLen, kLen}}, 64, 1);
      // Even positions have keys like the query and values of 1, odd ones the opposite.
      std::vector<float> rows;
      std::vector<int32_t> slots;
      for (int pos = 0; pos < kLen; ++pos) {
        rows.insert(rows.end(), head_dim, pos % 2 == 0 ? 1.0f : -1.0f);
        slots.push_back(cache.page(0, 0) * 64 + pos);
      }
      const Matrix kv(*ops, DType::kF32, kLen, head_dim, rows);
      const Array<int32_t> device_slots(*ops, slots);
      ops->Run(StoreKvArgs{
          .kv = cache.view(), .k = kv.tensor(), .v = kv.tensor(), .slots = device_slots.tensor()});
      for (const int q_len : {1, kLen}) {
        const Matrix q(*ops, DType::kF32, q_len, shape.q_width(),
                       std::vector<float>(q_len * shape.q_width(), 1.0f));
        const Matrix out(*ops, DType::kF32, q_len, shape.q_width());
        const Array<int32_t> cu_q(*ops, {0, q_len}), lens(*ops, {kLen});
        const AttnMeta meta{cu_q.tensor(), lens.tensor(), 1, q_len, kLen};
        ops->Run(AttentionArgs{.out = out.tensor(),
                               .q = q.tensor(),
                               .kv = cache.view(),
                               .meta = meta,
                               .scale = 1.0f / 32});
        for (const float x : out.Get()) ASSERT_NEAR(x, 1.0f, 1e-2) << head_dim << ", " << q_len;
      }
    }
  }
}

}  // namespace
}  // namespace kuiper::test
