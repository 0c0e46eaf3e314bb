// The requests for answers that are under way, from their bodies to their last bytes: preparing on
// workers, decoding pictures on workers of their own, generating on the engine's thread, writing on
// the thread of the network, where all of this is called. A client may leave at any moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/clock.h"
#include "kuiper/base/memory_budget.h"
#include "kuiper/server/answer_writer.h"
#include "kuiper/server/engine_loop.h"
#include "kuiper/server/http_server.h"
#include "kuiper/server/metrics.h"
#include "kuiper/server/server_settings.h"
#include "kuiper/server/worker_pool.h"

namespace kuiper {

// A form of requests and answers: how a body becomes that of a chat or completion, and who writes
// the answer.
struct ApiForm {
  bool is_chat = true;
  // Absent: it is one already.
  StatusOr<JsonNode> (*convert)(JsonNode body) = nullptr;
  // Absent: Prepare.
  PreparedOr (*prepare)(const ServedModel& model, AnswerMemory* memory, JsonNode body) = nullptr;
  ErrorForm* error = ErrorJson;
  std::unique_ptr<AnswerWriter> (*make_writer)(const PreparedRequest& prepared, AnswerTitle title,
                                               const Tokenizer& tokenizer,
                                               ReasoningField reasoning_field) = nullptr;
};

class AnswerSessions {
 public:
  // All must outlive it.
  AnswerSessions(HttpServer& http, WorkerPool& workers, WorkerPool& decoders,
                 const ServerSettings& settings, Metrics& metrics);

  // The model is there; until then nothing is started.
  void Open(const ServedModel& model, EngineLoop& loop);

  // Answers the exchange, now or later; `headers` are in the answer.
  void Start(int64_t exchange, const ApiForm& form, HttpRequest request,
             const std::string& request_id, HttpHeaders headers);
  void OnNews(EngineNews news);
  void OnGone(int64_t exchange);
  // Pings, and ends what takes too long.
  void OnTick();
  // Ends everything with an error.
  void EndAll(const ApiError& error);
  // Nothing is sent any more: what workers do for the sessions ends soon.
  void GiveUp();

  // Answers that run and wait, at most.
  int max_seats() const;
  bool empty() const { return sessions_.empty() && ended_.empty(); }
  int num_running() const;
  int num_waiting() const { return static_cast<int>(sessions_.size()) - num_running(); }
  // How many pixels were decoded since the server started.
  int64_t num_pixels_decoded() const { return num_pixels_decoded_; }
  // The id of the answer to a ticket; "" when there is none.
  std::string NameOf(int64_t ticket) const;

 private:
  struct Session {
    ApiForm form;
    std::string request_id;
    HttpHeaders headers;
    int num_seats = 1;
    // While a worker has its body or its pictures: where the worker hears that nobody waits for it
    // any more, and which job of which workers it is.
    std::shared_ptr<std::atomic<bool>> preparing;
    WorkerPool* pool = nullptr;
    int64_t job = 0;
    size_t queue_bytes = 0;    // of the body, then of the prompts
    size_t picture_bytes = 0;  // of the pixels for the engine
    Clock::time_point begin = Clock::now(), last_write = begin, last_token = begin;
    bool has_token = false;
    bool streams = false;
    // From here on: when it is prepared.
    std::unique_ptr<PreparedRequest> prepared;
    std::unique_ptr<AnswerParts> parts;
    std::unique_ptr<AnswerWriter> writer;
  };
  using Sessions = std::map<int64_t, Session>;

  // `f`, which is told where to hear that nobody waits, is called by a worker.
  using Job = std::function<void(const std::atomic<bool>& is_gone)>;
  void Work(WorkerPool& pool, int64_t weight, Session* session, Job f);
  void OnPrepared(int64_t exchange, PreparedOr prepared);
  // Takes places and memory for what is prepared, or says why it cannot.
  std::optional<ApiError> Admit(Session* session);
  void Decode(int64_t exchange, Session* session, std::vector<Request> requests);
  void OnDecoded(int64_t exchange, const Status& status, std::vector<Request> requests);
  void Submit(int64_t exchange, const Session& session, std::vector<Request> requests);
  // The session of a job that has ended; end() when its client is gone.
  Sessions::iterator TakeBack(int64_t exchange);
  void Take(AnswerEvent event, Clock::time_point now);
  void Finish(Sessions::iterator session);
  // Keeping ids and writing the log take a while, for which the bytes of a step do not wait.
  void CloseEnded();
  void Fail(Sessions::iterator session, const ApiError& error);
  void Erase(Sessions::iterator session, const std::string& outcome);
  void Close(const Session& session, const std::string& outcome);
  void Remember(const Session& session);
  void Count(const Session& session);
  void Write(int64_t exchange, Session* session, const std::string& text);

  HttpServer& http_;
  WorkerPool& workers_;
  WorkerPool& decoders_;
  const ServerSettings& settings_;
  Metrics& metrics_;
  const ServedModel* model_ = nullptr;
  EngineLoop* loop_ = nullptr;
  AnswerMemory memory_;
  Sessions sessions_;           // by exchange, which is the ticket as well
  std::vector<Session> ended_;  // whose end was written
  int num_seats_ = 0;
  int num_abandoned_ = 0;          // jobs that workers do for clients who left
  MemoryBudget queue_, pictures_;  // of all sessions
  std::atomic<int64_t> num_pixels_decoded_ = 0;
};

}  // namespace kuiper
