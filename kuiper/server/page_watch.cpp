#include "kuiper/server/page_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kuiper {

using Json = nlohmann::ordered_json;

KvObserver PageWatch::observer() {
  return [this](const KvEvent& event) {
    if (!map_.has_value()) return;
    map_->Apply(event);
    if (event.holder.request != 0) requests_[event.holder.sequence] = event.holder.request;
  };
}

void PageWatch::Begin(const KvStats& kv) {
  if (kv.paged) map_.emplace(kv.pages_total);
}

KvSnapshot PageWatch::Take(const KvStats& kv, const std::function<int64_t(int64_t)>& ticket_of) {
  KvSnapshot snapshot;
  snapshot.stats = kv;
  if (!map_.has_value()) return snapshot;
  for (int32_t page = 1; page <= map_->num_pages(); ++page) {
    const int holders = map_->num_holders(page) - (map_->is_cached(page) ? 1 : 0);
    snapshot.pages += holders > 1 ? 's' : holders == 1 ? 'u' : map_->is_cached(page) ? 'c' : '.';
    snapshot.saved += std::max(0, holders - 1);
  }
  std::erase_if(requests_, [this](const auto& entry) {
    return !map_->tables().contains(entry.first) && !map_->host_tables().contains(entry.first);
  });
  const auto add = [&](const PageMap::Tables& tables, bool is_swapped) {
    for (const auto& [sequence, pages] : tables) {
      const auto request = requests_.find(sequence);
      const int64_t ticket = request == requests_.end() ? 0 : ticket_of(request->second);
      snapshot.tables.push_back({ticket, sequence, is_swapped, pages});
    }
  };
  add(map_->tables(), false);
  add(map_->host_tables(), true);
  return snapshot;
}

Json KvJson(const KvSnapshot& snapshot, const std::function<std::string(int64_t)>& name_of) {
  const KvStats& kv = snapshot.stats;
  Json sequences = Json::array();
  for (const KvSnapshot::Table& table : snapshot.tables) {
    const std::string name = name_of(table.ticket);
    sequences.push_back({{"request", name.empty() ? Json() : Json(name)},
                         {"sequence", table.sequence},
                         {"swapped", table.is_swapped},
                         {"pages", table.pages}});
  }
  return {{"paged", kv.paged},
          {"block_size", kv.page_size},
          {"num_blocks", kv.pages_total},
          {"used", kv.pages_used},
          {"free", kv.pages_free},
          {"shared", kv.pages_shared},
          {"evictable", kv.pages_evictable},
          {"saved", snapshot.saved},
          {"bytes_reserved", kv.bytes_reserved},
          {"bytes_touched", kv.bytes_touched},
          {"prefix_cache",
           {{"enabled", kv.prefix_cache},
            {"queries", kv.tokens_requested},
            {"hits", kv.tokens_hit},
            {"evicted_blocks", kv.evicted_pages}}},
          {"preemptions", kv.preempted_recompute + kv.preempted_swap},
          {"blocks", snapshot.pages},
          {"sequences", std::move(sequences)}};
}

}  // namespace kuiper
