#include "kuiper/engine/encoder_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace kuiper {
namespace {

using Sources = std::vector<int64_t>;

TEST(SourceCacheTest, WhoIsHeldStaysAndTheOldestOfTheOthersMakesRoom) {
  EncoderCache cache(10);
  for (int64_t source = 1; source <= 4; ++source) cache.Add(source, 4);
  EXPECT_TRUE(cache.Hold(Sources{1, 2}));
  EXPECT_FALSE(cache.Hold(Sources{3})) << "12 rows";
  EXPECT_FALSE(cache.is_resident(3));
  cache.Release(Sources{2});
  EXPECT_TRUE(cache.is_resident(2)) << "no other source needs its rows";
  EXPECT_TRUE(cache.Hold(Sources{3}));
  EXPECT_EQ(cache.TakeEvicted(), Sources{2});
  EXPECT_EQ(cache.TakeEvicted(), Sources{});
  cache.Release(Sources{3, 1});  // now 3 is the older one
  EXPECT_TRUE(cache.Hold(Sources{4}));
  EXPECT_EQ(cache.TakeEvicted(), Sources{3});
}

TEST(SourceCacheTest, SeveralHoldOneAndItCountsOnce) {
  EncoderCache cache(5);
  cache.Add(1, 5);
  EXPECT_TRUE(cache.Hold(Sources{1}));
  EXPECT_TRUE(cache.Hold(Sources{1}));
  EXPECT_EQ(cache.num_resident_rows(), 5);
  cache.Release(Sources{1});
  EXPECT_TRUE(cache.is_held(1));
  cache.Add(2, 1);
  EXPECT_FALSE(cache.Hold(Sources{2}));
  cache.Release(Sources{1});
  EXPECT_TRUE(cache.Hold(Sources{2}));
}

TEST(SourceCacheTest, WhoGetsItsPlaceBackInTimeDoesNotLoseIt) {
  EncoderCache cache(4);
  cache.Add(1, 4);
  cache.Add(2, 4);
  EXPECT_TRUE(cache.Hold(Sources{1}));
  cache.Release(Sources{1});
  EXPECT_TRUE(cache.Hold(Sources{2}));
  cache.Release(Sources{2});
  EXPECT_TRUE(cache.Hold(Sources{1}));
  EXPECT_EQ(cache.TakeEvicted(), Sources{2}) << "the rows of 1 were never given away";
}

TEST(SourceCacheTest, RandomOperationsKeepTheBudget) {
  std::mt19937 rng(7);
  EncoderCache cache(50);
  std::map<int64_t, int> rows, holders;
  std::set<int64_t> in_memory;  // as a store would have them
  for (int64_t source = 0; source < 20; ++source) {
    rows[source] = 1 + static_cast<int>(rng() % 20);
    cache.Add(source, rows[source]);
  }
  const auto held_rows = [&](const Sources& more) {
    std::set<int64_t> held(more.begin(), more.end());
    for (const auto& [source, count] : holders) {
      if (count > 0) held.insert(source);
    }
    int64_t sum = 0;
    for (const int64_t source : held) sum += rows[source];
    return sum;
  };
  std::vector<Sources> held;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    if (rng() % 2 == 0 || held.empty()) {
      Sources wanted(20);
      for (int64_t source = 0; source < 20; ++source) wanted[source] = source;
      std::shuffle(wanted.begin(), wanted.end(), rng);
      wanted.resize(1 + rng() % 3);
      const bool fits = held_rows(wanted) <= 50;
      ASSERT_EQ(cache.Hold(wanted), fits) << i;
      refused += !fits;
      if (!fits) continue;
      for (const int64_t source : wanted) ++holders[source];
      held.push_back(wanted);
    } else {
      const size_t which = rng() % held.size();
      cache.Release(held[which]);
      for (const int64_t source : held[which]) --holders[source];
      held.erase(held.begin() + static_cast<int64_t>(which));
    }
    if (rng() % 3 != 0) continue;
    for (const int64_t source : cache.TakeEvicted()) in_memory.erase(source);
    for (const auto& [source, count] : holders) {
      if (count > 0) in_memory.insert(source);
    }
    int64_t sum = 0;
    for (const int64_t source : in_memory) sum += rows[source];
    ASSERT_LE(sum, 50) << i;
    for (const auto& [source, count] : holders) {
      ASSERT_EQ(cache.is_held(source), count > 0) << i;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace kuiper
