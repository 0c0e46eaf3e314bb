#include "kuiper/kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace kuiper {
namespace {

using Pages = std::vector<int32_t>;
using ::testing::ExitedWithCode;

TEST(BlockPoolTest, HandsOutLowIdsFirstAndNeverTheNullPage) {
  BlockPool pool(5, 16);
  Pages pages;
  EXPECT_EQ(pool.num_pages(), 4);
  EXPECT_EQ(pool.end(), 1);
  ASSERT_TRUE(pool.Allocate(2, &pages));
  EXPECT_EQ(pool.end(), 3);
  ASSERT_TRUE(pool.Allocate(2, &pages));
  EXPECT_EQ(pages, (Pages{1, 2, 3, 4}));
  EXPECT_EQ(pool.end(), 5);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.page_size(), 16);
}

TEST(BlockPoolTest, AllocatesAllOrNothing) {
  BlockPool pool(4, 16);
  Pages pages = {99};
  EXPECT_FALSE(pool.Allocate(4, &pages));
  EXPECT_EQ(pages, Pages{99});
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.end(), 1);
  EXPECT_TRUE(pool.Allocate(0, &pages));
  EXPECT_TRUE(pool.Allocate(3, &pages));
  EXPECT_EQ(pages, (Pages{99, 1, 2, 3}));
}

TEST(BlockPoolTest, FreedPagesAreUsedAgainLowestFirst) {
  BlockPool pool(100, 1);
  Pages pages;
  ASSERT_TRUE(pool.Allocate(4, &pages));
  for (int32_t page : {3, 1, 2}) pool.Release(page);
  EXPECT_EQ(pool.end(), 5) << "page 4 is in use";
  Pages again;
  ASSERT_TRUE(pool.Allocate(4, &again));
  EXPECT_EQ(again, (Pages{1, 2, 3, 5}));
  EXPECT_EQ(pool.end(), 6);
  EXPECT_EQ(pool.peak_used(), 5);
}

TEST(BlockPoolTest, EndFollowsTheLargestPageInUse) {
  BlockPool pool(10, 1);
  Pages pages;
  ASSERT_TRUE(pool.Allocate(6, &pages));
  pool.AddRef(6);
  pool.Release(6);
  EXPECT_EQ(pool.end(), 7) << "one reference is left";
  for (int32_t page : {4, 5}) pool.Release(page);
  EXPECT_EQ(pool.end(), 7);
  pool.Release(6);
  EXPECT_EQ(pool.end(), 4);
  for (int32_t page : {1, 2, 3}) pool.Release(page);
  EXPECT_EQ(pool.end(), 1);
}

TEST(BlockPoolTest, SharedPageIsFreedOnce) {
  BlockPool pool(3, 16);
  Pages pages;
  ASSERT_TRUE(pool.Allocate(1, &pages));
  pool.AddRef(1);
  pool.AddRef(1);
  EXPECT_EQ(pool.ref_count(1), 3);
  EXPECT_EQ(pool.num_shared(), 1);
  pool.Release(1);
  EXPECT_EQ(pool.num_shared(), 1);
  pool.Release(1);
  EXPECT_EQ(pool.num_shared(), 0);
  EXPECT_EQ(pool.num_used(), 1);
  pool.Release(1);
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.num_free(), 2);
  pool.CheckInvariants();
}

TEST(BlockPoolTest, PoolOfTheNullPageAloneIsFull) {
  BlockPool pool(1, 16);
  Pages pages;
  EXPECT_EQ(pool.num_pages(), 0);
  EXPECT_FALSE(pool.Allocate(1, &pages));
  pool.CheckInvariants();
}

TEST(BlockPoolDeathTest, MisuseEndsTheProcess) {
  BlockPool pool(3, 16);
  Pages pages;
  ASSERT_TRUE(pool.Allocate(1, &pages));
  EXPECT_EXIT(pool.Release(2), ExitedWithCode(1), "page is free");
  EXPECT_EXIT(pool.AddRef(2), ExitedWithCode(1), "page is free");
  EXPECT_EXIT(pool.Release(0), ExitedWithCode(1), "no such page");
  EXPECT_EXIT(pool.Release(3), ExitedWithCode(1), "no such page");
  EXPECT_EXIT(pool.Release(-1), ExitedWithCode(1), "no such page");
}

// Random calls against a map of counts.
TEST(BlockPoolFuzzTest, AgreesWithAMapOfCounts) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 rng(seed);
    const int num_pages = 1 + static_cast<int>(rng() % 60);
    BlockPool pool(num_pages + 1, 16);
    std::map<int32_t, int> counts;
    int peak = 0;
    for (int step = 0; step < 20000; ++step) {
      const auto held = [&] { return std::next(counts.begin(), rng() % counts.size()); };
      switch (rng() % 4) {
        case 0: {
          const int count = static_cast<int>(rng() % 8);
          Pages pages;
          const bool fits = count + static_cast<int>(counts.size()) <= num_pages;
          ASSERT_EQ(pool.Allocate(count, &pages), fits);
          ASSERT_EQ(pages.size(), fits ? static_cast<size_t>(count) : 0);
          int32_t lowest = 1;
          for (int32_t page : pages) {
            while (counts.contains(lowest)) ++lowest;
            ASSERT_EQ(page, lowest);
            counts.emplace(page, 1);
          }
          break;
        }
        case 1:
          if (counts.empty()) break;
          {
            const auto it = held();
            pool.AddRef(it->first);
            ++it->second;
          }
          break;
        default:
          if (counts.empty()) break;
          const auto it = held();
          pool.Release(it->first);
          if (--it->second == 0) counts.erase(it);
      }
      peak = std::max(peak, static_cast<int>(counts.size()));
      pool.CheckInvariants();
      int shared = 0;
      for (int32_t page = 1; page <= num_pages; ++page) {
        const auto it = counts.find(page);
        ASSERT_EQ(pool.ref_count(page), it == counts.end() ? 0 : it->second);
        shared += it != counts.end() && it->second > 1;
      }
      ASSERT_EQ(pool.num_used(), static_cast<int>(counts.size()));
      ASSERT_EQ(pool.num_free(), num_pages - static_cast<int>(counts.size()));
      ASSERT_EQ(pool.num_shared(), shared);
      ASSERT_EQ(pool.peak_used(), peak);
      ASSERT_EQ(pool.end(), counts.empty() ? 1 : counts.rbegin()->first + 1);
    }
  }
}

}  // namespace
}  // namespace kuiper
