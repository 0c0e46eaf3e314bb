#include "kuiper/server/server.h"

#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"
#include "kuiper/server/api_forms.h"
#include "kuiper/server/page.h"
#include "kuiper/server/reply_headers.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

// Images take seconds, prompts take milliseconds: images have their own workers.
constexpr int kNumWorkers = 2, kNumDecoders = 2;

}  // namespace

Server::Server(HttpServer& http, const ServerSettings& settings)
    : http_(http),
      settings_(settings),
      sessions_(http, workers_, decoders_, settings_, metrics_),
      watchers_(http, sessions_),
      service_(http, settings_.service),
      id_prefix_(HashText((uint64_t{std::random_device()()} << 32) | std::random_device()())),
      computing_(settings.max_queue_bytes),
      workers_(kNumWorkers),
      decoders_(kNumDecoders, settings.max_decoding_pixels) {}

void Server::Run() {
  http_.Run(*this);
  sessions_.GiveUp();
  const std::lock_guard lock(ending_);
  has_ended_ = true;
  if (stopped_loop_ != nullptr) stopped_loop_->Stop();
}

void Server::Loading(double share) {
  http_.Post([this, share] { service_.OnLoading(share); });
}

void Server::Open(ServedModel model, EngineLoop& loop, PageWatch* view) {
  {
    const std::lock_guard lock(ending_);
    stopped_loop_ = &loop;
    if (has_ended_) loop.Stop();
  }
  http_.Post([this, model = std::move(model), &loop, view]() mutable {
    model_ = std::move(model);
    if (view != nullptr) watchers_.Open(loop, *view);
    sessions_.Open(*model_, loop);
    service_.OnReady(loop);
    loop.Call([this](Engine& engine) {
      http_.Post([this, kv = engine.kv_stats()] { metrics_.kv = kv; });
    });
  });
}

void Server::Drain() {
  http_.Post([this] {
    if (drain_begin_.has_value()) return;
    drain_begin_ = Clock::now();
    watchers_.EndAll();
    http_.StopAccepting();
    service_.OnStopping(settings_.drain_timeout);
  });
}

EngineLoop::Deliver Server::deliver() {
  return [this](EngineNews news) {
    http_.Post([this, news = std::move(news)]() mutable { sessions_.OnNews(std::move(news)); });
  };
}

const std::vector<Server::Route>& Server::Routes() {
  using Answer = void (Server::*)(const Ask&);
  const auto form = [](const char* path, const ApiForm& form) {
    return Route{"POST", path, &form, nullptr, nullptr, true, true, form.error};
  };
  const auto compute = [](const char* path, Computation compute, ErrorForm* error = ErrorJson) {
    return Route{"POST", path, nullptr, compute, nullptr, true, true, error};
  };
  const auto get = [](const char* path, Answer answer) {
    return Route{"GET", path, nullptr, nullptr, answer};
  };
  const auto open = [](const char* path, Answer answer) {  // needs neither a key nor the model
    return Route{"GET", path, nullptr, nullptr, answer, false, false};
  };
  static const std::vector<Route> routes = {
      form("/chat/completions", kChatForm),
      form("/completions", kCompletionForm),
      form("/messages", kMessagesForm),
      form("/responses", kResponsesForm),
      form("/kuiper/verify", kVerificationForm),
      compute("/messages/count_tokens", CountTokensBody, MessagesError),
      compute("/responses/input_tokens", CountInputTokensBody),
      compute("/tokenize", TokenizeBody),
      compute("/detokenize", DetokenizeBody),
      compute("/apply-template", ApplyTemplateBody),
      get("/models", &Server::Models),
      get("/models/", &Server::OneModel),
      get("/props", &Server::Props),
      get("/tokenizer_info", &Server::TokenizerInfo),
      get("/kuiper/kv", &Server::WatchKv),
      open("/", &Server::Page),
      open("/kuiper/page.css", &Server::Page),
      open("/kuiper/page.js", &Server::Page),
      open("/kuiper/markdown.js", &Server::Page),
      open("/kuiper/verify.js", &Server::Page),
      open("/version", &Server::Version),
      open("/health", &Server::Health),
      open("/metrics", &Server::GetMetrics),
      open("/ping", &Server::Ping),
  };
  return routes;
}

const Server::Route* Server::FindRoute(Ask* ask) {
  std::string path = ask->request.path;
  if (path.starts_with("/v1/")) path.erase(0, 3);
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::string allowed;
  for (const Route& route : Routes()) {
    const std::string_view of(route.path);
    const bool is_prefix = of.size() > 1 && of.back() == '/';
    const bool fits = is_prefix ? path.size() > of.size() && path.starts_with(of) : path == of;
    if (!fits) continue;
    ask->error = route.error;
    const std::string& method = ask->request.method;
    if (method == route.method || (method == "HEAD" && route.method == std::string("GET"))) {
      if (is_prefix) ask->model = PercentDecoded(std::string_view(path).substr(of.size()));
      ask->request.path = std::move(path);
      return &route;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (path == "*") allowed = "GET, HEAD, POST";  // "OPTIONS *": the server as a whole
  if (allowed.empty()) {
    Refuse(*ask, MakeError(404, "not_found", "there is no " + ask->request.path));
  } else if (ask->request.method == "OPTIONS") {
    HttpHeaders headers = ask->headers;
    headers.emplace_back("Allow", allowed + ", OPTIONS");
    http_.Send(ask->exchange, 204, headers, "");
  } else {
    ask->headers.emplace_back("Allow", allowed + ", OPTIONS");
    Refuse(*ask, MakeError(405, "method_not_allowed", ask->request.path + " takes " + allowed));
  }
  return nullptr;
}

bool Server::MayAsk(const Ask& ask, const Route& route) {
  const Access access = CheckAccess(settings_.access, ask.request, route.needs_key);
  if (access != Access::kAllowed) {
    Refuse(ask, AccessError(settings_.access, access, ask.request));
    return false;
  }
  if (route.needs_model && !model_.has_value()) {
    Refuse(ask, MakeError(503, "loading", "the model is being loaded"));
    return false;
  }
  const bool is_work = std::string_view(route.method) == "POST";
  if (is_work && drain_begin_.has_value()) {
    Refuse(ask, MakeError(503, "draining", "the server is shutting down"));
    return false;
  }
  if (is_work && !HasJson(ask.request)) {
    Refuse(ask, MakeError(415, "unsupported_media_type",
                          "the body must be application/json, not compressed"));
    return false;
  }
  return true;
}

void Server::OnRequest(int64_t exchange, HttpRequest request) {
  Ask ask;
  ask.exchange = exchange;
  ask.request = std::move(request);
  const std::string* id = ask.request.Header("x-request-id");
  ask.id = id != nullptr && IsRequestId(*id) ? *id : id_prefix_ + std::to_string(next_id_++);
  ask.headers = CorsHeaders(settings_.access, ask.request);
  ask.headers.emplace_back("X-Request-Id", ask.id);
  const Route* route = FindRoute(&ask);
  if (route == nullptr) return;
  if (!MayAsk(ask, *route)) return;
  if (route->form != nullptr) {
    sessions_.Start(exchange, *route->form, std::move(ask.request), ask.id, std::move(ask.headers));
  } else if (route->compute != nullptr) {
    Compute(std::move(ask), route->compute);
  } else {
    (this->*route->answer)(ask);
  }
}

void Server::OnGone(int64_t exchange) {
  watchers_.Remove(exchange);
  sessions_.OnGone(exchange);
}

std::string Server::ErrorBody(int status, const std::string& message) {
  ++metrics_.answers[status];
  return JsonText(ErrorJson(MakeError(status, HttpErrorCode(status), message))) + "\n";
}

void Server::OnTick() {
  if (settings_.should_end && !drain_begin_.has_value() && settings_.should_end()) Drain();
  sessions_.OnTick();
  metrics_.num_connections = http_.num_connections();
  watchers_.OnTick();
  service_.OnTick(sessions_.num_running(), sessions_.num_waiting());
  if (!drain_begin_.has_value()) return;
  if (Clock::now() - *drain_begin_ > settings_.drain_timeout) {
    sessions_.EndAll(MakeError(503, "draining", "the server is shutting down"));
  }
  // Connections close once their responses are written.
  const bool is_late =
      Clock::now() - *drain_begin_ > settings_.drain_timeout + std::chrono::seconds(5);
  if (sessions_.empty() && (http_.num_connections() == 0 || is_late)) http_.Stop();
}

void Server::Reply(const Ask& ask, int status, const Json& body) {
  ++metrics_.answers[status];
  HttpHeaders headers = JsonHeaders(ask.headers);
  if (status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429) headers.emplace_back("Retry-After", std::to_string(metrics_.SecondsToWait()));
  if (status == 503) headers.emplace_back("Retry-After", "1");
  http_.Send(ask.exchange, status, headers, JsonText(body) + "\n");
}

void Server::Refuse(const Ask& ask, const ApiError& error) {
  Reply(ask, error.status, ask.error(error));
}

void Server::Models(const Ask& ask) {
  Reply(ask, 200, ModelsJson(*model_));
}

void Server::OneModel(const Ask& ask) {
  if (model_->Has(ask.model)) return Reply(ask, 200, ModelJson(*model_, ask.model));
  Refuse(ask, MakeError(404, "model_not_found", "there is no model " + ask.model));
}

void Server::Health(const Ask& ask) {
  const char* status = drain_begin_.has_value() ? "draining"
                       : model_.has_value()     ? "ok"
                                                : "loading";
  Reply(ask, status == std::string("ok") ? 200 : 503, {{"status", status}});
}

void Server::Ping(const Ask& ask) {
  Reply(ask, 200, {{"status", "alive"}});
}

void Server::Version(const Ask& ask) {
  Reply(ask, 200, {{"version", Engine::Version()}});
}

void Server::Props(const Ask& ask) {
  Reply(ask, 200, PropsJson(*model_));
}

void Server::TokenizerInfo(const Ask& ask) {
  Reply(ask, 200, TokenizerInfoJson(*model_));
}

void Server::Page(const Ask& ask) {
  const PageFile file = PageFileOf(ask.request.path);
  ++metrics_.answers[200];
  http_.Send(ask.exchange, 200, file.headers, file.text);
}

void Server::GetMetrics(const Ask& ask) {
  metrics_.num_running = sessions_.num_running();
  metrics_.num_waiting = sessions_.num_waiting();
  metrics_.num_connections = http_.num_connections();
  metrics_.num_body_bytes = http_.num_body_bytes();
  metrics_.slow_readers = http_.num_slow_readers();
  metrics_.pixels_decoded = sessions_.num_pixels_decoded();
  const std::string name = model_.has_value() ? model_->names.at(0) : "";
  HttpHeaders headers = ask.headers;
  headers.emplace_back("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  http_.Send(ask.exchange, 200, headers, metrics_.Text(settings_.metrics_prefix, name));
}

void Server::Compute(Ask ask, Computation compute) {
  const size_t bytes = ask.request.body.size();
  if (num_computing_ >= sessions_.max_seats() || !computing_.Take(bytes)) {
    return Refuse(ask, QueueFull());
  }
  ++num_computing_;
  workers_.Add([this, ask = std::move(ask), bytes, compute, model = &*model_]() mutable {
    const std::string body = std::exchange(ask.request.body, {});
    http_.Post([this, ask, bytes, answer = ComputeBody(compute, *model, body)] {
      --num_computing_;
      computing_.Return(bytes);
      if (answer.ok()) return Reply(ask, 200, *answer);
      Refuse(ask, ErrorOf(answer.status()));
    });
  });
}

void Server::WatchKv(const Ask& ask) {
  if (!watchers_.is_open()) {
    return Refuse(ask, MakeError(404, "not_found", "the KV cache is not watched"));
  }
  ++metrics_.answers[200];
  watchers_.Add(ask.exchange, ask.request, ask.headers);
}

}  // namespace kuiper
