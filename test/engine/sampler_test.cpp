#include "kuiper/engine/sampler.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

namespace kuiper {
namespace {

// The tokenizer knows 4 of the model's 32 ids; a prompt of plain ids may hold them all.
TEST(SamplerTest, PenaltiesHaveRoomForEveryIdOfTheModel) {
  constexpr int kVocab = 32, kLimit = 4;
  const auto ops = MakeOps({}, {.num_threads = 1}).value();
  ASSERT_TRUE(ops->Reserve({.max_tokens = 1, .max_seqs = 1, .vocab = kVocab}).ok());
  const auto sampler = Sampler::Create(*ops, 1, 64, kVocab, kLimit).value();
  StepPlan plan;
  plan.Open(1, kVocab);
  plan.tokens.push_back(TokenRef::Known(2));
  plan.positions.push_back(kVocab);
  for (int32_t id = 0; id < kVocab; ++id) plan.penalties.push_back({id, id == 2 ? 1 : 0});
  plan.samples.push_back({.index = 1, .params = {.presence_penalty = 2}, .penalties = {0, kVocab}});
  plan.Close();
  std::vector<float> logits(kVocab, 5.f);
  logits[1] = 6;
  logits[2] = 7;  // 5 after the penalty
  const Tensor row = Tensor::Dense(logits.data(), DType::kF32, {1, kVocab});
  sampler->Sample(row, plan);
  ops->device().Sync();
  EXPECT_EQ(sampler->Result().tokens, std::vector<std::optional<int32_t>>{1});
}

TEST(SamplerTest, EachRowHasItsOwnBiases) {
  constexpr int kVocab = 4;
  const auto ops = MakeOps({}, {.num_threads = 1}).value();
  ASSERT_TRUE(ops->Reserve({.max_tokens = 1, .max_seqs = 3, .vocab = kVocab}).ok());
  const auto sampler = Sampler::Create(*ops, 3, 64, kVocab, kVocab).value();
  std::vector<float> logits = {3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0};
  StepPlan plan;
  plan.penalties = {{0, 1}};
  plan.biases = {{1, 3.5f}, {3, 5.f}, {0, 1.f}, {2, 4.5f}};
  plan.samples.push_back({.biases = {0, 2}});
  plan.samples.push_back(
      {.params = {.presence_penalty = 1}, .penalties = {0, 1}, .biases = {2, 4}});
  plan.samples.push_back({.penalties = {1, 1}, .biases = {4, 4}});
  sampler->Sample(Tensor::Dense(logits.data(), DType::kF32, {3, kVocab}), plan);
  ops->device().Sync();
  EXPECT_EQ(sampler->Result().tokens, (std::vector<std::optional<int32_t>>{3, 2, 0}));
}

TEST(SamplerTest, RowThatIsNotFiniteHasNoToken) {
  constexpr int kVocab = 4;
  const auto ops = MakeOps({}, {.num_threads = 1}).value();
  ASSERT_TRUE(ops->Reserve({.max_tokens = 1, .max_seqs = 3, .vocab = kVocab}).ok());
  const auto sampler = Sampler::Create(*ops, 3, 64, kVocab, kVocab).value();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits = {0, 0, 1, 0, 0, 5, nan, 0, 0, 0, 0, 2};
  StepPlan plan;
  for (const int64_t sequence : {1, 2}) {  // two tokens of one sequence, one of the other
    plan.Open(sequence, 0);
    for (int32_t row = 0; row < 3 - sequence; ++row) {
      plan.tokens.push_back(TokenRef::Known(0));
      plan.positions.push_back(row);
      plan.samples.push_back({.row = row});
    }
    plan.Close();
  }
  sampler->Sample(Tensor::Dense(logits.data(), DType::kF32, {3, kVocab}), plan);
  ops->device().Sync();
  const StepResult result = sampler->Result();
  const auto first = result.Of(plan.entries[0]), second = result.Of(plan.entries[1]);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0], 2);
  EXPECT_FALSE(first[1].has_value());
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0], 3);
}

}  // namespace
}  // namespace kuiper
