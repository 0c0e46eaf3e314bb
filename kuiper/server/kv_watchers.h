// Clients that watch the pages of the KV cache over HTTP. While there are any, the engine thread
// takes a snapshot four times a second.
#pragma once

#include <map>
#include <string>

#include "kuiper/base/clock.h"
#include "kuiper/server/answer_sessions.h"
#include "kuiper/server/page_watch.h"

namespace kuiper {

class KvWatchers {
 public:
  // Both must outlive this object.
  KvWatchers(HttpServer& http, const AnswerSessions& sessions) : http_(http), sessions_(sessions) {}

  void Open(EngineLoop& loop, PageWatch& view) {
    loop_ = &loop;
    view_ = &view;
  }
  bool is_open() const { return view_ != nullptr; }

  // Sends a stream of snapshots, or a single one with ?once=1.
  void Add(int64_t exchange, const HttpRequest& request, HttpHeaders headers);
  void Remove(int64_t exchange) { watchers_.erase(exchange); }
  void OnTick();
  void EndAll();

 private:
  struct Watcher {
    bool once = false;
    HttpHeaders headers;
  };

  void Show(const KvSnapshot& snapshot);

  HttpServer& http_;
  const AnswerSessions& sessions_;
  EngineLoop* loop_ = nullptr;
  PageWatch* view_ = nullptr;
  std::map<int64_t, Watcher> watchers_;
  bool is_snapshot_pending_ = false;  // the engine has been asked for a snapshot
  Clock::time_point last_;
};

}  // namespace kuiper
