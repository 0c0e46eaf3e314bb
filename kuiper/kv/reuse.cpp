#include "kuiper/kv/reuse.h"

#include <algorithm>
#include <utility>

#include "kuiper/kv/prefix_cache.h"

namespace kuiper {
namespace {

class RowReuse final : public KvReuse {
 public:
  explicit RowReuse(BlockPool& pool) : pool_(pool) {}
  ~RowReuse() override { Clear(); }

  Match Acquire(std::span<const uint64_t> keys, int max_tokens) override {
    ++stats_.lookups;
    stats_.tokens_requested += static_cast<int64_t>(keys.size());
    auto best = kept_.end();
    int best_tokens = 0;
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      const auto end =
          std::mismatch(keys.begin(), keys.end(), it->keys.begin(), it->keys.end()).first;
      const int common = std::min<int>(static_cast<int>(end - keys.begin()), max_tokens);
      if (common > best_tokens) {
        best = it;
        best_tokens = common;
      }
    }
    Match match;
    // All chats begin alike: a few common tokens do not justify taking another conversation's row.
    const bool is_own = best != kept_.end() && 2 * best_tokens >= BestPossible(*best, max_tokens);
    if (best == kept_.end() || (!is_own && pool_.num_free() > 0)) return match;
    match.pages.push_back(best->row);
    match.num_tokens = best_tokens;
    kept_.erase(best);
    ++stats_.hits;
    stats_.tokens_hit += best_tokens;
    return match;
  }
  void Return(std::span<const uint64_t> keys, const Match& match) override {
    --stats_.lookups;
    stats_.tokens_requested -= static_cast<int64_t>(keys.size());
    if (match.pages.empty()) return;
    --stats_.hits;
    stats_.tokens_hit -= match.num_tokens;
    const auto used = keys.first(match.num_tokens);
    kept_.push_back({match.pages[0], {used.begin(), used.end()}});
  }
  bool Computed(std::span<const uint64_t>, std::span<int32_t>, Cursor*,
                const PageHolder&) override {
    return true;
  }
  bool Finished(std::span<const uint64_t> keys, std::span<int32_t> pages, Cursor*,
                const PageHolder&) override {
    if (keys.empty() || pages.empty()) return true;
    if (pool_.ref_count(pages[0]) > 1) return true;  // a fork still uses it
    pool_.AddRef(pages[0]);
    kept_.push_back({pages[0], {keys.begin(), keys.end()}});
    return true;
  }
  int Evict(int num_pages) override {
    int freed = 0;
    for (; freed < num_pages && !kept_.empty(); ++freed) {
      pool_.Release(kept_.front().row);  // the least recently finished
      kept_.erase(kept_.begin());
    }
    stats_.evicted_pages += freed;
    return freed;
  }
  int num_evictable() const override { return static_cast<int>(kept_.size()); }
  void Clear() override {
    for (const Row& row : kept_) pool_.Release(row.row);
    kept_.clear();
  }

 private:
  struct Row {
    int32_t row;
    std::vector<uint64_t> keys;
  };
  // The most tokens of the row that a prompt with room for max_tokens could use.
  static int BestPossible(const Row& row, int max_tokens) {
    return std::min(static_cast<int>(row.keys.size()), max_tokens);
  }

  BlockPool& pool_;
  std::vector<Row> kept_;  // oldest first
};

}  // namespace

std::unique_ptr<KvReuse> MakePageReuse(BlockPool& pool, int64_t max_tokens,
                                       PrefixObserver observer) {
  return std::make_unique<PrefixCache>(pool, max_tokens, std::move(observer));
}

std::unique_ptr<KvReuse> MakeRowReuse(BlockPool& pool) {
  return std::make_unique<RowReuse>(pool);
}

}  // namespace kuiper
