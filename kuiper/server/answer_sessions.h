// The generation requests in progress, from reading the body to sending the last byte. Workers
// prepare them, a second pool decodes images, the engine thread generates, and the network thread
// writes. All methods run on the network thread. A client may disconnect at any moment.
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

// An API format: how its body is converted to a chat or completion body, and how responses are
// written.
struct ApiFormat {
  bool is_chat = true;
  // Null if the body needs no conversion.
  StatusOr<JsonNode> (*convert)(JsonNode body) = nullptr;
  // If null, Prepare is used.
  PreparedOr (*prepare)(const ServedModel& model, AnswerMemory* memory, JsonNode body) = nullptr;
  ErrorFormat* error = ErrorJson;
  std::unique_ptr<AnswerWriter> (*make_writer)(const PreparedRequest& prepared, AnswerTitle title,
                                               const Tokenizer& tokenizer,
                                               ReasoningField reasoning_field) = nullptr;
};

class AnswerSessions {
 public:
  // All arguments must outlive this object.
  AnswerSessions(HttpServer& http, WorkerPool& workers, WorkerPool& decoders,
                 const ServerSettings& settings, Metrics& metrics);

  // Call once the model is loaded, before the first Start.
  void Open(const ServedModel& model, EngineLoop& loop);

  // Answers the exchange (request/response pair), now or later, with `headers` in the response.
  void Start(int64_t exchange, const ApiFormat& form, HttpRequest request,
             const std::string& request_id, HttpHeaders headers);
  void OnEngineUpdate(EngineUpdate update);
  void OnGone(int64_t exchange);
  // Sends pings, and ends requests that take too long.
  void OnTick();
  // Ends all sessions with an error.
  void EndAll(const ApiError& error);
  // Lets the workers stop early, because no response will be sent any more.
  void CancelJobs();

  // Returns the maximum number of running and waiting choices.
  int max_reserved_choices() const;
  bool empty() const { return sessions_.empty() && ended_.empty(); }
  int num_running() const;
  int num_waiting() const { return static_cast<int>(sessions_.size()) - num_running(); }
  // Returns the pixels decoded since the server started.
  int64_t num_pixels_decoded() const { return num_pixels_decoded_; }
  // Returns the request id of a ticket; "" if the ticket has no session.
  std::string NameOf(int64_t ticket) const;

 private:
  struct Session {
    ApiFormat form;
    std::string request_id;
    HttpHeaders headers;
    int num_reserved_choices = 1;
    // Non-null while a worker prepares the body or decodes images; set to true to cancel the job.
    std::shared_ptr<std::atomic<bool>> preparing;
    WorkerPool* pool = nullptr;  // the pool that runs `job`
    int64_t job = 0;
    size_t queue_bytes = 0;    // size of the body, then of the prompts
    size_t picture_bytes = 0;  // size of the pixels for the engine
    Clock::time_point begin = Clock::now(), last_write = begin, last_token = begin;
    bool has_token = false;
    bool streams = false;
    // Null until the body is prepared.
    std::unique_ptr<PreparedRequest> prepared;
    std::unique_ptr<AnswerParts> parts;
    std::unique_ptr<AnswerWriter> writer;
  };
  using Sessions = std::map<int64_t, Session>;

  // A worker calls `f`; `is_gone` becomes true once the client has left.
  using Job = std::function<void(const std::atomic<bool>& is_gone)>;
  void Work(WorkerPool& pool, int64_t weight, Session* session, Job f);
  void OnPrepared(int64_t exchange, PreparedOr prepared);
  // Reserves queue places and memory for the prepared request, or returns the error.
  std::optional<ApiError> Admit(Session* session);
  void Decode(int64_t exchange, Session* session, std::vector<Request> requests);
  void OnDecoded(int64_t exchange, const Status& status, std::vector<Request> requests);
  void Submit(int64_t exchange, const Session& session, std::vector<Request> requests);
  // Returns the session of a finished job; end() if its client has left.
  Sessions::iterator SessionOfFinishedJob(int64_t exchange);
  void Take(AnswerEvent event, Clock::time_point now);
  void Finish(Sessions::iterator session);
  // Remembers ids and writes the log after the step's bytes are sent, because both take a while.
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
  Sessions sessions_;           // by exchange, which is also the ticket
  std::vector<Session> ended_;  // fully written, not closed yet
  int num_reserved_choices_ = 0;
  int num_abandoned_ = 0;          // running jobs whose clients have left
  MemoryBudget queue_, pictures_;  // shared by all sessions
  std::atomic<int64_t> num_pixels_decoded_ = 0;
};

}  // namespace kuiper
