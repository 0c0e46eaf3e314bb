#include "kuiper/engine/batch_builder.h"

#include <gtest/gtest.h>

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
    builder_ = BatchBuilder::Create(*ops_, {.max_tokens = 16,
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
  Sequence decode;  // 6 tokens, the last one not computed
  decode.tokens = {10, 11, 12, 13, 14, 15};
  decode.pages = {7, 3};
  Sequence prompt;  // chunk [2, 5) of 6 tokens
  prompt.tokens = {20, 21, 22, 23, 24, 25};
  prompt.pages = {2, 5};
  StepPlan plan;
  plan.entries = {{.seq = &decode, .begin = 5, .num_tokens = 1, .samples = true, .decodes = true},
                  {.seq = &prompt, .begin = 2, .num_tokens = 3}};
  plan.num_tokens = 4;
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
  Sequence seq;
  seq.tokens.assign(14, 1);
  seq.pages = {1, 2, 3, 4};
  StepPlan plan;
  for (const int end : {1, 3, 4, 5, 13}) {
    for (const int begin : {0, end - 1}) {
      plan.entries = {{&seq, begin, end - begin, false, false}};
      const Batch batch = builder_->Build(plan);
      EXPECT_EQ(Values(batch.attn.kv_lens), (Ints{end})) << begin;
      EXPECT_EQ(Values(batch.attn.cu_seqlens_q), (Ints{0, end - begin})) << begin;
      EXPECT_EQ(Values(batch.positions).back(), end - 1);
    }
  }
}

TEST_F(BatchBuilderTest, PaddedRowsUseTheNullPage) {
  Sequence seq;
  seq.tokens = {1, 2};
  seq.pages = {6};
  StepPlan plan;
  plan.entries = {{&seq, 1, 1, true, false}};
  plan.num_tokens = 1;
  plan.decode_only = true;
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
  Sequence seq;
  seq.tokens.assign(20, 1);
  seq.pages = {4, 5, 6};
  StepPlan plan;
  plan.entries = {{&seq, 11, 1, false, false}};
  plan.num_tokens = 1;
  builder_->Build(plan);
  EXPECT_EQ(builder_->table_entries_uploaded(), 3);
  builder_->Build(plan);
  EXPECT_EQ(builder_->table_entries_uploaded(), 3);
  plan.entries[0].begin = 12;
  seq.pages.push_back(9);
  builder_->Build(plan);
  EXPECT_EQ(builder_->table_entries_uploaded(), 4);
  Sequence other;  // another sequence in the same row shares the first page only
  other.tokens.assign(8, 1);
  other.pages = {4, 8};
  plan.entries[0] = {&other, 0, 1, false, false};
  builder_->Build(plan);
  EXPECT_EQ(builder_->table_entries_uploaded(), 5);
  plan.entries[0] = {&seq, 12, 1, false, false};  // what follows a changed entry is sent again
  const Batch batch = builder_->Build(plan);
  EXPECT_EQ(builder_->table_entries_uploaded(), 8);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(batch.block_tables.ptr<int32_t>()[i], seq.pages[i]);
}

TEST_F(BatchBuilderTest, CopiesOfPagesAreUploadedInOrder) {
  Sequence seq;
  seq.tokens.assign(6, 1);
  seq.num_computed = 5;
  seq.pages = {2, 7};
  StepPlan plan;
  plan.entries = {{&seq, 1, true, false}};
  EXPECT_EQ(builder_->Build(plan).copies.rows(), 0);
  plan.copies = {{3, 7, 1}, {4, 5, 4}};
  const Tensor copies = builder_->Build(plan).copies;
  ASSERT_EQ(copies.rows(), 2);
  EXPECT_EQ(Values(copies.Rows(0, 1)), (Ints{3, 7, 1}));
  EXPECT_EQ(Values(copies.Rows(1, 2)), (Ints{4, 5, 4}));
}

TEST_F(BatchBuilderTest, ArraysStayAtTheirAddresses) {
  Sequence seq;
  seq.tokens.assign(9, 1);
  seq.pages = {1, 2, 3};
  StepPlan plan;
  plan.entries = {{&seq, 0, 9, true, false}};
  const Batch a = builder_->Build(plan);
  plan.entries[0].num_tokens = 2;
  const Batch b = builder_->Build(plan);
  EXPECT_EQ(a.token_ids.data, b.token_ids.data);
  EXPECT_EQ(a.slots.data, b.slots.data);
  EXPECT_EQ(a.attn.kv_lens.data, b.attn.kv_lens.data);
  EXPECT_EQ(a.block_tables.data, b.block_tables.data);
}

TEST_F(BatchBuilderTest, SaysWhichTokensLieOnPagesOfTheSequenceBefore) {
  constexpr int kPageSize = 128;
  const auto builder = BatchBuilder::Create(*ops_, {.max_tokens = 16,
                                                    .max_seqs = 5,
                                                    .max_outputs = 5,
                                                    .max_pages = 3,
                                                    .page_size = kPageSize,
                                                    .max_kv_len = 3 * kPageSize,
                                                    .cascade = true})
                           .value();
  Sequence a, b, chunk;
  a.pages = {1, 2, 3};
  b.pages = {1, 2, 4};
  chunk.pages = {1, 2, 5};
  for (Sequence* seq : {&a, &b, &chunk}) seq->tokens.assign(2 * kPageSize + 2, 7);
  StepPlan plan;
  for (Sequence* seq : {&a, &b, &chunk}) {
    plan.entries.push_back(
        {.seq = seq, .begin = 2 * kPageSize, .num_tokens = seq == &chunk ? 2 : 1});
  }
  EXPECT_EQ(Values(builder->Build(plan).attn.shared_lens), (Ints{0, 2 * kPageSize, 0}));
  plan.entries.pop_back();
  // Padded rows share the null page, and nothing.
  EXPECT_EQ(Values(builder->Build(plan, 4).attn.shared_lens), (Ints{0, 2 * kPageSize, 0, 0}));
  plan.entries.pop_back();
  EXPECT_TRUE(builder->Build(plan).attn.shared_lens.empty()) << "one sequence";
  EXPECT_TRUE(builder_->Build({}, 2).attn.shared_lens.empty()) << "switched off";
}

}  // namespace
}  // namespace kuiper
