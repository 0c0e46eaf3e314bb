// Compares the tensor core attention of the CUDA backend (--attention flash2) with naive loops.
// Also tests the guarantee it shares with the other kernels: a row's bits depend on its own
// position and length only.
#include "attention_test_util.h"

namespace kuiper::test {
namespace {

std::vector<Device> GpusUnderTest() {
  std::vector<Device> devices = DevicesUnderTest();
  std::erase_if(devices, [](const Device& d) { return d.type == DeviceType::kCPU; });
  return devices;
}

class AttentionMmaTest : public AttentionTestBase {
 protected:
  std::unique_ptr<Ops> MakeMma() { return Make(AttentionKind::kFlash2); }
  // Softmax weights below the largest are rounded one more time than the output.
  void ExpectNaive(const std::vector<float>& out, const Shape& shape, const std::vector<Seq>& seqs,
                   const Mask& mask = {}) const {
    const double rounding = RoundingError(dtype());
    ExpectNear(out, Naive(dtype(), dtype(), DType::kF32, shape, seqs, mask), 2e-5 + 2 * rounding,
               rounding, Describe(shape) + ", " + Describe(mask));
  }
};
INSTANTIATE_TEST_SUITE_P(, AttentionMmaTest,
                         ::testing::Combine(::testing::ValuesIn(GpusUnderTest()),
                                            ::testing::Values(DType::kF16, DType::kBF16)),
                         DeviceTypeTestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionMmaTest);

// Prompts, chunks and single rows in one batch.
TEST_P(AttentionMmaTest, MatchesNaiveForEveryHeadAndGroup) {
  const std::vector<Seq> seqs = {{1, 1, 1}, {2, 5, 65}, {3, 1, 193}, {4, 17, 17}, {5, 3, 130}};
  const auto ops = MakeMma();
  for (int head_dim : {64, 72, 80, 128}) {
    for (int group : {1, 2, 4, 5, 7, 8}) {
      const Shape shape{2 * group, 2, head_dim};
      ExpectNaive(Attend(*ops, dtype(), shape, seqs, 16), shape, seqs);
    }
  }
}

// More query heads than a block has rows.
TEST_P(AttentionMmaTest, MatchesNaiveOnWideGroups) {
  const auto ops = MakeMma();
  const Shape shape{70, 1, 64};
  const std::vector<Seq> seqs = {{1, 3, 67}, {2, 1, 5}};
  ExpectNaive(Attend(*ops, dtype(), shape, seqs, 8), shape, seqs);
}

TEST_P(AttentionMmaTest, MatchesNaiveAroundTheEndsOfTilesAndSplits) {
  const Shape shape{2, 1, 64};
  const auto ops = MakeMma();
  std::vector<Seq> seqs;
  for (int len : {1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 193}) seqs.push_back({len, len, len});
  ExpectNaive(Attend(*ops, dtype(), shape, seqs, 16), shape, seqs);
  for (Seq& seq : seqs) seq.q_len = 1;
  ExpectNaive(Attend(*ops, dtype(), shape, seqs, 16), shape, seqs);
}

TEST_P(AttentionMmaTest, MatchesNaiveForEveryMask) {
  const Shape shape{3, 1, 64};
  const std::vector<Seq> seqs = {{1, 1, 1}, {2, 40, 70}, {3, 1, 200}, {4, 21, 150}};
  const auto ops = MakeMma();
  for (bool causal : {true, false}) {
    for (int window : {0, 1, 2, 17, 63, 64, 65, 129, 1 << 30}) {
      const Mask mask{causal, window, window % 2 == 0};
      ExpectNaive(Attend(*ops, dtype(), shape, seqs, 16, mask), shape, seqs, mask);
    }
  }
}

TEST_P(AttentionMmaTest, PagedEqualsContiguousForEveryPageSize) {
  const auto ops = MakeMma();
  const auto check = [&](const Shape& shape, int page) {
    std::vector<Seq> seqs = {{90, 30, 200}, {91, 1, 130}};
    for (int len : {1, page - 1, page, page + 1, 3 * page + 1}) {
      if (len > 0 && len < 300) seqs.push_back({len, std::min(len, 40), len});
    }
    const std::vector<float> contiguous = Attend(*ops, dtype(), shape, seqs, 0);
    EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, seqs, page), contiguous)) << page;
  };
  for (int page : {1, 8, 16, 64, 256}) check({4, 2, 64}, page);
  for (int head_dim : {72, 80, 128}) check({4, 2, head_dim}, 8);
}

// Decode computes chunks of one token.
TEST_P(AttentionMmaTest, DecodedEqualsChunkedEqualsWhole) {
  const Shape shape{3, 1, 64};
  constexpr int kLen = 140;  // past the end of a split, and every index of a row in a block
  const auto ops = MakeMma();
  for (const Mask& mask : {Mask{}, Mask{true, 70, true}}) {
    const std::vector<float> whole = Attend(*ops, dtype(), shape, {{9, kLen, kLen}}, 16, mask);
    for (int chunk : {1, 7, 64, 100}) {
      // All chunks in one batch: each is a sequence that shares its data with the others.
      std::vector<Seq> chunks;
      for (int begin = 0; begin < kLen; begin += chunk) {
        const int end = std::min(kLen, begin + chunk);
        chunks.push_back({9, end - begin, end});
      }
      EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, chunks, 64, mask), whole))
          << "chunks of " << chunk << ", " << Describe(mask);
    }
  }
}

// In a decode step, the newest key and value of a sequence are loaded after the others.
TEST_P(AttentionMmaTest, StepsThatAppendEqualOthers) {
  const auto ops = MakeMma();
  const auto check = [&](const Shape& shape, const std::vector<Seq>& seqs, int page) {
    const Cache cache(*ops, dtype(), shape, seqs, page, 1);
    for (const Mask& mask : {Mask{}, Mask{true, 40, true}}) {
      const auto attend = [&](bool appends) {
        return Attend(*ops, cache, dtype(), shape, seqs, mask, seqs.back().shared > 0, {}, appends);
      };
      EXPECT_TRUE(SameBits(attend(true), attend(false)))
          << Describe(shape) << ", page size " << page << ", " << Describe(mask);
    }
  };
  std::vector<Seq> seqs, tree;
  for (int len : {1, 2, 31, 32, 33, 63, 64, 65, 128, 129, 193, 300}) seqs.push_back({len, 1, len});
  for (int id = 1; id <= 6; ++id) tree.push_back({id, 1, 256 + 32 * id, id == 1 ? 0 : 256});
  for (const Shape& shape : {Shape{6, 2, 64}, Shape{7, 1, 128}}) {
    for (int page : {0, 1, 16, 256}) {
      check(shape, seqs, page);
      for (const Seq& seq : seqs) check(shape, {seq}, page);
    }
    check(shape, tree, 16);  // shared pages are computed for up to 42 rows
  }
}

// Without other rows, several blocks divide the splits of a single row. In a batch that fills the
// (emulated) device, one block runs all splits of a row.
TEST_P(AttentionMmaTest, BatchedEqualsAlone) {
  const Shape shape{4, 2, 128};
  std::vector<Seq> seqs = {{1, 1, 640}, {2, 40, 90}, {3, 1, 1}, {4, 7, 7}, {5, 1, 129}};
  const auto ops = MakeMma();
  std::vector<float> alone;
  for (const Seq& s : seqs) {
    for (float x : Attend(*ops, dtype(), shape, {s}, 16)) alone.push_back(x);
  }
  for (int i = 0; i < 20; ++i) seqs.push_back({6, 1, 1});
  const std::vector<float> batch = Attend(*ops, dtype(), shape, seqs, 16);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch.begin()));
  EXPECT_TRUE(SameBits(Attend(*ops, dtype(), shape, {seqs.back()}, 16),
                       {batch.end() - shape.q_width(), batch.end()}));
}

// Splits per block are chosen to fill the device (attention_work.cuh), so they vary with the number
// of sequences.
TEST_P(AttentionMmaTest, RunsOfSplitsDoNotChangeBits) {
  const Shape shape{2, 1, 64};
  const auto ops = MakeMma();
  for (const int num_seqs : {2, 5, 11, 23}) {
    std::vector<Seq> seqs;
    for (int i = 0; i < num_seqs; ++i) {
      const int len = std::vector{2600, 1, 700, 2049, 512}[i % 5];
      seqs.push_back({len, 1, len});
    }
    const std::vector<float> batch = Attend(*ops, dtype(), shape, seqs, 16);
    for (int i = 0; i < std::min(num_seqs, 5); ++i) {
      const auto row = batch.begin() + i * shape.q_width();
      EXPECT_TRUE(
          SameBits(Attend(*ops, dtype(), shape, {seqs[i]}, 16), {row, row + shape.q_width()}))
          << num_seqs << " sequences, one of " << seqs[i].kv_len;
    }
  }
}

TEST_P(AttentionMmaTest, KeysOutsideTheWindowAreNotRead) {
  const Shape shape{4, 2, 64};
  const std::vector<Seq> seqs = {{1, 1, 150}, {2, 5, 141}};
  const auto ops = MakeMma();
  for (int window : {1, 30, 64, 70}) {
    ExpectNothingReadBeforeTheWindow(*ops, shape, seqs, window);
  }
}

// One launch, captured once and replayed with other lengths and other numbers of rows. Aligned rows
// are copied in larger pieces than those of Attend; the bits are the same.
TEST_P(AttentionMmaTest, RecordedLaunchFitsEveryLength) {
  const Shape shape{4, 2, 64};
  constexpr int kRows = 12, kSeqs = 3, kMaxLen = 300;
  const auto ops = MakeMma();
  const std::vector<std::vector<Seq>> steps = {
      {{1, 1, 300}, {2, 10, 10}, {3, 1, 1}},
      {{1, 4, 300}, {2, 4, 129}, {3, 4, 300}},
      {{1, 1, 1}, {2, 1, 64}, {3, 1, 65}},
      {{1, 12, 270}, {2, 0, 0}, {3, 0, 0}},
  };
  const std::vector<Seq> full = {
      {1, kMaxLen, kMaxLen}, {2, kMaxLen, kMaxLen}, {3, kMaxLen, kMaxLen}};
  const Cache cache(*ops, dtype(), shape, full, 16, 1);
  Matrix q(*ops, dtype(), kRows, shape.q_width()), out(*ops, dtype(), kRows, shape.q_width());
  const Array<int32_t> cu_q(*ops, std::vector<int32_t>(kSeqs + 1, 0));
  const Array<int32_t> lens(*ops, std::vector<int32_t>(kSeqs, 0));
  const AttnMeta meta{cu_q.tensor(), lens.tensor(), kSeqs, kRows, kMaxLen};
  const auto graph = ops->device().Capture([&] {
    ops->Run(AttentionArgs{
        .out = out.tensor(), .q = q.tensor(), .kv = cache.view(), .meta = meta, .scale = 0.125f});
  });
  ASSERT_TRUE(graph.ok());
  for (const std::vector<Seq>& step : steps) {
    std::vector<float> queries;
    std::vector<int32_t> ends{0}, kv_lens;
    for (const Seq& s : step) {
      for (int pos = s.kv_len - s.q_len; pos < s.kv_len; ++pos) {
        for (float x : TokenData(s.id, pos, 3, shape.q_width())) queries.push_back(x);
      }
      ends.push_back(ends.back() + s.q_len);
      kv_lens.push_back(s.kv_len);
    }
    const size_t used = queries.size();
    queries.resize(size_t{1} * kRows * shape.q_width());
    q.Set(queries);
    cu_q.Set(ends);
    lens.Set(kv_lens);
    (*graph)->Replay();
    std::vector<float> result = out.Get();
    result.resize(used);
    EXPECT_TRUE(SameBits(result, Attend(*ops, dtype(), shape, step, 16)));
  }
}

}  // namespace
}  // namespace kuiper::test
