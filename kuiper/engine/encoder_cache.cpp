#include "kuiper/engine/encoder_cache.h"

#include <algorithm>

#include "kuiper/base/check.h"

namespace kuiper {

void EncoderCache::Add(int64_t source, int64_t num_rows) {
  const bool is_new = entries_.try_emplace(source, Entry{.num_rows = num_rows}).second;
  KU_CHECK(is_new, "two sources have the same number");
}

bool EncoderCache::Hold(std::span<const int64_t> sources) {
  int64_t more = 0;  // rows that are not held yet
  for (const int64_t source : sources) {
    const Entry& entry = entries_.at(source);
    if (entry.num_holders == 0) more += entry.num_rows;
  }
  if (held_rows_ + more > max_rows_) return false;
  held_rows_ += more;
  // Hold all sources first, so that none of them is evicted for another.
  for (const int64_t source : sources) ++entries_.at(source).num_holders;
  for (const int64_t source : sources) {
    Entry& entry = entries_.at(source);
    if (entry.is_resident) continue;
    while (resident_rows_ + entry.num_rows > max_rows_) EvictOldest();
    entry.is_resident = true;
    resident_rows_ += entry.num_rows;
    std::erase(evicted_, source);
  }
  return true;
}

void EncoderCache::Release(std::span<const int64_t> sources) {
  for (const int64_t source : sources) {
    Entry& entry = entries_.at(source);
    KU_CHECK(entry.num_holders > 0, "the source is not held");
    entry.last_use = ++clock_;
    if (--entry.num_holders == 0) held_rows_ -= entry.num_rows;
  }
}

void EncoderCache::EvictOldest() {
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (!entry.is_resident || entry.num_holders > 0) continue;
    if (oldest == entries_.end() || entry.last_use < oldest->second.last_use) oldest = it;
  }
  KU_CHECK(oldest != entries_.end(), "what is held fits");
  oldest->second.is_resident = false;
  resident_rows_ -= oldest->second.num_rows;
  evicted_.push_back(oldest->first);
}

}  // namespace kuiper
