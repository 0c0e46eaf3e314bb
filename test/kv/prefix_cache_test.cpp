#include "kuiper/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace kuiper {
namespace {

using Pages = std::vector<int32_t>;
using Keys = std::vector<uint64_t>;

// Keys from `first` on, ascending by 1.
Keys Range(uint64_t first, int count) {
  Keys keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

Keys Concat(Keys a, const Keys& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  static constexpr int kPageSize = 4;

  Pages Allocate(int count) {
    Pages pages;
    EXPECT_TRUE(pool_.Allocate(count, &pages));
    return pages;
  }
  void Release(const Pages& pages) {
    for (int32_t page : pages) pool_.Release(page);
  }
  // A computed sequence that ends at once: the tree alone holds its pages afterwards.
  Pages Cache(PrefixCache& tree, const Keys& keys) {
    Pages pages = Allocate(static_cast<int>(keys.size()) / kPageSize);
    tree.Insert(keys, pages);
    Release(pages);
    tree.CheckInvariants();
    return pages;
  }
  // The pages a prompt would find; takes no references and marks the path as used.
  Pages Find(PrefixCache& tree, const Keys& keys) {
    const Pages pages = tree.Acquire(keys, 1 << 30).pages;
    Release(pages);
    tree.CheckInvariants();
    return pages;
  }

  BlockPool pool_{33, kPageSize};
};

TEST_F(PrefixCacheTest, EmptyTreeMatchesNothing) {
  PrefixCache tree(pool_, 0);
  const PrefixCache::Match match = tree.Acquire(Range(0, 9), 9);
  EXPECT_TRUE(match.pages.empty());
  EXPECT_EQ(match.num_tokens, 0);
  EXPECT_EQ(tree.Evict(5), 0);
}

TEST_F(PrefixCacheTest, MatchesWholePagesUpToTheCap) {
  PrefixCache tree(pool_, 0);
  const Pages pages = Cache(tree, Range(0, 12));
  for (int cap = -1; cap <= 14; ++cap) {
    const PrefixCache::Match match = tree.Acquire(Range(0, 13), cap);
    const int expected = std::max(0, std::min(cap, 12) / kPageSize);
    EXPECT_EQ(match.pages, Pages(pages.begin(), pages.begin() + expected)) << "cap " << cap;
    EXPECT_EQ(match.num_tokens, expected * kPageSize);
    for (int32_t page : match.pages) EXPECT_EQ(pool_.ref_count(page), 2);
    Release(match.pages);
  }
  EXPECT_EQ(Find(tree, Range(0, 11)).size(), 2u);
}

TEST_F(PrefixCacheTest, PartlyFilledPageDoesNotEnter) {
  PrefixCache tree(pool_, 0);
  Pages pages = Allocate(3);
  tree.Insert(Range(0, 11), pages);
  EXPECT_EQ(tree.num_pages(), 2);
  EXPECT_EQ(pool_.ref_count(pages[2]), 1);
}

TEST_F(PrefixCacheTest, AKeyDifferentInItsTopBitDoesNotMatch) {
  PrefixCache tree(pool_, 0);
  Cache(tree, Range(0, 8));
  Keys keys = Range(0, 8);
  keys[5] |= uint64_t{1} << 63;
  EXPECT_EQ(Find(tree, keys).size(), 1u);
}

TEST_F(PrefixCacheTest, SamePageKeysUnderAnotherPrefixDoNotMatch) {
  PrefixCache tree(pool_, 0);
  const Pages a = Cache(tree, Concat(Range(0, 4), Range(100, 4)));
  const Pages b = Cache(tree, Concat(Range(50, 4), Range(100, 4)));
  EXPECT_EQ(tree.num_pages(), 4);
  EXPECT_EQ(Find(tree, Concat(Range(0, 4), Range(100, 4))), a);
  EXPECT_EQ(Find(tree, Concat(Range(50, 4), Range(100, 4))), b);
  EXPECT_TRUE(Find(tree, Range(100, 4)).empty());
}

TEST_F(PrefixCacheTest, EqualPagesAreExchangedForTheFirst) {
  PrefixCache tree(pool_, 0);
  Pages first = Allocate(2);
  Pages copy = Allocate(3);
  const int32_t third = copy[2];
  tree.Insert(Range(0, 8), first);
  tree.Insert(Range(0, 12), copy);
  EXPECT_EQ(tree.num_pages(), 3);
  EXPECT_EQ(copy, (Pages{first[0], first[1], third}));
  EXPECT_EQ(Find(tree, Range(0, 12)), copy);
  EXPECT_EQ(pool_.ref_count(first[0]), 3);
  EXPECT_EQ(pool_.ref_count(third), 2);
  EXPECT_EQ(pool_.num_used(), 3) << "the copies went back to the pool";
  tree.CheckInvariants();
}

// Pages reserved for others are free or evictable: an insertion must not reduce their number.
TEST_F(PrefixCacheTest, PageThatAForkHoldsTooIsNotExchanged) {
  PrefixCache tree(pool_, 0);
  Pages parent = Allocate(3);
  const Pages fork = {parent[0], parent[1]};
  for (int32_t page : fork) pool_.AddRef(page);
  const Pages first = Cache(tree, Range(0, 8));
  const Pages before = parent;
  const int available = pool_.num_free() + tree.num_evictable();
  tree.Insert(Range(0, 12), parent);
  EXPECT_EQ(parent, before);
  EXPECT_EQ(pool_.num_free() + tree.num_evictable(), available);
  EXPECT_EQ(tree.num_pages(), 2) << "the third page has no place behind pages of others";
  tree.CheckInvariants();
  Release(fork);
  tree.Insert(Range(0, 12), parent);
  EXPECT_EQ(parent, (Pages{first[0], first[1], before[2]}));
  EXPECT_EQ(pool_.num_free() + tree.num_evictable(), available);
  tree.CheckInvariants();
}

TEST_F(PrefixCacheTest, ParentOfAHeldPageIsNotEvictable) {
  PrefixCache tree(pool_, 0);
  Pages pages = Allocate(3);
  tree.Insert(Range(0, 12), pages);
  Release({pages[0], pages[1]});
  EXPECT_EQ(pool_.ref_count(pages[0]), 1);
  EXPECT_EQ(tree.num_evictable(), 0);
  EXPECT_EQ(tree.Evict(3), 0);
  Release({pages[2]});
  EXPECT_EQ(tree.num_evictable(), 3);
  EXPECT_EQ(tree.Evict(3), 3);
  EXPECT_EQ(pool_.num_used(), 0);
}

TEST_F(PrefixCacheTest, EvictsLeavesLeastRecentlyUsedFirst) {
  PrefixCache tree(pool_, 0);
  const Keys stem = Range(0, 4);
  const Keys a = Concat(stem, Range(10, 4)), b = Concat(stem, Range(20, 4)), c = Range(30, 8);
  Cache(tree, a);
  Cache(tree, b);
  Cache(tree, c);
  Find(tree, a);  // oldest is b, then c, then a
  EXPECT_EQ(tree.Evict(1), 1);
  EXPECT_EQ(tree.num_pages(), 4);
  EXPECT_EQ(Find(tree, b).size(), 1u);  // touches the stem only
  EXPECT_EQ(tree.Evict(2), 2);
  EXPECT_TRUE(Find(tree, c).empty());
  EXPECT_EQ(tree.Evict(1), 1);
  EXPECT_EQ(Find(tree, a).size(), 1u);
  EXPECT_EQ(tree.Evict(9), 1);
  EXPECT_EQ(tree.num_pages(), 0);
  EXPECT_EQ(tree.stats().evicted_pages, 5);
}

TEST_F(PrefixCacheTest, HeldPathIsSkippedAndTheRestEvicted) {
  PrefixCache tree(pool_, 0);
  Cache(tree, Range(0, 12));
  Cache(tree, Range(50, 8));
  const PrefixCache::Match match = tree.Acquire(Range(0, 9), 9);
  ASSERT_EQ(match.num_tokens, 8);
  EXPECT_EQ(tree.num_evictable(), 3);
  EXPECT_EQ(tree.Evict(9), 3);
  tree.CheckInvariants();
  EXPECT_EQ(tree.num_pages(), 2);
  Release(match.pages);
  EXPECT_EQ(tree.num_evictable(), 2);
}

TEST_F(PrefixCacheTest, CapacityEvictsWhatIsOlder) {
  PrefixCache tree(pool_, 4 * kPageSize + 3);
  Cache(tree, Range(0, 8));
  Cache(tree, Range(100, 8));
  EXPECT_EQ(tree.num_pages(), 4);
  Cache(tree, Range(200, 12));
  EXPECT_EQ(tree.num_pages(), 4);
  EXPECT_TRUE(Find(tree, Range(0, 8)).empty());
  EXPECT_EQ(Find(tree, Range(100, 8)).size(), 1u);
  EXPECT_EQ(Find(tree, Range(200, 12)).size(), 3u);
}

TEST_F(PrefixCacheTest, SequenceLongerThanTheCapacityKeepsItsHead) {
  PrefixCache tree(pool_, 3 * kPageSize);
  const Pages pages = Cache(tree, Range(0, 20));
  EXPECT_EQ(Find(tree, Range(0, 20)), Pages(pages.begin(), pages.begin() + 3));
  EXPECT_EQ(pool_.num_used(), 3);
}

TEST_F(PrefixCacheTest, GrowingAFullTreeDoesNotEvictThePathThatGrows) {
  PrefixCache tree(pool_, 2 * kPageSize);
  Cache(tree, Range(0, 8));
  Cache(tree, Range(0, 16));
  EXPECT_EQ(Find(tree, Range(0, 16)).size(), 2u);
  EXPECT_EQ(tree.stats().evicted_pages, 0);
}

TEST_F(PrefixCacheTest, CapacityBelowOnePageKeepsNothing) {
  PrefixCache tree(pool_, kPageSize - 1);
  Cache(tree, Range(0, 8));
  EXPECT_EQ(tree.num_pages(), 0);
  EXPECT_EQ(pool_.num_used(), 0);
}

TEST_F(PrefixCacheTest, CapacityHeldBySequencesTakesNothingMore) {
  PrefixCache tree(pool_, 2 * kPageSize);
  Pages held = Allocate(2);
  tree.Insert(Range(0, 8), held);
  Cache(tree, Range(100, 8));
  EXPECT_EQ(tree.num_pages(), 2);
  EXPECT_TRUE(Find(tree, Range(100, 8)).empty());
}

TEST_F(PrefixCacheTest, ClearLeavesHeldPagesToTheirHolders) {
  PrefixCache tree(pool_, 0);
  Cache(tree, Range(0, 12));
  const PrefixCache::Match match = tree.Acquire(Range(0, 4), 4);
  tree.Clear();
  tree.CheckInvariants();
  EXPECT_EQ(tree.num_pages(), 0);
  EXPECT_EQ(pool_.num_used(), 1);
  EXPECT_EQ(pool_.ref_count(match.pages[0]), 1);
  EXPECT_EQ(Cache(tree, Range(0, 12)).size(), 3u);
}

TEST_F(PrefixCacheTest, DestructorReturnsItsPages) {
  {
    PrefixCache tree(pool_, 0);
    Cache(tree, Range(0, 12));
    EXPECT_EQ(pool_.num_used(), 3);
  }
  EXPECT_EQ(pool_.num_used(), 0);
  pool_.CheckInvariants();
}

TEST_F(PrefixCacheTest, CountsLookupsAndHits) {
  PrefixCache tree(pool_, 0);
  Find(tree, Range(0, 9));
  Cache(tree, Range(0, 8));
  Find(tree, Range(0, 9));
  const PrefixCache::Stats& stats = tree.stats();
  EXPECT_EQ(stats.lookups, 2);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.tokens_requested, 18);
  EXPECT_EQ(stats.tokens_hit, 8);
  EXPECT_EQ(stats.evicted_pages, 0);
}

// One path of 200000 nodes: recursion would overflow the stack, and a scan per page would take
// forever.
TEST(PrefixCacheDepthTest, DeepTreeIsEvictedAndDestroyed) {
  constexpr int kPages = 200000;
  BlockPool pool(kPages + 1, 1);
  {
    PrefixCache tree(pool, 0);
    Pages pages;
    ASSERT_TRUE(pool.Allocate(kPages, &pages));
    tree.Insert(Range(0, kPages), pages);
    for (int32_t page : pages) pool.Release(page);
    EXPECT_EQ(tree.num_evictable(), kPages);
    EXPECT_EQ(tree.Evict(kPages / 2), kPages / 2);
    EXPECT_EQ(tree.num_pages(), kPages / 2);
  }
  EXPECT_EQ(pool.num_used(), 0);
}

TEST_F(PrefixCacheTest, CursorContinuesItsPathPageByPage) {
  PrefixCache tree(pool_, 0);
  const Keys keys = Range(0, 20);
  Pages pages = Allocate(5);
  PrefixCache::Cursor cursor;
  for (int i = 0; i < 5; ++i) {
    const std::span<const uint64_t> page_keys(keys.data() + i * kPageSize, kPageSize);
    ASSERT_TRUE(tree.Extend(&cursor, page_keys, {pages.data() + i, 1}));
    EXPECT_EQ(cursor.num_pages, i + 1);
    tree.CheckInvariants();
  }
  EXPECT_EQ(Find(tree, keys), pages);
  EXPECT_EQ(tree.num_evictable(), 0);
  Release(pages);
  EXPECT_EQ(tree.num_evictable(), 5);
}

TEST_F(PrefixCacheTest, CursorOfAClearedTreeIsRefused) {
  PrefixCache tree(pool_, 0);
  const Keys keys = Range(0, 8);
  Pages pages = Allocate(2);
  PrefixCache::Cursor cursor;
  ASSERT_TRUE(tree.Extend(&cursor, std::span(keys).first(4), std::span(pages).first(1)));
  tree.Clear();
  EXPECT_FALSE(tree.Extend(&cursor, std::span(keys).last(4), std::span(pages).last(1)));
  EXPECT_EQ(tree.num_pages(), 0);
  // The page may be in the tree again as another node; the cursor must still be refused.
  Pages same = {pages[0]};
  tree.Insert(Range(100, 4), same);
  EXPECT_FALSE(tree.Extend(&cursor, std::span(keys).last(4), std::span(pages).last(1)));
  tree.Clear();
  cursor = {};
  ASSERT_TRUE(tree.Extend(&cursor, keys, pages));
  EXPECT_EQ(Find(tree, keys), pages);
}

TEST_F(PrefixCacheTest, ReturnedMatchLeavesNoTrace) {
  PrefixCache tree(pool_, 0);
  Cache(tree, Range(0, 8));
  const PrefixCache::Match match = tree.Acquire(Range(0, 9), 8);
  EXPECT_EQ(tree.num_evictable(), 0);
  tree.Return(Range(0, 9), match);
  EXPECT_EQ(tree.num_evictable(), 2);
  EXPECT_EQ(tree.stats().lookups, 0);
  EXPECT_EQ(tree.stats().hits, 0);
  EXPECT_EQ(tree.stats().tokens_requested, 0);
  EXPECT_EQ(tree.stats().tokens_hit, 0);
}

// Follows the events as a router does: maps the hash of each block to the tokens up to its end.
struct Follower {
  std::map<uint64_t, std::vector<int32_t>> paths;
  int num_cleared = 0;

  PrefixObserver observer() {
    return [this](const PrefixEvent& event) {
      if (event.kind == PrefixEvent::Kind::kCleared) {
        paths.clear();
        ++num_cleared;
      } else if (event.kind == PrefixEvent::Kind::kRemoved) {
        EXPECT_EQ(paths.erase(event.hash), 1u);
      } else {
        EXPECT_TRUE(event.parent == 0 || paths.contains(event.parent));
        std::vector<int32_t> path =
            event.parent == 0 ? std::vector<int32_t>{} : paths[event.parent];
        path.insert(path.end(), event.tokens.begin(), event.tokens.end());
        EXPECT_TRUE(event.hash > 0 && event.hash < uint64_t{1} << 63);
        EXPECT_TRUE(paths.emplace(event.hash, path).second);
      }
    };
  }
  // Returns the number of leading tokens of `keys` whose whole blocks were reported.
  int Depth(const Keys& keys, int page_size) const {
    int length = 0;
    const std::vector<int32_t> tokens(keys.begin(), keys.end());
    const auto has = [&](int count) {
      const std::vector<int32_t> begin(tokens.begin(), tokens.begin() + count);
      return std::ranges::any_of(paths, [&](const auto& entry) { return entry.second == begin; });
    };
    while (length + page_size <= static_cast<int>(tokens.size()) && has(length + page_size)) {
      length += page_size;
    }
    return length;
  }
};

TEST_F(PrefixCacheTest, EventsRebuildTheTree) {
  Follower follower;
  std::mt19937 dice(5);
  {
    PrefixCache tree(pool_, 0, follower.observer());
    for (int round = 0; round < 400; ++round) {
      // Few different prompts, so that they share beginnings; of all lengths around pages.
      Keys keys(dice() % (3 * kPageSize + 2));
      for (uint64_t& key : keys) key = dice() % 2;
      if (static_cast<int>(keys.size()) / kPageSize <= pool_.num_free()) Cache(tree, keys);
      if (dice() % 4 == 0) tree.Evict(static_cast<int>(dice() % 6));
      if (dice() % 100 == 0) tree.Clear();
      ASSERT_EQ(follower.paths.size(), static_cast<size_t>(tree.num_pages()));
      const auto found = Find(tree, keys).size() * kPageSize;
      ASSERT_EQ(follower.Depth(keys, kPageSize), static_cast<int>(found)) << "round " << round;
    }
    EXPECT_GT(follower.num_cleared, 0);
    Cache(tree, Range(100, kPageSize));
  }
  EXPECT_TRUE(follower.paths.empty()) << "the end of the tree is told";
}

TEST_F(PrefixCacheTest, EventsNameTheSameTokensTheSameWay) {
  Follower first, second;
  BlockPool other(33, kPageSize);
  PrefixCache a(pool_, 0, first.observer());
  PrefixCache b(other, 0, second.observer());
  const Keys keys = Range(7, 3 * kPageSize);
  Cache(a, Range(50, kPageSize));
  Cache(a, keys);
  Pages pages;
  ASSERT_TRUE(other.Allocate(3, &pages));
  b.Insert(keys, pages);
  for (int32_t page : pages) other.Release(page);
  EXPECT_EQ(second.paths.size(), 3u);
  for (const auto& [hash, path] : second.paths) EXPECT_EQ(first.paths[hash], path);
}

TEST_F(PrefixCacheTest, EventsLeaveOutWhatIdsDoNotTell) {
  Follower follower;
  PrefixCache tree(pool_, 0, follower.observer());
  Keys picture = Range(0, 3 * kPageSize);
  picture[kPageSize + 1] |= uint64_t{1} << 63;
  Keys salted = Range(0, 2 * kPageSize);
  salted[0] |= uint64_t{1} << 63;
  Cache(tree, picture);
  Cache(tree, salted);
  EXPECT_EQ(tree.num_pages(), 5);
  EXPECT_EQ(follower.paths.size(), 1u) << "the first page of the prompt with a picture";
  EXPECT_EQ(tree.Evict(5), 5);
  EXPECT_TRUE(follower.paths.empty());
}

}  // namespace
}  // namespace kuiper
