// Which sources of patches have their rows in memory: a budget of rows, who holds a source, and
// which one nobody holds was used longest ago. Pure host logic: it decides, PictureStore carries
// out.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kuiper {

class SourceCache {
 public:
  explicit SourceCache(int64_t max_rows) : max_rows_(max_rows) {}

  int64_t max_rows() const { return max_rows_; }
  // A source that was not known, with so many rows, which are not in memory.
  void Add(int64_t source, int64_t num_rows);
  // One that nobody holds, and whose rows are not in memory.
  void Forget(int64_t source) { entries_.erase(source); }

  // Keeps the rows of these sources, each named once, in memory until Release. Others that nobody
  // holds make room. False, and nothing done: together with those that are held they are too many.
  bool Hold(std::span<const int64_t> sources);
  void Release(std::span<const int64_t> sources);
  bool is_held(int64_t source) const { return entries_.at(source).num_holders > 0; }
  // Whether it has a place, held or not.
  bool is_resident(int64_t source) const { return entries_.at(source).is_resident; }
  int64_t num_resident_rows() const { return resident_rows_; }

  // Sources that lost their place since the last call and did not get one again.
  std::vector<int64_t> TakeEvicted() { return std::exchange(evicted_, {}); }

 private:
  struct Entry {
    int64_t num_rows = 0;
    int num_holders = 0;
    bool is_resident = false;
    int64_t last_use = 0;
  };
  void EvictOldest();

  const int64_t max_rows_;
  int64_t resident_rows_ = 0;
  int64_t held_rows_ = 0;
  int64_t clock_ = 0;
  std::unordered_map<int64_t, Entry> entries_;
  std::vector<int64_t> evicted_;
};

}  // namespace kuiper
