#include "kuiper/server/answer_sessions.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/server/reply_headers.h"
#include "kuiper/server/tool_fields.h"

namespace kuiper {

namespace {

PreparedOr PrepareBody(const ServedModel& model, AnswerMemory* memory, const ApiFormat& form,
                       const std::string& text) {
  StatusOr<JsonNode> body = ParseJson(text, StatusCode::kInput, "the body");
  if (body.ok() && form.convert != nullptr) body = form.convert(std::move(*body));
  if (!body.ok()) return ErrorOf(body.status());
  PreparedOr made = form.prepare != nullptr
                        ? form.prepare(model, memory, std::move(*body))
                        : Prepare(model, memory, std::move(*body), form.is_chat);
  auto* prepared = std::get_if<PreparedRequest>(&made);
  if (prepared != nullptr && model.pictures.has_value()) {
    prepared->pictures = CostOfPictures(model.pictures->processor(), prepared->requests);
  }
  return made;
}

// Returns the bytes of the prompts, which both session and engine keep, and of the image files.
size_t PromptBytes(const std::vector<Request>& requests) {
  size_t bytes = 0;
  for (const Request& request : requests) {
    bytes += 2 * request.prompt.size() * sizeof(int32_t);
    for (const VisionInput& image : request.images) bytes += image.undecoded.size();
  }
  return bytes;
}

}  // namespace

AnswerSessions::AnswerSessions(HttpServer& http, WorkerPool& workers, WorkerPool& decoders,
                               const ServerSettings& settings, Metrics& metrics)
    : http_(http),
      workers_(workers),
      decoders_(decoders),
      settings_(settings),
      metrics_(metrics),
      memory_(settings.memory_tokens),
      queue_(settings.max_queue_bytes),
      pictures_(settings.max_picture_bytes) {}

void AnswerSessions::Open(const ServedModel& model, EngineLoop& loop) {
  model_ = &model;
  loop_ = &loop;
}

void AnswerSessions::Start(int64_t exchange, const ApiFormat& form, HttpRequest request,
                           const std::string& request_id, HttpHeaders headers) {
  const auto place = sessions_.try_emplace(exchange).first;
  place->second.form = form;
  place->second.request_id = request_id;
  place->second.headers = std::move(headers);
  if (num_reserved_choices_++ + num_abandoned_ >= max_reserved_choices())
    return Fail(place, QueueFull());
  const size_t bytes = request.body.size();
  if (!queue_.Take(bytes)) return Fail(place, QueueFull());
  place->second.queue_bytes = bytes;
  Work(workers_, 0, &place->second,
       [this, exchange, form, body = std::move(request.body),
        model = model_](const std::atomic<bool>& is_gone) {
         PreparedOr prepared = ApiError();
         if (!is_gone) prepared = PrepareBody(*model, &memory_, form, body);
         http_.Post([this, exchange, prepared = std::move(prepared)]() mutable {
           OnPrepared(exchange, std::move(prepared));
         });
       });
}

void AnswerSessions::Work(WorkerPool& pool, int64_t weight, Session* session, Job f) {
  session->preparing = std::make_shared<std::atomic<bool>>(false);
  session->pool = &pool;
  session->job =
      pool.Add([f = std::move(f), is_gone = session->preparing] { f(*is_gone); }, weight);
}

AnswerSessions::Sessions::iterator AnswerSessions::SessionOfFinishedJob(int64_t exchange) {
  const auto place = sessions_.find(exchange);
  if (place == sessions_.end()) {
    --num_abandoned_;
  } else {
    place->second.preparing = nullptr;
  }
  return place;
}

int AnswerSessions::max_reserved_choices() const {
  return model_->config.max_num_seqs + settings_.max_queue;
}

void AnswerSessions::OnPrepared(int64_t exchange, PreparedOr prepared) {
  const auto place = SessionOfFinishedJob(exchange);
  if (place == sessions_.end()) return;
  if (const ApiError* error = std::get_if<ApiError>(&prepared)) return Fail(place, *error);
  Session& session = place->second;
  session.prepared =
      std::make_unique<PreparedRequest>(std::move(std::get<PreparedRequest>(prepared)));
  if (const auto error = Admit(&session)) return Fail(place, *error);
  const PreparedRequest& wanted = *session.prepared;
  if (!wanted.api.dropped_tools.empty()) {
    session.headers.emplace_back("Warning", DroppedToolsWarning(wanted.api.dropped_tools));
  }
  session.parts = std::make_unique<AnswerParts>(wanted, model_->tool_format(), session.request_id);
  AnswerTitle title{session.request_id, wanted.api.model, model_->fingerprint, std::time(nullptr)};
  if (title.model.empty()) title.model = model_->names.at(0);
  session.writer = session.form.make_writer(wanted, std::move(title), *model_->tokenizer,
                                            settings_.reasoning_field);
  std::vector<Request> requests = TakeRequests(session.prepared.get());
  if (wanted.pictures.num_pixels > 0) return Decode(exchange, &session, std::move(requests));
  Submit(exchange, session, std::move(requests));
}

std::optional<ApiError> AnswerSessions::Admit(Session* session) {
  const PreparedRequest& wanted = *session->prepared;
  int num_choices = 0;
  for (const Request& request : wanted.requests) num_choices += request.num_samples;
  const int num_others = num_reserved_choices_ - session->num_reserved_choices;
  if (num_others > 0 && num_others + num_choices > max_reserved_choices()) return QueueFull();
  num_reserved_choices_ += num_choices - std::exchange(session->num_reserved_choices, num_choices);
  const size_t bytes = PromptBytes(wanted.requests);
  queue_.Return(std::exchange(session->queue_bytes, 0));
  if (!queue_.Take(bytes)) return QueueFull();
  session->queue_bytes = bytes;
  if (auto error = PicturesTooLarge(wanted.pictures, settings_)) return error;
  const size_t picture_bytes = wanted.pictures.num_bytes;
  if (picture_bytes > 0 && !pictures_.Take(picture_bytes)) {
    return MakeError(429, "queue_full",
                     "the pictures of other requests take the memory that this server has for "
                     "pictures; try again later");
  }
  session->picture_bytes = picture_bytes;
  return std::nullopt;
}

// The images of a request are decoded one by one, so the job's weight is the largest image.
void AnswerSessions::Decode(int64_t exchange, Session* session, std::vector<Request> requests) {
  Work(decoders_, session->prepared->pictures.largest_picture, session,
       [this, exchange, requests = std::move(requests),
        model = model_](const std::atomic<bool>& is_gone) mutable {
         const DecodingWatch watch{[&](int64_t new_pixels) {
           num_pixels_decoded_ += new_pixels;
           return !is_gone;
         }};
         const Status status = DecodePictures(model->pictures->processor(), watch, &requests);
         http_.Post([this, exchange, status, requests = std::move(requests)]() mutable {
           OnDecoded(exchange, status, std::move(requests));
         });
       });
}

void AnswerSessions::OnDecoded(int64_t exchange, const Status& status,
                               std::vector<Request> requests) {
  const auto place = SessionOfFinishedJob(exchange);
  if (place == sessions_.end()) return;
  if (!status.ok()) return Fail(place, ErrorOf(status));
  Submit(exchange, place->second, std::move(requests));
}

void AnswerSessions::Submit(int64_t exchange, const Session& session,
                            std::vector<Request> requests) {
  if (session.prepared->verified.has_value()) {
    loop_->SubmitContiguous(exchange, 1, std::move(requests.back()));
    requests.pop_back();
  }
  loop_->Submit(exchange, std::move(requests));
}

void AnswerSessions::OnEngineUpdate(EngineUpdate update) {
  metrics_.kv = update.kv;
  metrics_.num_steps = update.num_steps;
  metrics_.step_tokens.Add(static_cast<double>(update.events.size()));
  const Clock::time_point now = Clock::now();
  for (AnswerEvent& event : update.events) Take(std::move(event), now);
  metrics_.hand_over.Add(SecondsSince(update.handed_over));
  if (!ended_.empty()) http_.Post([this] { CloseEnded(); });
}

void AnswerSessions::Take(AnswerEvent event, Clock::time_point now) {
  const int64_t exchange = event.ticket;
  const auto place = sessions_.find(exchange);
  if (place == sessions_.end()) return;
  Session& session = place->second;
  if (!event.refused.ok()) return Fail(place, ErrorOf(event.refused));
  if (event.token.has_value()) {
    ++metrics_.generation_tokens;
    const double seconds = std::chrono::duration<double>(now - session.last_token).count();
    Histogram& histogram =
        session.has_token ? metrics_.inter_token_latency : metrics_.time_to_first_token;
    histogram.Add(seconds);
    session.has_token = true;
    session.last_token = now;
  }
  const AnswerDelta delta = session.parts->Take(std::move(event));
  const Status failed = session.parts->error();
  if (!failed.ok()) return Fail(place, ErrorOf(failed));
  if (session.prepared->api.stream) {
    // Send the response head with the first event: a refused request still gets an error status.
    std::string text;
    if (!session.streams) {
      ++metrics_.answers[200];
      http_.Begin(exchange, 200, EventHeaders(session.headers));
      session.streams = true;
      text = session.writer->Begin(*session.parts);
    }
    text += session.writer->OnDelta(delta, *session.parts);
    Write(exchange, &session, text);
    if (!sessions_.contains(exchange)) return;  // the client does not read
  }
  if (session.parts->is_done()) Finish(place);
}

void AnswerSessions::Write(int64_t exchange, Session* session, const std::string& text) {
  if (text.empty()) return;
  session->last_write = Clock::now();
  http_.Write(exchange, text);
}

void AnswerSessions::Finish(Sessions::iterator place) {
  Session& session = place->second;
  const int64_t exchange = place->first;
  if (session.streams) {
    http_.Write(exchange, session.writer->End(*session.parts));
    if (!sessions_.contains(exchange)) return;
    http_.End(exchange);
  } else {
    ++metrics_.answers[200];
    http_.Send(exchange, 200, JsonHeaders(session.headers),
               JsonText(session.writer->Whole(*session.parts)) + "\n");
  }
  ended_.push_back(std::move(sessions_.extract(place).mapped()));
}

void AnswerSessions::CloseEnded() {
  for (const Session& session : std::exchange(ended_, {})) {
    Remember(session);
    Count(session);
    Close(session, session.parts->choices().at(0).finish());
  }
}

void AnswerSessions::Fail(Sessions::iterator place, const ApiError& error) {
  Session& session = place->second;
  const int64_t exchange = place->first;
  if (session.parts != nullptr) loop_->Abort(exchange);
  if (session.streams) {
    http_.Write(exchange, session.writer->Failed(error));
    if (!sessions_.contains(exchange)) return;
    http_.End(exchange);
  } else {
    ++metrics_.answers[error.status];
    HttpHeaders headers = JsonHeaders(session.headers);
    if (error.status == 429 || error.status == 503) {
      headers.emplace_back("Retry-After", std::to_string(metrics_.SecondsToWait()));
    }
    http_.Send(exchange, error.status, headers, JsonText(session.form.error(error)) + "\n");
  }
  Erase(place, error.code.empty() ? std::to_string(error.status) : error.code);
}

void AnswerSessions::Erase(Sessions::iterator place, const std::string& outcome) {
  Close(sessions_.extract(place).mapped(), outcome);
}

void AnswerSessions::Close(const Session& session, const std::string& outcome) {
  std::string line = "request id=" + session.request_id + " outcome=" + outcome +
                     " ms=" + std::to_string(static_cast<int>(MillisecondsSince(session.begin)));
  if (session.parts != nullptr) {
    line += " prompt_tokens=" + std::to_string(session.parts->num_prompt_tokens()) +
            " cached_tokens=" + std::to_string(session.parts->num_cached_tokens()) +
            " completion_tokens=" + std::to_string(session.parts->num_generated_tokens());
  }
  num_reserved_choices_ -= session.num_reserved_choices;
  if (session.preparing != nullptr) {
    *session.preparing = true;
    if (!session.pool->Forget(session.job)) ++num_abandoned_;
    if (session.pool == &decoders_) ++metrics_.decodings_cancelled;
  }
  queue_.Return(session.queue_bytes);
  pictures_.Return(session.picture_bytes);
  LogInfo(line);
}

void AnswerSessions::Remember(const Session& session) {
  const PreparedRequest& wanted = *session.prepared;
  if (!wanted.api.is_chat || settings_.memory_tokens == 0) return;
  const TemplateOptions options = model_->OptionsOf(wanted.api.prompts[0].messages);
  for (const AnswerParts::Choice& choice : session.parts->choices()) {
    if (!choice.calls.empty()) continue;
    memory_.Keep(wanted.history, choice.completion->text,
                 ReusableIds(*choice.completion, options, !wanted.api.parameters().ignore_eos,
                             *model_->tokenizer));
  }
}

void AnswerSessions::Count(const Session& session) {
  const AnswerParts& parts = *session.parts;
  metrics_.prompt_tokens += parts.num_prompt_tokens();
  metrics_.request_latency.Add(SecondsSince(session.begin));
  for (const Request& request : session.prepared->requests) {
    metrics_.prompt_length.Add(static_cast<double>(request.prompt.size()));
  }
  for (const AnswerParts::Choice& choice : parts.choices()) {
    const Completion& done = *choice.completion;
    ++metrics_.finished[choice.finish()];
    metrics_.generation_length.Add(static_cast<double>(done.tokens.size()));
    metrics_.queue_time.Add(done.queue_ms / 1e3);
    metrics_.prefill_time.Add(done.prefill_ms / 1e3);
    metrics_.decode_time.Add(done.decode_ms / 1e3);
  }
}

void AnswerSessions::OnGone(int64_t exchange) {
  const auto place = sessions_.find(exchange);
  if (place == sessions_.end()) return;
  ++metrics_.aborted;
  if (place->second.parts != nullptr) loop_->Abort(exchange);
  Erase(place, "client_gone");
}

void AnswerSessions::OnTick() {
  const Clock::time_point now = Clock::now();
  std::vector<int64_t> late, silent;
  for (const auto& [exchange, session] : sessions_) {
    if (settings_.request_timeout.count() > 0 && now - session.begin > settings_.request_timeout) {
      late.push_back(exchange);
    } else if (session.prepared != nullptr && session.prepared->api.stream &&
               now - session.last_write > settings_.ping_interval) {
      silent.push_back(exchange);
    }
  }
  const ApiError timeout =
      MakeError(408, "timeout", "the request took longer than this server allows");
  for (const int64_t exchange : late) Fail(sessions_.find(exchange), timeout);
  for (const int64_t exchange : silent) {
    Session& session = sessions_.find(exchange)->second;
    std::string text = ": ping\n\n";
    if (!session.streams) {
      ++metrics_.answers[200];
      http_.Begin(exchange, 200, EventHeaders(session.headers));
      session.streams = true;
      text += session.writer->Begin(*session.parts);
    }
    Write(exchange, &session, text);
  }
}

void AnswerSessions::EndAll(const ApiError& error) {
  while (!sessions_.empty()) Fail(sessions_.begin(), error);
}

void AnswerSessions::CancelJobs() {
  for (auto& [exchange, session] : sessions_) {
    if (session.preparing != nullptr) *session.preparing = true;
  }
}

int AnswerSessions::num_running() const {
  return static_cast<int>(std::count_if(sessions_.begin(), sessions_.end(),
                                        [](const auto& entry) { return entry.second.has_token; }));
}

std::string AnswerSessions::NameOf(int64_t ticket) const {
  const auto place = sessions_.find(ticket);
  return place == sessions_.end() ? "" : place->second.request_id;
}

}  // namespace kuiper
