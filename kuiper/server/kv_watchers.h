// Who watches the pages of the KV cache over HTTP: a picture four times a second, made on the
// engine's thread while somebody looks.
#pragma once

#include <map>
#include <string>

#include "kuiper/base/clock.h"
#include "kuiper/server/answer_sessions.h"
#include "kuiper/server/page_watch.h"

namespace kuiper {

class KvWatchers {
 public:
  // Both must outlive it.
  KvWatchers(HttpServer& http, const AnswerSessions& sessions) : http_(http), sessions_(sessions) {}

  void Open(EngineLoop& loop, PageWatch& view) {
    loop_ = &loop;
    view_ = &view;
  }
  bool is_open() const { return view_ != nullptr; }

  // A stream of pictures, or one with ?once=1.
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
  bool is_asked_ = false;  // the engine makes a picture
  Clock::time_point last_;
};

}  // namespace kuiper
