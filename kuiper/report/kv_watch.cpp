#include "kuiper/report/kv_watch.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/report/result_json.h"
#include "kuiper/report/statistics.h"

namespace kuiper {

using Json = nlohmann::ordered_json;

KvWatch::KvWatch(KvWatchSettings settings)
    : trace_(settings.trace_file),
      tables_(settings.tables_file),
      is_verbose_(settings.on_line != nullptr),
      wants_map_(settings.wants_map),
      lines_(std::move(settings.on_line)) {}

KvObserver KvWatch::observer() {
  if (!trace_.is_open() && !is_verbose_ && !wants_map_) return {};
  return [this](const KvEvent& event) { Watch(event); };
}

void KvWatch::Begin(const KvStats& kv) {
  page_size_ = kv.page_size;
  if (wants_map_ && kv.paged) map_.emplace(kv.pages_total);
  const Json pool = {{"event", "pool"},
                     {"blocks", kv.pages_total},
                     {"block_size", kv.page_size},
                     {"host_blocks", kv.swap_pages_total}};
  trace_.Write(DumpJson(pool) + "\n");
}

void KvWatch::Watch(const KvEvent& event) {
  if (trace_.is_open()) trace_.Write(KvEventJson(event));
  if (is_verbose_) lines_.Add(event);
  if (map_.has_value()) map_->Apply(event);
}

void KvWatch::WriteTable(int64_t request, int sample, const Completion& completion,
                         const std::optional<std::string>& name) {
  if (!tables_.is_open() || completion.tokens.empty()) return;
  const Json table = {{"request", request},
                      {"sample", sample},
                      {"custom_id", name.has_value() ? Json(*name) : Json()},
                      {"block_size", page_size_},
                      {"tokens", TokensInCache(completion)},
                      {"blocks", completion.pages}};
  tables_.Write(DumpJson(table) + "\n");
}

Status KvWatch::Close() {
  Flush();
  trace_.Close();
  tables_.Close();
  return status();
}

}  // namespace kuiper
