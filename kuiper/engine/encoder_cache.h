// Decides which embedding sources have their rows in memory: a budget of rows, the holders of each
// source, and the least recently used source to evict. Pure host logic: PictureStore carries it
// out.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kuiper {

class EncoderCache {
 public:
  explicit EncoderCache(int64_t max_rows) : max_rows_(max_rows) {}

  int64_t max_rows() const { return max_rows_; }
  // Adds an unknown source with num_rows rows, which are not in memory.
  void Add(int64_t source, int64_t num_rows);
  // Removes a source that has no holder and no rows in memory.
  void Forget(int64_t source) { entries_.erase(source); }

  // Keeps the rows of these distinct sources in memory until Release. Sources without holders are
  // evicted to make room. Returns false and does nothing if these and the held sources do not fit.
  bool Hold(std::span<const int64_t> sources);
  void Release(std::span<const int64_t> sources);
  bool is_held(int64_t source) const { return entries_.at(source).num_holders > 0; }
  // True if rows are reserved for the source, whether it is held or not.
  bool is_resident(int64_t source) const { return entries_.at(source).is_resident; }
  int64_t num_resident_rows() const { return resident_rows_; }

  // Sources that were evicted since the last call and are still not resident.
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
