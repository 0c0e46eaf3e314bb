// The server: routes requests, controls access, and answers while the model loads and while the
// server drains. Runs on the network thread; the engine has its own.
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

  // Serves on the calling thread until the server has drained, then stops the engine loop.
  void Run();

  // Any thread: reports the loaded share of the model, in [0, 1].
  void Loading(double share);
  // Any thread. Call once the model is loaded. `loop` and `view` must outlive Run. `view` may be
  // null.
  void Open(ServedModel model, EngineLoop& loop, PageWatch* view);
  // Any thread: accepts no more requests. Run returns when the last response has ended, or after
  // the drain timeout.
  void Drain();
  // Returns the callback through which the engine loop delivers events.
  EngineLoop::Deliver deliver();

  void OnRequest(int64_t exchange, HttpRequest request) override;
  void OnGone(int64_t exchange) override;
  std::string ErrorBody(int status, const std::string& message) override;
  void OnTick() override;

 private:
  struct IncomingRequest {
    int64_t exchange = 0;
    HttpRequest request;
    std::string id;       // request id
    HttpHeaders headers;  // headers of the response
    std::string model;    // NAME in GET /v1/models/NAME
    ErrorFormat* error = ErrorJson;
  };
  // One of `form`, `compute` and `answer` is set and answers the request.
  struct Route {
    const char* method = "";
    const char* path = "";            // without /v1
    const ApiFormat* form = nullptr;  // the model generates
    Computation compute = nullptr;    // a worker computes it from the body
    void (Server::*answer)(const IncomingRequest& incoming) = nullptr;  // answered at once
    bool needs_key = true;
    bool needs_model = true;
    ErrorFormat* error = ErrorJson;
  };
  static const std::vector<Route>& Routes();

  // Returns the route of the request. If there is none, answers with an error and returns null.
  const Route* FindRoute(IncomingRequest* incoming);
  bool IsAllowed(const IncomingRequest& incoming, const Route& route);

  void Models(const IncomingRequest& incoming);
  void OneModel(const IncomingRequest& incoming);
  void Health(const IncomingRequest& incoming);
  void Ping(const IncomingRequest& incoming);
  void Version(const IncomingRequest& incoming);
  void Props(const IncomingRequest& incoming);
  void TokenizerInfo(const IncomingRequest& incoming);
  void Page(const IncomingRequest& incoming);
  void GetMetrics(const IncomingRequest& incoming);
  void WatchKv(const IncomingRequest& incoming);

  // Computes the response from the body on a worker.
  void Compute(IncomingRequest incoming, Computation compute);
  void Reply(const IncomingRequest& incoming, int status, const nlohmann::ordered_json& body);
  void Refuse(const IncomingRequest& incoming, const ApiError& error);

  HttpServer& http_;
  const ServerSettings settings_;
  Metrics metrics_;
  std::optional<ServedModel> model_;  // absent while it loads
  AnswerSessions sessions_;
  KvWatchers watchers_;
  ServiceManager service_;
  std::optional<Clock::time_point> drain_begin_;
  std::mutex ending_;  // guards the next two members
  bool has_ended_ = false;
  EngineLoop* stopped_loop_ = nullptr;  // the loop to stop when Run ends
  std::string id_prefix_;
  int64_t next_id_ = 1;
  // Requests that Compute() took and that have no answer yet, besides those of sessions_.
  int num_computing_ = 0;
  MemoryBudget computing_;         // bytes of their bodies
  WorkerPool workers_, decoders_;  // last, because their jobs use the members above
};

}  // namespace kuiper
