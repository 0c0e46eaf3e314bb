#include "kuiper/engine/batch_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

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

TEST_F(BatchBuilderTest, LastRowsAreThoseOfAllSequencesWhereNoOthersNeedLogits) {
  const StepPlan plan =
      test::PlanOf({{.sequence = 1, .tokens = {1, 2}, .pages = {1}, .samples = true},
                    {.sequence = 2, .tokens = {3, 4, 5, 6, 7}, .pages = {2, 3}},
                    {.sequence = 3, .begin = 3, .tokens = {8}, .pages = {4}, .samples = true}});
  const Batch batch = builder_->Build(plan);
  EXPECT_EQ(Values(batch.last_rows), (Ints{1, 6, 7}));
  EXPECT_EQ(Values(batch.last_outputs), (Ints{0, 2}));
  EXPECT_EQ(Values(batch.output_rows), (Ints{1, 7}));
  EXPECT_EQ(Values(batch.last_attn.cu_seqlens_q), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(Values(batch.last_attn.kv_lens), (Ints{2, 5, 4}));
  EXPECT_EQ(batch.last_attn.max_q_len, 1);
  EXPECT_FALSE(batch.last_attn.appends);

  StepPlan inner = plan;
  inner.logits_rows = {3};
  inner.entries[1].logits_rows = {0, 1};
  inner.entries[2].logits_rows = {1, 1};
  EXPECT_TRUE(builder_->Build(inner).last_rows.empty());
  const StepPlan decode = test::PlanOf({{.tokens = {1}, .pages = {1}, .samples = true}});
  EXPECT_TRUE(builder_->Build(decode).last_rows.empty());
}

// The rest of the prompt must not be attended to, whatever its pages hold.
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

// Positions determine RoPE; indices in the sequence determine where keys are stored.
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
  // Entries after a changed one are sent again.
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
  EXPECT_FALSE(covers({.tokens = {1}, .num_kept_pages = 1})) << "no page was sent";
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

// Steps with equally many tokens are captured and replayed, whatever else differs.
TEST_F(BatchBuilderTest, ArraysOfAsManyTokensStayAtTheirAddresses) {
  const auto addresses = [](const Batch& batch) {
    return std::vector<const void*>{batch.token_ids.data,    batch.positions.data,
                                    batch.slots.data,        batch.attn.cu_seqlens_q.data,
                                    batch.attn.kv_lens.data, batch.output_rows.data,
                                    batch.copies.data,       batch.block_tables.data};
  };
  const auto padded = [&](int begin, std::vector<int32_t> pages) {
    return addresses(builder_->Build(
        test::PlanOf({{.begin = begin, .tokens = {1}, .pages = pages, .samples = true}}), 4));
  };
  const auto before = padded(2, {1});
  builder_->Build(test::PlanOf({{.tokens = Ints(9, 1), .pages = {1, 2, 3}}}));
  EXPECT_EQ(padded(9, {1, 2, 5}), before);
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
  // Padded rows use only the null page.
  EXPECT_EQ(Values(builder->Build(plan(2), 4).attn.shared_lens), (Ints{0, 2 * kPageSize, 0, 0}));
  EXPECT_TRUE(builder->Build(plan(1)).attn.shared_lens.empty()) << "one sequence";
  EXPECT_TRUE(builder_->Build({}, 2).attn.shared_lens.empty()) << "switched off";
}

// Tables grow, are truncated and are sent again. Sequences change rows, pause, end, and come back
// with the same number. The device's content and the shared tokens are compared with the plans.
TEST_F(BatchBuilderTest, TablesAndSharedTokensAreThoseOfThePlans) {
  constexpr int kPageSize = 64, kMaxPages = 6, kMaxSeqs = 5;
  std::mt19937 engine(7);
  const auto below = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
  const auto builder = BatchBuilder::Create(ops_->device(), {.max_tokens = 16,
                                                             .max_seqs = kMaxSeqs,
                                                             .max_outputs = kMaxSeqs,
                                                             .max_pages = kMaxPages,
                                                             .page_size = kPageSize,
                                                             .max_kv_len = kMaxPages * kPageSize,
                                                             .cascade = true})
                           .value();
  std::map<int64_t, Ints> tables;
  int num_shared = 0, num_lost = 0;
  std::map<int64_t, int> shared_before;
  for (int step = 0; step < 3000; ++step) {
    std::vector<int64_t> order = {1, 2, 3, 4, 5, 6};
    if (below(4) == 0) std::shuffle(order.begin(), order.end(), engine);
    order.resize(2 + below(kMaxSeqs - 1));
    StepPlan plan;
    if (below(20) == 0) plan.ended.push_back(1 + below(6));
    for (const int64_t id : plan.ended) {
      tables.erase(id);
      std::erase(order, id);
    }
    if (below(50) == 0) {
      builder->ForgetTables();
      tables.clear();
    }
    for (const int64_t id : order) {
      Ints& table = tables[id];
      const int size = static_cast<int>(table.size());
      const int kept = below(8) == 0 ? below(size + 1) : size;
      table.resize(kept);
      Ints more(kept == 0 || below(6) == 0 ? below(kMaxPages - kept + 1) : 0);
      if (kept + more.size() == 0) more.resize(1);
      // The page at each index is one of two, so that many tables begin alike.
      for (size_t i = 0; i < more.size(); ++i) {
        more[i] = static_cast<int32_t>(10 * (kept + i) + 1 + (below(6) == 0));
      }
      table.insert(table.end(), more.begin(), more.end());
      const int num_tokens = below(10) == 0 ? 2 : 1;
      const int last = static_cast<int>(table.size()) * kPageSize - num_tokens;
      test::Append({.sequence = id,
                    .begin = last - below(kPageSize - 1),
                    .tokens = Ints(num_tokens, 7),
                    .pages = more,
                    .num_kept_pages = kept},
                   &plan);
    }
    ASSERT_TRUE(builder->CheckTables(plan).ok());
    const Batch batch = builder->Build(plan, below(3) == 0 ? kMaxSeqs : 0);
    for (size_t row = 0; row < order.size(); ++row) {
      const Ints& table = tables[order[row]];
      const int32_t* told = batch.block_tables.row<int32_t>(row);
      ASSERT_EQ(Ints(told, told + table.size()), table) << "step " << step << ", row " << row;
      if (row == 0) continue;
      const Ints& before = tables[order[row - 1]];
      const auto &entry = plan.entries[row], &entry_before = plan.entries[row - 1];
      const auto end = std::mismatch(before.begin(), before.end(), table.begin(), table.end());
      int expected = static_cast<int>(end.first - before.begin()) * kPageSize;
      expected = std::min({expected, entry.begin, entry_before.begin});
      const bool decode = entry.num_tokens() == 1 && entry_before.num_tokens() == 1;
      if (!decode || expected < 128) expected = 0;
      ASSERT_EQ(Values(batch.attn.shared_lens)[row], expected) << "step " << step;
      num_shared += expected > 0;
      num_lost += expected < shared_before[row];
      shared_before[row] = expected;
    }
  }
  EXPECT_GT(num_shared, 500);
  EXPECT_GT(num_lost, 200);
}

}  // namespace
}  // namespace kuiper
