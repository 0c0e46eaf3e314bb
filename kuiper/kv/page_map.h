// The state of a paged KV cache, rebuilt from its events: which pages are free, how many holders
// each has, and the block table of each sequence. For observers that cannot ask the engine: a
// chat's /paged, a server's page map, a test. Host only; independent of the engine.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/kv/kv_event.h"

namespace kuiper {

class PageMap {
 public:
  // num_pages: pages of the pool without the null page; all are free at first.
  explicit PageMap(int num_pages);

  // After an event that contradicts earlier ones (a page is allocated twice, the free pages do not
  // add up), status() names that event, and later events are ignored.
  void Apply(const KvEvent& event);
  const Status& status() const { return status_; }

  int num_pages() const { return static_cast<int>(pages_.size()) - 1; }
  int num_free() const { return num_free_; }
  int num_holders(int32_t page) const { return pages_.at(page).num_holders; }
  bool is_cached(int32_t page) const { return pages_.at(page).is_cached; }
  // Pages in order of position, by sequence. A sequence without pages has no entry.
  using Tables = std::map<int64_t, std::vector<int32_t>>;
  const Tables& tables() const { return tables_; }
  const Tables& host_tables() const { return host_tables_; }  // swapped-out sequences
  int64_t num_events(KvEvent::Kind kind) const {
    const auto it = counts_.find(kind);
    return it == counts_.end() ? 0 : it->second;
  }

 private:
  struct Page {
    int num_holders = 0;
    bool is_cached = false;
  };
  // Apply the event. Return null, or what is wrong with it.
  const char* Change(const KvEvent& event);
  const char* Hold(const KvEvent& event, Page& page);
  const char* Release(const KvEvent& event, Page& page);
  const char* Swap(const KvEvent& event);

  std::vector<Page> pages_;  // [num_pages + null]
  int num_free_;
  Tables tables_;  // 0: the sequence has no page there
  Tables host_tables_;
  std::map<KvEvent::Kind, int64_t> counts_;
  Status status_;
};

}  // namespace kuiper
