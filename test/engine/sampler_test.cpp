#include "kuiper/engine/sampler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace kuiper {
namespace {

// The tokenizer knows 4 of the model's 32 ids; a prompt of plain ids may hold them all.
TEST(SamplerTest, PenaltiesHaveRoomForEveryIdOfTheModel) {
  constexpr int kVocab = 32, kLimit = 4;
  const auto ops = MakeOps({}, {.num_threads = 1}).value();
  ASSERT_TRUE(ops->Reserve({.max_tokens = 1, .max_seqs = 1, .vocab = kVocab}).ok());
  const auto sampler = Sampler::Create(*ops, 1, 64, kVocab, kLimit).value();
  Sequence seq;
  seq.tokens.resize(kVocab);
  std::iota(seq.tokens.begin(), seq.tokens.end(), 0);
  seq.num_prompt = kVocab;
  seq.tokens.push_back(2);  // generated
  seq.sampling.presence_penalty = 2;
  std::vector<float> logits(kVocab, 5.f);
  logits[1] = 6;
  logits[2] = 7;  // 5 after the penalty
  StepPlan plan;
  plan.entries.push_back({.seq = &seq, .begin = kVocab, .num_tokens = 1, .samples = true});
  const Tensor row = Tensor::Dense(logits.data(), DType::kF32, {1, kVocab});
  sampler->Sample(row, plan);
  ops->Sync();
  EXPECT_EQ(sampler->Tokens(), std::vector<int32_t>{1});
}

}  // namespace
}  // namespace kuiper
