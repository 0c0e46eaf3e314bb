// Pages and tokens that the sequences of a step share, compared with naive loops on random tables.
#include "kuiper/engine/shared_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kuiper {
namespace {

struct RandomTables {
  // Tables begin with up to 12 pages, each of which is one of two, so that many begin alike. They
  // end with a page of their own that is not full.
  RandomTables(uint32_t seed, int page_size) : engine(seed) {
    const int count = Below(12);
    for (int i = 0; i < count; ++i) {
      std::vector<int32_t>& pages = tables.emplace_back();
      const int shared = Below(13);
      for (int p = 0; p < shared; ++p) pages.push_back(1 + 2 * p + (Below(4) == 0 ? 1 : 0));
      pages.push_back(1000 + i);
      lengths.push_back(Below((shared + 1) * page_size));
    }
  }
  int Below(int n) { return static_cast<int>(engine() % static_cast<uint32_t>(n)); }

  std::mt19937 engine;
  std::vector<std::vector<int32_t>> tables;
  std::vector<int> lengths;
};

TEST(SharedPagesTest, SequencesThatBeginAlikeStandTogether) {
  int moved = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const RandomTables random(seed, 16);
    std::vector<int32_t> pages;
    for (const auto& table : random.tables) pages.push_back(table[0]);
    const int count = static_cast<int>(pages.size());
    std::vector<int> expected;
    for (int i = 0; i < count; ++i) {
      bool is_first = true;
      for (int j = 0; j < i; ++j) is_first = is_first && pages[j] != pages[i];
      for (int j = i; is_first && j < count; ++j) {
        if (pages[j] == pages[i]) expected.push_back(j);
      }
    }
    EXPECT_EQ(GroupByFirstPage(pages), expected) << "seed " << seed;
    moved += !std::is_sorted(expected.begin(), expected.end());
  }
  EXPECT_GT(moved, 100);
}

TEST(SharedPagesTest, CountsTheTokensOfEqualPages) {
  int shared = 0, short_of_it = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const int page_size = 1 << seed % 9;
    const RandomTables random(seed, page_size);
    for (size_t i = 1; i < random.tables.size(); ++i) {
      const std::vector<int32_t>&a = random.tables[i - 1], &b = random.tables[i];
      size_t pages = 0;
      while (pages < a.size() && pages < b.size() && a[pages] == b[pages]) ++pages;
      for (size_t known = 0; known <= pages; ++known) {
        EXPECT_EQ(NumEqualPages(a, b, static_cast<int>(known)), pages) << "seed " << seed;
      }
      const int on_pages = static_cast<int>(pages) * page_size;
      int expected = std::min(on_pages, std::min(random.lengths[i - 1], random.lengths[i]));
      short_of_it += expected > 0 && expected < kMinSharedTokens;
      if (expected < kMinSharedTokens) expected = 0;
      shared += expected > 0;
      EXPECT_EQ(SharedTokens(on_pages, random.lengths[i - 1], random.lengths[i]), expected)
          << "seed " << seed;
    }
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(short_of_it, 100);
}

}  // namespace
}  // namespace kuiper
