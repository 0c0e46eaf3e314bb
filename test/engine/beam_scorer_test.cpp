#include "kuiper/engine/beam_scorer.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

TEST(BeamScorerTest, EqualSumsKeepTheLowerBeamThenTheLowerId) {
  BeamScorer scorer(2, 1, 0);
  const auto never = [](int, int32_t) { return false; };
  scorer.Advance({{{9, -1.f}, {4, -1.f}, {5, -1.f}}}, never);
  ASSERT_EQ(scorer.beams().size(), 2u);
  EXPECT_EQ(scorer.beams()[0].tokens, std::vector<int32_t>{4});
  EXPECT_EQ(scorer.beams()[1].tokens, std::vector<int32_t>{5});
  scorer.Advance({{{8, -1.f}, {7, -2.f}}, {{1, -1.f}, {2, -2.f}}}, never);
  EXPECT_EQ(scorer.beams()[0].tokens, (std::vector<int32_t>{4, 8}));
  EXPECT_EQ(scorer.beams()[1].tokens, (std::vector<int32_t>{5, 1}));
  EXPECT_EQ(scorer.beams()[1].parent, 1);
}

TEST(BeamScorerTest, EndBelowTheFirstWidthRanksIsNoAnswer) {
  BeamScorer scorer(2, 1, 1);
  const auto zero = [](int, int32_t token) { return token == 0; };
  scorer.Advance({{{1, -1.f}, {2, -2.f}, {0, -3.f}, {3, -4.f}}}, zero);
  for (const BeamScorer::Answer& answer : scorer.Answers()) EXPECT_FALSE(answer.ended);
  scorer.Advance({{{0, -0.5f}, {1, -3.f}, {2, -4.f}}, {{1, -3.f}, {0, -4.f}, {2, -5.f}}}, zero);
  const std::vector<BeamScorer::Answer> answers = scorer.Answers();
  EXPECT_TRUE(answers.at(0).ended);
  EXPECT_EQ(answers[0].tokens, (std::vector<int32_t>{1, 0}));
  EXPECT_DOUBLE_EQ(answers[0].score, -1.5 / 2);
  EXPECT_FALSE(scorer.done()) << "one of two answers has ended";
}

}  // namespace
}  // namespace kuiper
