#include "kuiper/engine/batch_builder.h"

#include <gtest/gtest.h>

#include "test/engine/plan_test_util.h"

namespace kuiper {
namespace {

std::vector<int32_t> Values(const Tensor& t) {
  std::vector<int32_t> values;
  const Tensor row = t.rank == 2 ? t.Rows(0, 1) : t;
  const int64_t count = t.rank == 2 ? t.shape[1] : t.shape[0];
  for (int64_t i = 0; i < count; ++i) values.push_back(row.ptr<int32_t>()[i]);
  return values;
}

using Ints = std::vector<int32_t>;

class BatchBuilderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops_ = MakeOps({DeviceType::kCPU, 0}, {.num_threads = 1}).value();
    builder_ = BatchBuilder::Create(ops_->device(), {.max_tokens = 16,
                                                     .max_seqs = 4,
                                                     .max_outputs = 4,
                                                     .max_pages = 8,
                                                     .page_size = 4,
                                                     .max_kv_len = 32})
                   .value();
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<BatchBuilder> builder_;
};

TEST_F(BatchBuilderTest, LaysMixedSequencesOutFlat) {
  // A decode of the last of 6 tokens, and the chunk [2, 5) of a prompt of 6.
  const StepPlan plan =
      test::PlanOf({{.sequence = 1,
                     .begin = 5,
                     .tokens = {15},
                     .pages = {7, 3},
                     .decodes = true,
                     .samples = true},
                    {.sequence = 2, .begin = 2, .tokens = {22, 23, 24}, .pages = {2, 5}}});
  const Batch batch = builder_->Build(plan);
  EXPECT_EQ(batch.num_tokens, 4);
  EXPECT_EQ(batch.num_seqs, 2);
  EXPECT_EQ(batch.num_outputs, 1);
  EXPECT_EQ(batch.num_decode_rows, 1);
  EXPECT_EQ(Values(batch.token_ids), (Ints{15, 22, 23, 24}));
  EXPECT_EQ(Values(batch.positions), (Ints{5, 2, 3, 4}));
  EXPECT_EQ(Values(batch.slots), (Ints{3 * 4 + 1, 2 * 4 + 2, 2 * 4 + 3, 5 * 4}));
  EXPECT_EQ(Values(batch.attn.cu_seqlens_q), (Ints{0, 1, 4}));
  EXPECT_EQ(Values(batch.attn.kv_lens), (Ints{6, 5}));
  EXPECT_EQ(Values(batch.output_rows), (Ints{0}));
  EXPECT_EQ(batch.block_tables.ptr<int32_t>()[0], 7);
  EXPECT_EQ(batch.block_tables.ptr<int32_t>()[1], 3);
  EXPECT_EQ(batch.block_tables.row<int32_t>(1)[0], 2);
  EXPECT_EQ(batch.block_tables.row<int32_t>(1)[1], 5);
}

// What the prompt still has to come must not be attended to, whatever its pages hold.
TEST_F(BatchBuilderTest, AttentionReachesToTheEndOfTheChunkNotOfThePrompt) {
  for (const int end : {1, 3, 4, 5, 13}) {
    for (const int begin : {0, end - 1}) {
      const Batch batch = builder_->Build(
          test::PlanOf({{.begin = begin, .tokens = Ints(end - begin, 1), .pages = {1, 2, 3, 4}}}));
      EXPECT_EQ(Values(batch.attn.kv_lens), (Ints{end})) << begin;
      EXPECT_EQ(Values(batch.attn.cu_seqlens_q), (Ints{0, end - begin})) << begin;
      EXPECT_EQ(Values(batch.positions).back(), end - 1);
    }
  }
}

TEST_F(BatchBuilderTest, SampledRowsComeBeforeTheOtherRowsOfLogits) {
  StepPlan plan;
  for (const int64_t sequence : {1, 2}) {
    const int first = static_cast<int>(plan.tokens.size());
    plan.Open(sequence, 0);
    for (int i = 0; i < 4; ++i) plan.tokens.push_back(TokenRef::Known(first + i));
    plan.positions.insert(plan.positions.end(), {0, 1, 2, 3});
    plan.pages.push_back(static_cast<int32_t>(sequence));
    plan.logits_rows.push_back(0);
    plan.samples.push_back({.row = sequence == 1 ? 1 : 3});
    plan.Close();
  }
  const Batch batch = builder_->Build(plan);
  EXPECT_EQ(Values(batch.output_rows), (Ints{1, 4 + 3, 0, 4}));
}

// Positions turn the heads, places in the sequence say where keys go.
TEST_F(BatchBuilderTest, PositionsHaveARowPerAxis) {
  const auto builder = BatchBuilder::Create(ops_->device(), {.max_tokens = 8,
                                                             .max_seqs = 1,
                                                             .max_outputs = 1,
                                                             .num_axes = 3,
                                                             .max_pages = 8,
                                                             .page_size = 4,
                                                             .max_kv_len = 32})
                           .value();
  StepPlan plan = test::PlanOf({{.begin = 3, .tokens = {1, 2}, .pages = {5, 6}}});
  plan.num_axes = 3;
  plan.positions = {3, 4, 30, 31, 20, 21};
  const Batch batch = builder->Build(plan);
  ASSERT_EQ(batch.positions.shape[0], 3);
  for (int axis = 0; axis < 3; ++axis) {
    EXPECT_EQ(Values(batch.positions.Rows(axis, axis + 1)),
              (Ints{plan.positions[2 * axis], plan.positions[2 * axis + 1]}));
  }
  EXPECT_EQ(Values(batch.slots), (Ints{5 * 4 + 3, 6 * 4}));
}

TEST_F(BatchBuilderTest, PaddedRowsUseTheNullPage) {
  const StepPlan plan =
      test::PlanOf({{.begin = 1, .tokens = {2}, .pages = {6}, .decodes = true, .samples = true}});
  ASSERT_TRUE(plan.decode_only());
  const Batch batch = builder_->Build(plan, 4);
  EXPECT_EQ(batch.num_seqs, 4);
  EXPECT_EQ(batch.num_outputs, 4);
  EXPECT_EQ(batch.num_decode_rows, 4);
  EXPECT_EQ(Values(batch.slots), (Ints{6 * 4 + 1, 0, 0, 0}));
  EXPECT_EQ(Values(batch.attn.kv_lens), (Ints{2, 1, 1, 1}));
  EXPECT_EQ(Values(batch.output_rows), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(batch.block_tables.row<int32_t>(3)[0], 0);
}

TEST_F(BatchBuilderTest, UploadsOnlyTableEntriesThatChanged) {
  builder_->Build(test::PlanOf({{.begin = 11, .tokens = {1}, .pages = {4, 5, 6}}}));
  EXPECT_EQ(builder_->table_entries_uploaded(), 3);
  builder_->Build(test::PlanOf({{.begin = 11, .tokens = {1}, .num_kept_pages = 3}}));
  EXPECT_EQ(builder_->table_entries_uploaded(), 3);
  builder_->Build(test::PlanOf({{.begin = 12, .tokens = {1}, .pages = {9}, .num_kept_pages = 3}}));
  EXPECT_EQ(builder_->table_entries_uploaded(), 4);
  // Another sequence in the same row shares the first page only.
  builder_->Build(test::PlanOf({{.sequence = 2, .tokens = {1}, .pages = {4, 8}}}));
  EXPECT_EQ(builder_->table_entries_uploaded(), 5);
  // What follows a changed entry is sent again.
  const Batch batch =
      builder_->Build(test::PlanOf({{.begin = 12, .tokens = {1}, .num_kept_pages = 4}}));
  EXPECT_EQ(builder_->table_entries_uploaded(), 8);
  const Ints pages = {4, 5, 6, 9};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(batch.block_tables.ptr<int32_t>()[i], pages[i]);
}

TEST_F(BatchBuilderTest, TablesFollowThePlansAndEndWithTheSequence) {
  const auto covers = [this](const test::HandMade& entry, std::vector<int64_t> ended = {}) {
    StepPlan plan = test::PlanOf({entry});
    plan.ended = std::move(ended);
    return builder_->CheckTables(plan).ok();
  };
  EXPECT_FALSE(covers({.tokens = {1}, .num_kept_pages = 1})) << "nobody told a page";
  EXPECT_FALSE(covers({.tokens = {1}}));
  EXPECT_FALSE(covers({.tokens = Ints(5, 1), .pages = {1}}));
  EXPECT_FALSE(covers({.tokens = {1}, .pages = Ints(9, 1)})) << "more than a row holds";
  EXPECT_TRUE(covers({.tokens = Ints(5, 1), .pages = {1, 2}}));
  builder_->Build(test::PlanOf({{.tokens = Ints(5, 1), .pages = {1, 2}}}));
  EXPECT_TRUE(covers({.begin = 5, .tokens = {1}, .num_kept_pages = 2}));
  EXPECT_FALSE(covers({.begin = 5, .tokens = {1}, .num_kept_pages = 1})) << "a page is cut off";
  EXPECT_FALSE(covers({.begin = 5, .tokens = {1}, .num_kept_pages = 2}, {1}));
  EXPECT_FALSE(covers({.sequence = 2, .begin = 5, .tokens = {1}, .num_kept_pages = 2}));
  // A page in the middle is exchanged.
  const Batch batch = builder_->Build(
      test::PlanOf({{.begin = 5, .tokens = {1}, .pages = {3}, .num_kept_pages = 1}}));
  EXPECT_EQ(batch.block_tables.ptr<int32_t>()[0], 1);
  EXPECT_EQ(batch.block_tables.ptr<int32_t>()[1], 3);
  StepPlan other = test::PlanOf({{.sequence = 2, .tokens = {1}, .pages = {4}}});
  other.ended = {1};
  builder_->Build(other);
  EXPECT_FALSE(covers({.begin = 5, .tokens = {1}, .num_kept_pages = 2})) << "it was forgotten";
}

TEST_F(BatchBuilderTest, CopiesOfPagesAreUploadedInOrder) {
  StepPlan plan = test::PlanOf({{.begin = 5, .tokens = {1}, .pages = {2, 7}, .decodes = true}});
  EXPECT_EQ(builder_->Build(plan).copies.rows(), 0);
  plan.copies = {{3, 7, 1}, {4, 5, 4}};
  const Tensor copies = builder_->Build(plan).copies;
  ASSERT_EQ(copies.rows(), 2);
  EXPECT_EQ(Values(copies.Rows(0, 1)), (Ints{3, 7, 1}));
  EXPECT_EQ(Values(copies.Rows(1, 2)), (Ints{4, 5, 4}));
}

TEST_F(BatchBuilderTest, ArraysStayAtTheirAddresses) {
  const Batch a = builder_->Build(test::PlanOf({{.tokens = Ints(9, 1), .pages = {1, 2, 3}}}));
  const Batch b = builder_->Build(test::PlanOf({{.tokens = Ints(2, 1), .num_kept_pages = 3}}));
  EXPECT_EQ(a.token_ids.data, b.token_ids.data);
  EXPECT_EQ(a.slots.data, b.slots.data);
  EXPECT_EQ(a.attn.kv_lens.data, b.attn.kv_lens.data);
  EXPECT_EQ(a.block_tables.data, b.block_tables.data);
}

TEST_F(BatchBuilderTest, SaysWhichTokensLieOnPagesOfTheSequenceBefore) {
  constexpr int kPageSize = 128;
  const auto builder = BatchBuilder::Create(ops_->device(), {.max_tokens = 16,
                                                             .max_seqs = 5,
                                                             .max_outputs = 5,
                                                             .max_pages = 3,
                                                             .page_size = kPageSize,
                                                             .max_kv_len = 3 * kPageSize,
                                                             .cascade = true})
                           .value();
  const auto plan = [](int count) {
    std::vector<test::HandMade> entries;
    for (int i = 0; i < count; ++i) {  // the third is a chunk
      entries.push_back({.sequence = i,
                         .begin = 2 * kPageSize,
                         .tokens = Ints(i == 2 ? 2 : 1, 7),
                         .pages = {1, 2, 3 + i}});
    }
    return test::PlanOf(entries);
  };
  EXPECT_EQ(Values(builder->Build(plan(3)).attn.shared_lens), (Ints{0, 2 * kPageSize, 0}));
  // Padded rows share the null page, and nothing.
  EXPECT_EQ(Values(builder->Build(plan(2), 4).attn.shared_lens), (Ints{0, 2 * kPageSize, 0, 0}));
  EXPECT_TRUE(builder->Build(plan(1)).attn.shared_lens.empty()) << "one sequence";
  EXPECT_TRUE(builder_->Build({}, 2).attn.shared_lens.empty()) << "switched off";
}

}  // namespace
}  // namespace kuiper
