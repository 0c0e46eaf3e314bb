// What becomes of the pages of the KV cache, for who watches a server: taken on the engine's
// thread, shown on another.
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

// One moment of a paged cache.
struct KvSnapshot {
  struct Table {
    int64_t ticket = 0;
    int64_t sequence = 0;
    bool is_swapped = false;
    std::vector<int32_t> pages;  // in order of position; of a swapped one, those of the host
  };
  KvStats stats;
  // Per page, from page 1: "." free, "u" in use, "s" shared, "c" held by the prefix cache alone.
  std::string pages;
  int64_t saved = 0;  // pages that sharing spares
  std::vector<Table> tables;
};

class PageWatch {
 public:
  // Must be called by the engine, which the view must outlive.
  KvObserver observer();
  // When the engine is there.
  void Begin(const KvStats& kv);
  // `ticket_of` tells whose an engine's request is.
  KvSnapshot Take(const KvStats& kv, const std::function<int64_t(int64_t)>& ticket_of);

 private:
  std::optional<PageMap> map_;
  std::map<int64_t, int64_t> requests_;  // by sequence
};

// `name_of` tells how a ticket's answer is called.
nlohmann::ordered_json KvJson(const KvSnapshot& snapshot,
                              const std::function<std::string(int64_t)>& name_of);

}  // namespace kuiper
