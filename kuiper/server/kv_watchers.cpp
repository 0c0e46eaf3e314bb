#include "kuiper/server/kv_watchers.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/server/reply_headers.h"

namespace kuiper {
namespace {

constexpr std::chrono::milliseconds kInterval{250};

}  // namespace

void KvWatchers::Add(int64_t exchange, const HttpRequest& request, HttpHeaders headers) {
  const bool once = request.query == "once=1";
  if (!once) http_.Begin(exchange, 200, EventHeaders(headers));
  if (!once && request.method == "HEAD") return http_.End(exchange);
  watchers_[exchange] = {once, std::move(headers)};
  last_ = {};
  OnTick();
}

void KvWatchers::OnTick() {
  if (watchers_.empty() || is_snapshot_pending_ || Clock::now() - last_ < kInterval) return;
  is_snapshot_pending_ = true;
  loop_->Call([this](Engine& engine) {
    KvSnapshot snapshot = view_->Take(engine.kv_stats(),
                                      [this](int64_t request) { return loop_->TicketOf(request); });
    http_.Post([this, snapshot = std::move(snapshot)] { Show(snapshot); });
  });
}

void KvWatchers::Show(const KvSnapshot& snapshot) {
  is_snapshot_pending_ = false;
  last_ = Clock::now();
  const auto picture =
      KvJson(snapshot, [this](int64_t ticket) { return sessions_.NameOf(ticket); });
  const std::map<int64_t, Watcher> watchers = watchers_;  // a leaving client changes watchers_
  for (const auto& [exchange, watcher] : watchers) {
    if (!watcher.once) {
      http_.Write(exchange, ServerEvent(picture));
      continue;
    }
    watchers_.erase(exchange);
    http_.Send(exchange, 200, JsonHeaders(watcher.headers), JsonText(picture) + "\n");
  }
}

void KvWatchers::EndAll() {
  for (const auto& [exchange, watcher] : watchers_) http_.End(exchange);
  watchers_.clear();
}

}  // namespace kuiper
