#include "bench/server.h"

#include <future>
#include <utility>

namespace kuiper::tools {
namespace {

constexpr int kMaxQueue = 1 << 20;  // requests of a load wait instead of being refused

ServedModel ModelOf(const Engine& engine, const PromptTemplate& chat_template) {
  ServedModel model;
  model.names = {"model"};
  model.tokenizer = engine.tokenizer();
  model.chat.chat_template = &chat_template;
  model.config = engine.config();
  model.config.on_kv_event = {};
  model.max_context = engine.config().max_context;
  model.max_choices = engine.config().max_num_seqs;
  model.device = engine.device_description();
  return model;
}

}  // namespace

StatusOr<std::unique_ptr<BenchServer>> BenchServer::Start(const EngineConfig& config,
                                                          OpenedModel model) {
  std::unique_ptr<BenchServer> bench(new BenchServer);
  KU_ASSIGN_OR_RETURN(bench->engine_, Engine::Create(config, std::move(model)));
  KU_ASSIGN_OR_RETURN(bench->template_, PromptTemplate::Of(*bench->engine_));
  ServerSettings settings;
  settings.max_queue = kMaxQueue;
  settings.max_queue_bytes = settings.http.max_body_memory = SIZE_MAX;
  std::vector<std::string> warnings;
  KU_ASSIGN_OR_RETURN(bench->http_, HttpServer::Listen(settings.http, &warnings));
  for (const std::string& warning : warnings) std::fprintf(stderr, "note: %s\n", warning.c_str());
  bench->server_ = std::make_unique<Server>(*bench->http_, settings);
  Server& server = *bench->server_;
  EngineLoop& loop =
      bench->loop_.emplace(*bench->engine_, server.deliver(), settings.release_after);
  bench->network_ = std::thread([&server] { server.Run(); });
  bench->engine_thread_ = std::thread([&loop] { loop.Run(); });

  server.Open(ModelOf(*bench->engine_, *bench->template_), loop, nullptr);
  return bench;
}

BenchServer::~BenchServer() {
  if (!network_.joinable()) return;  // the server did not start
  http_->Stop();
  network_.join();
  loop_->Stop();
  engine_thread_.join();
}

void BenchServer::Call(const std::function<void(Engine&)>& f) {
  std::promise<void> done;
  loop_->Call([&](Engine& engine) {
    f(engine);
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace kuiper::tools
