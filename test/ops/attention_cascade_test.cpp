// Cascade: sequences that share pages give the same bits whether the shared pages are read once for
// all of them (AttnMeta::shared_lens) or by each.
#include "attention_test_util.h"

namespace kuiper::test {
namespace {

// kFlash2 has its own kernel for 16-bit types on CUDA devices.
class AttentionCascadeTest : public AttentionTestBase {
 protected:
  std::vector<AttentionKind> Kinds() const {
    std::vector<AttentionKind> kinds = {AttentionKind::kMha, AttentionKind::kFlash1};
    const bool has_mma = device().type != DeviceType::kCPU;
    if (has_mma && DTypeBytes(dtype()) == 2) kinds.push_back(AttentionKind::kFlash2);
    return kinds;
  }
  static int HeadDim(AttentionKind kind) { return kind == AttentionKind::kFlash2 ? 64 : 32; }

  void ExpectSameBits(Ops& ops, const Shape& shape, const std::vector<Seq>& seqs, int page_size,
                      const Mask& mask = {}) const {
    const Cache cache(ops, dtype(), shape, seqs, page_size, 1);
    const std::vector<float> alone = Attend(ops, cache, dtype(), shape, seqs, mask);
    EXPECT_TRUE(SameBits(Attend(ops, cache, dtype(), shape, seqs, mask, true), alone))
        << Describe(shape) << ", " << Describe(mask) << ", pages of " << page_size << ", "
        << seqs.size() << " sequences, the last shares " << seqs.back().shared << " tokens";
  }
};
KU_INSTANTIATE_KV_OPS_TEST(AttentionCascadeTest);

// Returns `members` sequences that share their first `shared` tokens; each is slightly longer than
// the one before it.
std::vector<Seq> Group(int members, int shared, int id = 1) {
  std::vector<Seq> seqs;
  for (int i = 0; i < members; ++i) {
    seqs.push_back({id + i, 1, shared + 1 + 3 * i, i == 0 ? 0 : shared});
  }
  return seqs;
}

TEST_P(AttentionCascadeTest, SameBitsAroundTheEndsOfPagesTilesAndSplits) {
  for (AttentionKind kind : Kinds()) {
    const auto ops = Make(kind);
    const Shape shape{4, 2, HeadDim(kind)};
    for (int page : {1, 16, 64}) {
      for (int shared : {63, 64, 65, 127, 128, 129, 191, 256, 257}) {
        ExpectSameBits(*ops, shape, Group(3, shared), page);
      }
    }
  }
}

// More sequences than fit in a work item, and groups of heads that leave room for one sequence
// only.
TEST_P(AttentionCascadeTest, SameBitsForEveryNumberOfSequencesAndGroupOfHeads) {
  for (AttentionKind kind : Kinds()) {
    const auto ops = Make(kind, 1);
    for (int group : {1, 2, 4, 7, 8, 50}) {
      const Shape shape{group, 1, HeadDim(kind)};
      for (int members : {2, 5, 13}) ExpectSameBits(*ops, shape, Group(members, 130), 16);
    }
    const Shape shape{2, 2, HeadDim(kind)};
    std::vector<Seq> seqs = Group(70, 128);
    ExpectSameBits(*ops, shape, seqs, 64);
    // A prompt, and a sequence with no shared pages.
    seqs.insert(seqs.begin() + 35, {{90, 5, 150}, {91, 1, 3}});
    seqs[37].shared = 0;
    ExpectSameBits(*ops, shape, seqs, 64);
  }
}

// A tree: all share a system prompt, some share more. There are also sequences and prompts that
// share nothing.
TEST_P(AttentionCascadeTest, SameBitsInATreeAmongOthers) {
  const std::vector<Seq> seqs = {
      {1, 1, 40},        {2, 1, 400},      {3, 1, 200, 128}, {4, 1, 300, 160}, {5, 1, 301, 288},
      {6, 1, 290, 256},  {7, 1, 129, 128}, {8, 1, 500},      {9, 1, 700, 464}, {10, 1, 700, 688},
      {11, 1, 690, 640}, {12, 1, 130},     {13, 1, 131, 16}, {14, 7, 90},      {15, 40, 160},
  };
  for (AttentionKind kind : Kinds()) {
    const auto ops = Make(kind);
    for (int heads : {1, 2, 6}) {
      ExpectSameBits(*ops, {heads, heads == 1 ? 1 : 2, HeadDim(kind)}, seqs, 16);
    }
  }
}

TEST_P(AttentionCascadeTest, SameBitsForEveryMask) {
  for (AttentionKind kind : Kinds()) {
    const auto ops = Make(kind);
    const Shape shape{2, 1, HeadDim(kind)};
    for (const Mask& mask : {Mask{false, 0, false}, Mask{true, 0, true}, Mask{true, 40, false},
                             Mask{true, 150, true}, Mask{false, 300, false}}) {
      ExpectSameBits(*ops, shape, Group(3, 260), 16, mask);
    }
  }
}

// Only the first sequence's table has the shared pages, up to the last split or tile that is shared
// as a whole.
TEST_P(AttentionCascadeTest, SharedPagesAreReadForTheFirstSequenceOnly) {
  for (AttentionKind kind : Kinds()) {
    if (kind == AttentionKind::kMha) continue;
    const auto ops = Make(kind, 1);
    const Shape shape{2, 1, HeadDim(kind)};
    const std::vector<Seq> seqs = Group(4, 272);
    Cache cache(*ops, dtype(), shape, seqs, 16, 1);
    const std::vector<float> out = Attend(*ops, cache, dtype(), shape, seqs, {});
    for (int s = 1; s < 4; ++s) cache.Forget(s, 256);
    EXPECT_TRUE(SameBits(Attend(*ops, cache, dtype(), shape, seqs, {}, true), out));
  }
}

// Blocks that take fewer sequences than possible must not separate a pair that shares pages.
TEST_P(AttentionCascadeTest, SharedPagesOfAPairAreReadOnceWhereverItStands) {
  if (Kinds().back() != AttentionKind::kFlash2) GTEST_SKIP() << "blocks take few sequences";
  const auto ops = Make(AttentionKind::kFlash2);
  const Shape shape{2, 1, 64};
  for (int place : {3, 7, 15}) {
    std::vector<Seq> seqs;
    for (int i = 0; i < place; ++i) seqs.push_back({50 + i, 1, 20});
    for (const Seq& seq : Group(2, 1040)) seqs.push_back(seq);
    Cache cache(*ops, dtype(), shape, seqs, 16, 1);
    const std::vector<float> out = Attend(*ops, cache, dtype(), shape, seqs, {});
    cache.Forget(place + 1, 1024);
    EXPECT_TRUE(SameBits(Attend(*ops, cache, dtype(), shape, seqs, {}, true), out)) << place;
  }
}

// One captured launch serves steps with and without shared pages.
TEST_P(AttentionCascadeTest, RecordedLaunchReadsWhatIsShared) {
  for (AttentionKind kind : Kinds()) {
    const auto ops = Make(kind);
    const Shape shape{2, 1, HeadDim(kind)};
    const std::vector<Seq> seqs = Group(5, 272);
    const int width = shape.q_width(), rows = static_cast<int>(seqs.size());
    const Cache cache(*ops, dtype(), shape, seqs, 16, 1);
    const Matrix q(*ops, ActivationFor(*ops, dtype()), rows, width, RandomFloats(rows * width, 1));
    const Matrix out(*ops, ActivationFor(*ops, dtype()), rows, width);
    const Array<int32_t> cu_q(*ops, {0, 1, 2, 3, 4, 5}), lens(*ops, {273, 276, 279, 282, 285});
    const Array<int32_t> shared_lens(*ops, cache.shared_lens());
    AttnMeta meta{cu_q.tensor(), lens.tensor(), rows, 1, 300, shared_lens.tensor()};
    const auto graph = ops->device().Capture([&] {
      ops->Run(AttentionArgs{
          .out = out.tensor(), .q = q.tensor(), .kv = cache.view(), .meta = meta, .scale = 0.125f});
    });
    ASSERT_TRUE(graph.ok());
    meta.shared_lens = {};
    ops->Run(AttentionArgs{
        .out = out.tensor(), .q = q.tensor(), .kv = cache.view(), .meta = meta, .scale = 0.125f});
    ops->device().Sync();
    const std::vector<float> expected = out.Get();
    for (const std::vector<int32_t>& shared :
         {std::vector<int32_t>{0, 272, 272, 272, 272}, {0, 0, 0, 0, 0}, {0, 128, 0, 256, 144}}) {
      shared_lens.Set(shared);
      (*graph)->Replay();
      EXPECT_TRUE(SameBits(out.Get(), expected));
    }
  }
}

}  // namespace
}  // namespace kuiper::test
