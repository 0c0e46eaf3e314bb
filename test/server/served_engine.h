// A complete server with the bundled model, in the process of the test. The network and the engine
// each have a thread, as in the program.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "kuiper/chat/picture_reader.h"
#include "kuiper/chat/prompt_template.h"
#include "kuiper/engine/picture_config.h"
#include "kuiper/server/server.h"
#include "test/server/http_client.h"
#include "test/test_data.h"

namespace kuiper::test {

// Returns nothing for a model that takes only text.
inline std::optional<PictureReader> PicturesOf(const std::string& model_path) {
  const auto model = OpenModel(model_path);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok() || !model->config.vision.has_value()) return std::nullopt;
  const auto processor = ImageProcessor::Create(ReadVisionConfig(*model).value(), {});
  EXPECT_TRUE(processor.ok()) << processor.status().message();
  return PictureReader(*processor, *model->config.vision_tokens);
}

class ServedEngine {
 public:
  using Json = nlohmann::json;
  using Answer = RawClient::Answer;

  explicit ServedEngine(EngineConfig config = {}, ServerSettings settings = {}, bool opens = true) {
    if (config.model_path.empty()) config.model_path = Source("demo/models/tiny-qwen3");
    config.page_size = 4;
    if (config.max_num_seqs == 1) config.max_num_seqs = 4;
    config.prefix_cache = true;
    config.prompt_rows = 5;
    config.on_kv_event = view_.observer();
    if (!config.on_encoding) {
      config.on_encoding = [this](int64_t request, double) { return IsWanted(request); };
    }
    pictures_ = PicturesOf(config.model_path);
    if (pictures_.has_value()) config.image_max_tokens = pictures_->processor().max_image_tokens();
    auto engine = Engine::Create(config);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    view_.Begin(engine_->kv_stats());
    template_ = PromptTemplate::Make(*Engine::ReadTemplate(config)).value();
    std::vector<std::string> warnings;
    auto http = HttpServer::Listen(settings.http, &warnings);
    http_ = std::move(*http);
    server_ = std::make_unique<Server>(*http_, settings);
    loop_.emplace(*engine_, server_->deliver(), settings.release_after);
    network_ = std::thread([this] { server_->Run(); });
    engine_thread_ = std::thread([this] { loop_->Run(); });
    if (opens) Open(settings);
  }
  ~ServedEngine() {
    http_->Stop();
    network_.join();
    loop_->Stop();
    engine_thread_.join();
    server_.reset();
  }

  void Open(const ServerSettings& settings = {}) {
    ServedModel model;
    model.names = {"tiny"};
    model.tokenizer = engine_->tokenizer();
    model.chat.chat_template = &*template_;
    model.pictures = pictures_;
    model.config = engine_->config();
    model.max_context = engine_->config().max_context;
    model.max_choices = engine_->config().max_num_seqs + settings.max_queue;
    server_->Open(std::move(model), *loop_, &view_);
    Ask("GET", "/health");
  }

  Server& server() { return *server_; }
  // Call on the engine thread.
  bool IsWanted(int64_t request) { return loop_->IsWanted(request); }
  int port() const { return http_->port(); }
  Answer Ask(const std::string& method, const std::string& path, const std::string& body = "",
             const std::string& headers = "") {
    RawClient client(port());
    return client.Ask(method, path, body, headers);
  }
  Answer Chat(const Json& fields) {
    return Ask("POST", "/v1/chat/completions", ChatBody(fields).dump());
  }
  // The response to a body, and the events of the same body's stream.
  struct BothWays {
    Json whole;
    std::vector<Json> events;
  };
  BothWays AskBothWays(const std::string& path, Json body) {
    const Answer whole = Ask("POST", path, body.dump());
    EXPECT_EQ(whole.status, 200) << whole.body;
    body["stream"] = true;
    const Answer stream = Ask("POST", path, body.dump());
    EXPECT_EQ(stream.status, 200) << stream.body;
    return {Json::parse(whole.body), Events(stream.body)};
  }
  // Returns a chat whose answer continues until it is stopped.
  static Json EndlessBody(const Json& fields = Json::object()) {
    Json body = ChatBody({{"ignore_eos", true}, {"max_tokens", 1000000}});
    body.update(fields);
    return body;
  }
  // Returns a greedy chat without thinking, plus `fields`.
  static Json ChatBody(const Json& fields) {
    Json body = {{"model", "tiny"},
                 {"messages", {{{"role", "user"}, {"content", "What is 2 + 3?"}}}},
                 {"temperature", 0},
                 {"max_tokens", 24},
                 {"chat_template_kwargs", {{"enable_thinking", false}}}};
    if (fields.is_object()) body.update(fields);
    return body;
  }
  // Returns the objects of a stream; the last one is the text "[DONE]".
  static std::vector<Json> Events(const std::string& body) {
    std::vector<Json> events;
    for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
      const size_t end = body.find("\n\n", at);
      const std::string data = body.substr(at + 6, end - at - 6);
      events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data, nullptr, false));
      EXPECT_FALSE(events.back().is_discarded()) << data;
      at = end;
    }
    return events;
  }
  // Calls `f` with the engine on the engine thread.
  template <typename F>
  auto Call(const F& f) {
    std::atomic<bool> done = false;
    decltype(f(*engine_)) result{};
    loop_->Call([&](Engine& engine) {
      result = f(engine);
      done = true;
    });
    EXPECT_TRUE(Eventually([&] { return done.load(); }));
    return result;
  }
  // Blocks the engine thread until the returned object is destroyed.
  std::shared_ptr<void> Hold() {
    auto gone = std::make_shared<std::promise<void>>();
    loop_->Call([wait = gone->get_future().share()](Engine&) { wait.wait(); });
    return {nullptr, [gone](void*) { gone->set_value(); }};
  }
  // Returns the pages that requests use, without those only in the prefix cache.
  int PagesHeld() {
    return Call([](Engine& engine) {
      const KvStats kv = engine.kv_stats();
      return kv.pages_used - kv.pages_evictable;
    });
  }
  double Metric(const std::string& sample) {
    const std::string text = Ask("GET", "/metrics").body;
    const size_t at = text.find("\n" + sample + " ");
    EXPECT_NE(at, std::string::npos) << sample << " in\n" << text;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + sample.size() + 2));
  }

 private:
  PageWatch view_;
  std::unique_ptr<Engine> engine_;
  std::optional<PromptTemplate> template_;
  std::optional<PictureReader> pictures_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Server> server_;
  std::optional<EngineLoop> loop_;
  std::thread network_, engine_thread_;
};

}  // namespace kuiper::test
