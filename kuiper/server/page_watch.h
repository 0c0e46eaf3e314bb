// Snapshots of the KV cache's pages for monitoring clients. Taken on the engine thread, shown on
// another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/kv/page_map.h"

namespace kuiper {

// The state of a paged cache at one moment.
struct KvSnapshot {
  struct Table {
    int64_t ticket = 0;
    int64_t sequence = 0;
    bool is_swapped = false;
    std::vector<int32_t> pages;  // by position; host pages if the sequence is swapped out
  };
  KvStats stats;
  // Per page, from page 1: "." free, "u" in use, "s" shared, "c" only in the prefix cache.
  std::string pages;
  int64_t saved = 0;  // pages that sharing saves
  std::vector<Table> tables;
};

class PageWatch {
 public:
  // Returns an observer for the engine. This object must outlive the engine.
  KvObserver observer();
  // Call once the engine exists.
  void Begin(const KvStats& kv);
  // `ticket_of` maps an engine request to its ticket.
  KvSnapshot Take(const KvStats& kv, const std::function<int64_t(int64_t)>& ticket_of);

 private:
  std::optional<PageMap> map_;
  std::map<int64_t, int64_t> requests_;  // by sequence
};

// `name_of` returns the request id of a ticket; "" is written as null.
nlohmann::ordered_json KvJson(const KvSnapshot& snapshot,
                              const std::function<std::string(int64_t)>& name_of);

}  // namespace kuiper
