// Random sequences that start, grow, fork and end. They are compared with a model that keeps every
// prefix as a plain vector in an ordered map and searches all of them for the page to evict.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/prefix_cache.h"

namespace kuiper {
namespace {

using Pages = std::vector<int32_t>;
using Keys = std::vector<uint64_t>;

bool StartsWith(const Keys& keys, const Keys& prefix) {
  return keys.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), keys.begin());
}

class ModelTree {
 public:
  ModelTree(int page_size, int max_pages, std::vector<int>& held)
      : page_size_(page_size), max_pages_(max_pages), held_(held) {}

  Pages Acquire(const Keys& keys, int max_tokens) {
    ++clock_;
    Pages pages;
    for (int n = page_size_; n <= std::min<int>(max_tokens, keys.size()); n += page_size_) {
      const auto it = entries_.find(Keys(keys.begin(), keys.begin() + n));
      if (it == entries_.end()) break;
      it->second.stamp = clock_;
      pages.push_back(it->second.page);
    }
    return pages;
  }
  // `from`: known number of pages of the path in the tree; only the last of them is used.
  void Insert(const Keys& keys, Pages& pages, int from = 0) {
    ++clock_;
    int num_full = std::min<int>(keys.size() / page_size_, pages.size());
    int missing = 0;
    if (from > 0) entries_.at(Keys(keys.begin(), keys.begin() + from * page_size_)).stamp = clock_;
    for (int i = from; i < num_full; ++i) {
      const auto it = entries_.find(Keys(keys.begin(), keys.begin() + (i + 1) * page_size_));
      if (it == entries_.end()) {
        ++missing;
      } else if (it->second.page != pages[i] && held_[pages[i]] > 1) {
        num_full = i;
      } else {
        it->second.stamp = clock_;
        --held_[pages[i]];
        ++held_[it->second.page];
        pages[i] = it->second.page;
      }
    }
    const int excess = size() + missing - max_pages_;
    if (excess > 0) Evict(excess);
    for (int i = from; i < num_full && missing > 0; ++i) {
      const Keys prefix(keys.begin(), keys.begin() + (i + 1) * page_size_);
      if (entries_.contains(prefix)) continue;
      if (size() == max_pages_) break;
      entries_[prefix] = {pages[i], clock_};
    }
  }
  // Entries used by the call in progress stay: Insert stamps them first.
  int Evict(int count, bool from_outside = false) {
    if (from_outside) ++clock_;
    int evicted = 0;
    for (; evicted < count; ++evicted) {
      auto oldest = entries_.end();
      for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (!IsLeaf(it) || held_[it->second.page] > 0 || it->second.stamp == clock_) continue;
        if (oldest == entries_.end() || it->second.stamp < oldest->second.stamp) oldest = it;
      }
      if (oldest == entries_.end()) break;
      entries_.erase(oldest);
    }
    return evicted;
  }
  int NumEvictable() const {
    int count = 0;
    for (const auto& [prefix, entry] : entries_) {
      bool whole_subtree = true;
      for (const auto& [other, below] : entries_) {
        if (StartsWith(other, prefix) && held_[below.page] > 0) whole_subtree = false;
      }
      count += whole_subtree;
    }
    return count;
  }
  bool Holds(int32_t page) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [page](const auto& e) { return e.second.page == page; });
  }
  void Clear() { entries_.clear(); }
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  struct Entry {
    int32_t page = 0;
    int64_t stamp = 0;
  };
  // In lexicographic order the extensions of a prefix follow it directly.
  bool IsLeaf(std::map<Keys, Entry>::iterator it) const {
    const auto next = std::next(it);
    return next == entries_.end() || !StartsWith(next->first, it->first);
  }

  int page_size_;
  int max_pages_;
  std::vector<int>& held_;
  std::map<Keys, Entry> entries_;
  int64_t clock_ = 0;
};

class World {
 public:
  World(uint32_t seed, int page_size, int num_pages, int max_tokens)
      : rng_(seed),
        page_size_(page_size),
        num_pages_(num_pages),
        pool_(num_pages + 1, page_size),
        tree_(pool_, max_tokens),
        held_(num_pages + 1),
        model_(page_size, max_tokens == 0 ? num_pages : max_tokens / page_size, held_) {}

  void Step() {
    switch (rng_() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Start();
      case 4:
      case 5:
      case 6:
      case 7:
        return Grow();
      case 8:
      case 9:
      case 10:
        return Offer();
      case 11:
      case 12:
      case 13:
        return End();
      case 14:
        return Fork();
      default:
        if (rng_() % 64 == 0) {
          tree_.Clear();
          model_.Clear();
        } else {
          Evict(static_cast<int>(rng_() % 6));
        }
    }
  }

  void Check() {
    pool_.CheckInvariants();
    tree_.CheckInvariants();
    ASSERT_EQ(tree_.num_pages(), model_.size());
    ASSERT_EQ(tree_.num_evictable(), model_.NumEvictable());
    int used = 0;
    for (int32_t page = 1; page <= num_pages_; ++page) {
      const int refs = held_[page] + model_.Holds(page);
      ASSERT_EQ(pool_.ref_count(page), refs) << "page " << page;
      used += refs > 0;
    }
    ASSERT_EQ(pool_.num_used(), used);
    ASSERT_EQ(pool_.num_free() + used, num_pages_);
  }
  const PrefixCache::Stats& stats() const { return tree_.stats(); }
  int num_extended() const { return num_extended_; }

 private:
  struct Sequence {
    Keys keys;
    Pages pages;  // ceil(keys / page_size)
    PrefixCache::Cursor cursor = {};
  };

  void Hold(const Pages& pages) {
    for (int32_t page : pages) ++held_[page];
  }
  void Evict(int count) { ASSERT_EQ(tree_.Evict(count), model_.Evict(count, true)); }
  Keys RandomKeys(int count) {
    Keys keys(count);
    for (uint64_t& key : keys) key = (rng_() % 2) | (rng_() % 2 ? uint64_t{1} << 63 : 0);
    return keys;
  }

  // A prompt that often begins like an earlier one.
  void Start() {
    if (sequences_.size() >= 5) return End();
    Keys keys;
    if (!history_.empty() && rng_() % 4 != 0) {
      keys = history_[rng_() % history_.size()];
      keys.resize(rng_() % (keys.size() + 1));
    }
    const Keys more = RandomKeys(1 + rng_() % (4 * page_size_));
    keys.insert(keys.end(), more.begin(), more.end());
    const int cap = static_cast<int>(keys.size()) - 1;
    const PrefixCache::Match match = tree_.Acquire(keys, cap);
    ASSERT_EQ(match.pages, model_.Acquire(keys, cap));
    ASSERT_EQ(match.num_tokens, static_cast<int>(match.pages.size()) * page_size_);
    Hold(match.pages);
    sequences_.push_back(
        {Keys(keys.begin(), keys.begin() + match.num_tokens), match.pages, match.cursor});
    Extend(sequences_.back(), Keys(keys.begin() + match.num_tokens, keys.end()));
  }
  void Grow() {
    if (sequences_.empty()) return;
    Extend(sequences_[rng_() % sequences_.size()], RandomKeys(1 + rng_() % (2 * page_size_)));
  }
  // If a sequence finds no page even after eviction, it keeps its length, and another one ends.
  void Extend(Sequence& seq, const Keys& keys) {
    const int total = static_cast<int>(seq.keys.size() + keys.size());
    const int needed = (total + page_size_ - 1) / page_size_ - static_cast<int>(seq.pages.size());
    Pages fresh;
    if (!pool_.Allocate(needed, &fresh)) {
      Evict(needed - pool_.num_free());
      if (!pool_.Allocate(needed, &fresh)) return End();
    }
    for (int32_t page : fresh) ASSERT_TRUE(held_[page] == 0 && !model_.Holds(page));
    Hold(fresh);
    seq.pages.insert(seq.pages.end(), fresh.begin(), fresh.end());
    seq.keys.insert(seq.keys.end(), keys.begin(), keys.end());
  }
  void Offer() {
    if (sequences_.empty()) return;
    Sequence& seq = sequences_[rng_() % sequences_.size()];
    if (rng_() % 2 == 0) return OfferWhatIsNew(seq);
    Keys keys = seq.keys;
    keys.resize(keys.size() - rng_() % (keys.size() + 1) / 2);
    Pages exchanged = seq.pages;
    tree_.Insert(keys, exchanged);
    model_.Insert(keys, seq.pages);
    ASSERT_EQ(exchanged, seq.pages);
  }
  // Continues the path that the sequence matched or inserted before, if it still exists.
  void OfferWhatIsNew(Sequence& seq) {
    const int from = seq.cursor.num_pages;
    const std::span<const uint64_t> keys(seq.keys);
    Pages exchanged = seq.pages;
    if (tree_.Extend(&seq.cursor, keys.subspan(from * page_size_),
                     std::span(exchanged).subspan(from))) {
      model_.Insert(seq.keys, seq.pages, from);
      ASSERT_EQ(exchanged, seq.pages);
      ++num_extended_;
    } else {
      seq.cursor = {};
    }
  }
  void Remember(const Keys& keys) {
    history_.push_back(keys);
    if (history_.size() > 20) history_.erase(history_.begin());
  }
  void End() {
    if (sequences_.empty()) return;
    const auto it = sequences_.begin() + rng_() % sequences_.size();
    if (!it->keys.empty()) Remember(it->keys);
    for (int32_t page : it->pages) {
      pool_.Release(page);
      --held_[page];
    }
    sequences_.erase(it);
  }
  // The child shares whole pages only; its parent may still write the last one.
  void Fork() {
    if (sequences_.empty()) return;
    Sequence child = sequences_[rng_() % sequences_.size()];
    child.cursor = {};
    child.pages.resize(child.keys.size() / page_size_);
    child.keys.resize(child.pages.size() * page_size_);
    for (int32_t page : child.pages) pool_.AddRef(page);
    Hold(child.pages);
    sequences_.push_back(std::move(child));
  }

  std::mt19937 rng_;
  int page_size_;
  int num_pages_;
  BlockPool pool_;
  PrefixCache tree_;
  std::vector<int> held_;  // references of sequences by page
  ModelTree model_;
  std::vector<Sequence> sequences_;
  std::vector<Keys> history_;
  int num_extended_ = 0;
};

struct FuzzCase {
  uint32_t seed;
  int page_size;
  int num_pages;
  int max_tokens;
};

class PrefixCacheFuzzTest : public ::testing::TestWithParam<FuzzCase> {};

TEST_P(PrefixCacheFuzzTest, AgreesWithTheModelAfterEveryStep) {
  const FuzzCase c = GetParam();
  World world(c.seed, c.page_size, c.num_pages, c.max_tokens);
  for (int step = 0; step < 10000; ++step) {
    world.Step();
    if (HasFatalFailure()) FAIL() << "in step " << step;
    world.Check();
    if (HasFatalFailure()) FAIL() << "after step " << step;
  }
  // The run must have reached the cases it is meant to test.
  EXPECT_GT(world.stats().hits, 100);
  EXPECT_GT(world.stats().evicted_pages, 100);
  EXPECT_GT(world.num_extended(), 100);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PrefixCacheFuzzTest,
                         ::testing::Values(FuzzCase{1, 1, 40, 0}, FuzzCase{2, 2, 48, 0},
                                           FuzzCase{3, 4, 32, 0}, FuzzCase{4, 2, 48, 20},
                                           FuzzCase{5, 1, 12, 7}, FuzzCase{6, 16, 40, 320}));

}  // namespace
}  // namespace kuiper
