// The server: which request goes where, who may ask, and what is answered while the model loads and
// while the last answers end. Runs on the thread of the network; the engine has its own.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kuiper/base/memory_budget.h"
#include "kuiper/server/answer_sessions.h"
#include "kuiper/server/endpoints.h"
#include "kuiper/server/kv_watchers.h"
#include "kuiper/server/server_settings.h"
#include "kuiper/server/service_manager.h"

namespace kuiper {

class Server : public HttpHandler {
 public:
  Server(HttpServer& http, const ServerSettings& settings);

  // Serves on the calling thread until everything has drained; then the engine's loop is stopped.
  void Run();

  // Any thread: how much of the model is loaded, of 1.
  void Loading(double share);
  // Any thread. The model is there; the others must outlive the server's run. `view` may be null.
  void Open(ServedModel model, EngineLoop& loop, PageWatch* view);
  // Any thread: no more requests are taken; Run returns when the last answer has ended, or the time
  // for it is over.
  void Drain();
  // What the engine's loop delivers.
  EngineLoop::Deliver deliver();

  void OnRequest(int64_t exchange, HttpRequest request) override;
  void OnGone(int64_t exchange) override;
  std::string ErrorBody(int status, const std::string& message) override;
  void OnTick() override;

 private:
  struct Ask {
    int64_t exchange = 0;
    HttpRequest request;
    std::string id;       // of the request
    HttpHeaders headers;  // of the answer
    std::string model;    // of GET /v1/models/NAME
    ErrorForm* error = ErrorJson;
  };
  // Answered in one of three ways.
  struct Route {
    const char* method = "";
    const char* path = "";                             // without /v1
    const ApiForm* form = nullptr;                     // by the model
    Computation compute = nullptr;                     // by a function of the body, on a worker
    void (Server::*answer)(const Ask& ask) = nullptr;  // at once
    bool needs_key = true;
    bool needs_model = true;
    ErrorForm* error = ErrorJson;
  };
  static const std::vector<Route>& Routes();

  // The route of the request; null, and the answer is given, when there is none for it.
  const Route* FindRoute(Ask* ask);
  bool MayAsk(const Ask& ask, const Route& route);

  void Models(const Ask& ask);
  void OneModel(const Ask& ask);
  void Health(const Ask& ask);
  void Ping(const Ask& ask);
  void Version(const Ask& ask);
  void Props(const Ask& ask);
  void TokenizerInfo(const Ask& ask);
  void Page(const Ask& ask);
  void GetMetrics(const Ask& ask);
  void WatchKv(const Ask& ask);

  // Answers with what `compute` says of the body, on a worker.
  void Compute(Ask ask, Computation compute);
  void Reply(const Ask& ask, int status, const nlohmann::ordered_json& body);
  void Refuse(const Ask& ask, const ApiError& error);

  HttpServer& http_;
  const ServerSettings settings_;
  Metrics metrics_;
  std::optional<ServedModel> model_;  // absent: it loads
  AnswerSessions sessions_;
  KvWatchers watchers_;
  ServiceManager service_;
  std::optional<Clock::time_point> drain_begin_;
  std::mutex ending_;  // of the next two
  bool has_ended_ = false;
  EngineLoop* stopped_loop_ = nullptr;  // that ends with the run
  std::string id_prefix_;
  int64_t next_id_ = 1;
  int num_computing_ = 0;  // bodies that workers have, beside those of sessions
  MemoryBudget computing_;
  WorkerPool workers_, decoders_;  // last: their jobs use what is above
};

}  // namespace kuiper
