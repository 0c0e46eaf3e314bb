#include "kuiper/engine/chunk_pace.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

// A machine on which a step takes `base` milliseconds plus a constant time per prompt token.
int Settle(ChunkPace& pace, double base, double per_token) {
  for (int step = 0; step < 40; ++step) {
    const int tokens = pace.Chunk(1);
    pace.Observe(tokens, base + per_token * tokens);
  }
  return pace.Chunk(1);
}

TEST(ChunkPaceTest, FindsAChunkThatKeepsTheTarget) {
  for (const double per_token : {0.05, 0.3, 1.0, 5.0}) {
    ChunkPace pace(50, 512, 0);
    EXPECT_EQ(pace.Chunk(1), ChunkPace::kFirst);
    const int chunk = Settle(pace, 10, per_token);
    EXPECT_LE(10 + per_token * chunk, 50) << per_token;
    EXPECT_TRUE(chunk == 512 || 10 + per_token * chunk > 20) << chunk << " is needlessly small";
  }
}

TEST(ChunkPaceTest, GoesOnWhereTheTargetCannotBeKept) {
  ChunkPace pace(50, 512, 0);
  EXPECT_EQ(Settle(pace, 100, 1), 1);
}

TEST(ChunkPaceTest, OneSlowStepHalvesIt) {
  ChunkPace pace(50, 512, 0);
  pace.Observe(16, 1e6);
  EXPECT_EQ(pace.Chunk(1), 8);
}

// The short last chunk of a prompt does not show the time of a full chunk.
TEST(ChunkPaceTest, ShortFastStepsTeachNothing) {
  ChunkPace pace(50, 512, 0);
  for (int i = 0; i < 10; ++i) pace.Observe(2, 0.1);
  EXPECT_EQ(pace.Chunk(1), ChunkPace::kFirst);
}

TEST(ChunkPaceTest, APassHoldsTheDecodesAsWell) {
  ChunkPace pace(50, 512, 64);
  EXPECT_EQ(pace.Chunk(1), 63);
  EXPECT_EQ(pace.Chunk(2), 62);
  EXPECT_EQ(pace.Chunk(200), 1);
  pace.Observe(63, 1);
  EXPECT_EQ(pace.Chunk(1), 63);  // never a second pass
  EXPECT_EQ(ChunkPace(50, 8, 64).Chunk(1), 8);
}

}  // namespace
}  // namespace kuiper
