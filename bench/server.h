// A server within this process: the engine and the network each have their own thread, as in the
// real program.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/chat/prompt_template.h"
#include "kuiper/engine/engine.h"
#include "kuiper/server/server.h"

namespace kuiper::tools {

class BenchServer {
 public:
  // Needs the model's tokenizer.
  static StatusOr<std::unique_ptr<BenchServer>> Start(const EngineConfig& config,
                                                      OpenedModel model);
  ~BenchServer();
  BenchServer(const BenchServer&) = delete;

  std::string url() const { return http_->address() + "/v1"; }
  const Engine& engine() const { return *engine_; }  // only while no request runs
  // Calls `f` on the engine's thread, and waits for it.
  void Call(const std::function<void(Engine&)>& f);

 private:
  BenchServer() = default;

  std::unique_ptr<Engine> engine_;
  std::optional<PromptTemplate> template_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Server> server_;
  std::optional<EngineLoop> loop_;
  std::thread network_, engine_thread_;
};

}  // namespace kuiper::tools
