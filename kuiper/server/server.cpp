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
  sessions_.CancelJobs();
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
  return [this](EngineUpdate update) {
    http_.Post([this, update = std::move(update)]() mutable {
      sessions_.OnEngineUpdate(std::move(update));
    });
  };
}

const std::vector<Server::Route>& Server::Routes() {
  using Answer = void (Server::*)(const IncomingRequest&);
  const auto form = [](const char* path, const ApiFormat& form) {
    return Route{"POST", path, &form, nullptr, nullptr, true, true, form.error};
  };
  const auto compute = [](const char* path, Computation compute, ErrorFormat* error = ErrorJson) {
    return Route{"POST", path, nullptr, compute, nullptr, true, true, error};
  };
  const auto get = [](const char* path, Answer answer) {
    return Route{"GET", path, nullptr, nullptr, answer};
  };
  const auto open = [](const char* path, Answer answer) {  // needs neither a key nor the model
    return Route{"GET", path, nullptr, nullptr, answer, false, false};
  };
  static const std::vector<Route> routes = {
      form("/chat/completions", kChatFormat),
      form("/completions", kCompletionFormat),
      form("/messages", kMessagesFormat),
      form("/responses", kResponsesFormat),
      form("/kuiper/verify", kVerificationFormat),
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

const Server::Route* Server::FindRoute(IncomingRequest* incoming) {
  std::string path = incoming->request.path;
  if (path.starts_with("/v1/")) path.erase(0, 3);
  if (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::string allowed;
  for (const Route& route : Routes()) {
    const std::string_view of(route.path);
    const bool is_prefix = of.size() > 1 && of.back() == '/';
    const bool fits = is_prefix ? path.size() > of.size() && path.starts_with(of) : path == of;
    if (!fits) continue;
    incoming->error = route.error;
    const std::string& method = incoming->request.method;
    if (method == route.method || (method == "HEAD" && route.method == std::string("GET"))) {
      if (is_prefix) incoming->model = PercentDecoded(std::string_view(path).substr(of.size()));
      incoming->request.path = std::move(path);
      return &route;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  if (path == "*") allowed = "GET, HEAD, POST";  // "OPTIONS *": the server as a whole
  if (allowed.empty()) {
    Refuse(*incoming, MakeError(404, "not_found", "there is no " + incoming->request.path));
  } else if (incoming->request.method == "OPTIONS") {
    HttpHeaders headers = incoming->headers;
    headers.emplace_back("Allow", allowed + ", OPTIONS");
    http_.Send(incoming->exchange, 204, headers, "");
  } else {
    incoming->headers.emplace_back("Allow", allowed + ", OPTIONS");
    Refuse(*incoming,
           MakeError(405, "method_not_allowed", incoming->request.path + " takes " + allowed));
  }
  return nullptr;
}

bool Server::IsAllowed(const IncomingRequest& incoming, const Route& route) {
  const Access access = CheckAccess(settings_.access, incoming.request, route.needs_key);
  if (access != Access::kAllowed) {
    Refuse(incoming, AccessError(settings_.access, access, incoming.request));
    return false;
  }
  if (route.needs_model && !model_.has_value()) {
    Refuse(incoming, MakeError(503, "loading", "the model is being loaded"));
    return false;
  }
  const bool is_work = std::string_view(route.method) == "POST";
  if (is_work && drain_begin_.has_value()) {
    Refuse(incoming, MakeError(503, "draining", "the server is shutting down"));
    return false;
  }
  if (is_work && !HasJson(incoming.request)) {
    Refuse(incoming, MakeError(415, "unsupported_media_type",
                               "the body must be application/json, not compressed"));
    return false;
  }
  return true;
}

void Server::OnRequest(int64_t exchange, HttpRequest request) {
  IncomingRequest incoming;
  incoming.exchange = exchange;
  incoming.request = std::move(request);
  const std::string* id = incoming.request.Header("x-request-id");
  incoming.id = id != nullptr && IsRequestId(*id) ? *id : id_prefix_ + std::to_string(next_id_++);
  incoming.headers = CorsHeaders(settings_.access, incoming.request);
  incoming.headers.emplace_back("X-Request-Id", incoming.id);
  const Route* route = FindRoute(&incoming);
  if (route == nullptr) return;
  if (!IsAllowed(incoming, *route)) return;
  if (route->form != nullptr) {
    sessions_.Start(exchange, *route->form, std::move(incoming.request), incoming.id,
                    std::move(incoming.headers));
  } else if (route->compute != nullptr) {
    Compute(std::move(incoming), route->compute);
  } else {
    (this->*route->answer)(incoming);
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

void Server::Reply(const IncomingRequest& incoming, int status, const Json& body) {
  ++metrics_.answers[status];
  HttpHeaders headers = JsonHeaders(incoming.headers);
  if (status == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status == 429) headers.emplace_back("Retry-After", std::to_string(metrics_.SecondsToWait()));
  if (status == 503) headers.emplace_back("Retry-After", "1");
  http_.Send(incoming.exchange, status, headers, JsonText(body) + "\n");
}

void Server::Refuse(const IncomingRequest& incoming, const ApiError& error) {
  Reply(incoming, error.status, incoming.error(error));
}

void Server::Models(const IncomingRequest& incoming) {
  Reply(incoming, 200, ModelsJson(*model_));
}

void Server::OneModel(const IncomingRequest& incoming) {
  if (model_->Has(incoming.model)) return Reply(incoming, 200, ModelJson(*model_, incoming.model));
  Refuse(incoming, MakeError(404, "model_not_found", "there is no model " + incoming.model));
}

void Server::Health(const IncomingRequest& incoming) {
  const char* status = drain_begin_.has_value() ? "draining"
                       : model_.has_value()     ? "ok"
                                                : "loading";
  Reply(incoming, status == std::string("ok") ? 200 : 503, {{"status", status}});
}

void Server::Ping(const IncomingRequest& incoming) {
  Reply(incoming, 200, {{"status", "alive"}});
}

void Server::Version(const IncomingRequest& incoming) {
  Reply(incoming, 200, {{"version", Engine::Version()}});
}

void Server::Props(const IncomingRequest& incoming) {
  Reply(incoming, 200, PropsJson(*model_));
}

void Server::TokenizerInfo(const IncomingRequest& incoming) {
  Reply(incoming, 200, TokenizerInfoJson(*model_));
}

void Server::Page(const IncomingRequest& incoming) {
  const PageFile file = PageFileOf(incoming.request.path);
  ++metrics_.answers[200];
  http_.Send(incoming.exchange, 200, file.headers, file.text);
}

void Server::GetMetrics(const IncomingRequest& incoming) {
  metrics_.num_running = sessions_.num_running();
  metrics_.num_waiting = sessions_.num_waiting();
  metrics_.num_connections = http_.num_connections();
  metrics_.num_body_bytes = http_.num_body_bytes();
  metrics_.slow_readers = http_.num_slow_readers();
  metrics_.pixels_decoded = sessions_.num_pixels_decoded();
  const std::string name = model_.has_value() ? model_->names.at(0) : "";
  HttpHeaders headers = incoming.headers;
  headers.emplace_back("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  http_.Send(incoming.exchange, 200, headers, metrics_.Text(settings_.metrics_prefix, name));
}

void Server::Compute(IncomingRequest incoming, Computation compute) {
  const size_t bytes = incoming.request.body.size();
  if (num_computing_ >= sessions_.max_reserved_choices() || !computing_.Take(bytes)) {
    return Refuse(incoming, QueueFull());
  }
  ++num_computing_;
  workers_.Add([this, incoming = std::move(incoming), bytes, compute, model = &*model_]() mutable {
    const std::string body = std::exchange(incoming.request.body, {});
    http_.Post([this, incoming, bytes, answer = ComputeBody(compute, *model, body)] {
      --num_computing_;
      computing_.Return(bytes);
      if (answer.ok()) return Reply(incoming, 200, *answer);
      Refuse(incoming, ErrorOf(answer.status()));
    });
  });
}

void Server::WatchKv(const IncomingRequest& incoming) {
  if (!watchers_.is_open()) {
    return Refuse(incoming, MakeError(404, "not_found", "the KV cache is not watched"));
  }
  ++metrics_.answers[200];
  watchers_.Add(incoming.exchange, incoming.request, incoming.headers);
}

}  // namespace kuiper
