// kuiper_server: this thread runs the engine; another thread runs the network, starting before the
// model is loaded.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "demo/tasks.h"
#include "kuiper/base/atomic_file.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/report/number_text.h"
#include "kuiper/server/server.h"

namespace kuiper::demo {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

StatusOr<ServerSettings> SettingsOf(const Options& options) {
  const ServeFlags& flags = options.serve;
  ServerSettings settings;
  settings.http.host = flags.host;
  settings.http.port = flags.port;
  settings.http.unix_socket = flags.unix_socket;
  settings.http.max_connections = flags.max_connections;
  settings.http.limits.max_body = flags.max_body;
  settings.max_queue = flags.max_queue;
  settings.max_queue_bytes = settings.http.max_body_memory = flags.max_queue_memory;
  settings.max_picture_bytes = flags.max_picture_memory;
  settings.max_request_pixels = int64_t{flags.max_request_megapixels} << 20;
  settings.max_decoding_pixels = int64_t{flags.max_decoding_megapixels} << 20;
  settings.request_timeout = Milliseconds(flags.request_timeout);
  settings.drain_timeout = Milliseconds(flags.drain_timeout);
  settings.release_after = Milliseconds(flags.release_after);
  settings.metrics_prefix = flags.metrics_prefix;
  settings.reasoning_field = flags.reasoning_field;
  settings.memory_tokens = static_cast<size_t>(flags.answer_memory);
  settings.service = ServiceOfEnvironment();
  AccessRules& access = settings.access;
  access.cors_origin = flags.cors_origin;
  access.spell = FlagName;
  // Protects a loopback server from DNS rebinding: a web page can reach the loopback by any name
  // that resolves to it. It cannot reach other addresses of this machine that it does not know.
  access.check_host = flags.unix_socket.empty() && IsLoopback(flags.host);
  const char* key = std::getenv("KUIPER_API_KEY");
  if (!flags.api_key_file.empty()) {
    KU_ASSIGN_OR_RETURN(access.api_keys, ReadApiKeys(flags.api_key_file));
  } else if (key != nullptr && *key != '\0') {
    access.api_keys = {key};
  }
  return settings;
}

// Returns null if no events of the prefix cache were requested.
StatusOr<std::unique_ptr<KvPublisher>> PublisherOf(const Options& options) {
  const KvPublisherSettings& settings = options.serve.kv_events;
  if (settings.endpoint.empty()) {
    if (settings.replay_endpoint.empty()) return std::unique_ptr<KvPublisher>();
    return Status(StatusCode::kInvalidArgument,
                  Param("kv_events_replay_endpoint") + " needs " + Param("kv_events_endpoint"));
  }
  if (options.engine.paged && options.engine.prefix_cache) return StartKvPublisher(settings);
  return Status(StatusCode::kInvalidArgument,
                Param("kv_events_endpoint") + " needs paging and the prefix cache");
}

// Returns the facts that are known before the model is loaded.
ServedModel ModelOf(const ProgramRun& run) {
  const Options& options = run.options;
  ServedModel model;
  model.names = options.serve.names;
  if (model.names.empty()) model.names = {ModelName(options.engine.model_path)};
  model.fingerprint = Fingerprint(run);
  model.created = std::time(nullptr);
  model.chat = ChatTemplateOf(run, {});
  model.chat.pictures = nullptr;
  if (run.pictures != nullptr) model.pictures = *run.pictures;
  model.defaults = options.request;
  model.max_output_tokens = options.serve.max_output_tokens;
  return model;
}

void Complete(const Engine& engine, int max_queue, ServedModel* model) {
  model->tokenizer = engine.tokenizer();
  model->config = engine.config();
  model->config.on_kv_event = {};
  model->config.on_prefix_event = {};
  model->config.on_encoding = {};
  model->config.progress = {};
  model->max_context = engine.config().max_context;
  model->max_choices = engine.config().max_num_seqs + max_queue;
  model->device = engine.device_description();
}

// The network thread; it ends with the scope.
class NetworkThread {
 public:
  NetworkThread(HttpServer& http, Server& server)
      : http_(http), thread_([&server] { server.Run(); }) {}
  ~NetworkThread() {
    http_.Stop();
    thread_.join();
  }
  NetworkThread(const NetworkThread&) = delete;

 private:
  HttpServer& http_;
  std::thread thread_;
};

}  // namespace

StatusOr<int> RunServe(ProgramRun& run) {
  const ServeFlags& flags = run.options.serve;
  const InterruptScope interrupt;
  KU_ASSIGN_OR_RETURN(ServerSettings settings, SettingsOf(run.options));
  settings.should_end = [&] {  // polled until it returns true
    if (!interrupt.interrupted()) return false;
    run.console.Info(Format("draining: answers have %g s to end; a second signal ends them",
                            flags.drain_timeout));
    return true;
  };
  std::vector<std::string> warnings;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> http,
                      HttpServer::Listen(settings.http, &warnings));
  for (const std::string& warning : warnings) run.console.Warning(warning);
  if (settings.access.api_keys.empty() && !settings.access.check_host &&
      settings.http.unix_socket.empty()) {
    run.console.Warning("any client that reaches " + flags.host +
                        " may send requests; --api-key-file requires a key");
  }
  ServedModel model = ModelOf(run);
  PageWatch view;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<KvPublisher> events, PublisherOf(run.options));
  std::unique_ptr<Engine> engine;
  std::optional<EngineLoop> loop;
  Server server(*http, settings);
  const NetworkThread network(*http, server);
  run.console.Info("listening on " + http->address());
  if (!flags.port_file.empty()) {
    const std::string port = std::to_string(http->port()) + "\n";
    AtomicFile file(flags.port_file);
    file.Write(port.data(), port.size());
    KU_RETURN_IF_ERROR(file.Commit());
  }
  EngineConfig config = run.options.engine;
  config.on_kv_event = view.observer();
  if (events != nullptr) config.on_prefix_event = events->observer();
  config.on_encoding = [&loop](int64_t request, double) { return loop->IsWanted(request); };
  config.progress = [&server](size_t done, size_t total) {
    if (total > 0) server.Loading(static_cast<double>(done) / static_cast<double>(total));
  };
  KU_ASSIGN_OR_RETURN(engine, LoadEngine(run, config));
  view.Begin(engine->kv_stats());
  Complete(*engine, flags.max_queue, &model);
  const auto deliver = [&engine, told = server.deliver()](EngineUpdate news) {
    const bool has_ended =
        std::any_of(news.events.begin(), news.events.end(),
                    [](const AnswerEvent& event) { return event.completion.has_value(); });
    if (has_ended) EndIfFilesChanged(*engine);
    told(std::move(news));
  };
  loop.emplace(*engine, deliver, settings.release_after);
  server.Open(std::move(model), *loop, engine->config().paged ? &view : nullptr);
  run.console.Info(flags.unix_socket.empty() ? "ready: browsers find a page at " + http->address()
                                             : "ready");
  loop->Run();
  run.console.Info("drained");
  return kExitOk;
}

}  // namespace kuiper::demo
