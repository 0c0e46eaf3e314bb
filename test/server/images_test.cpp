// Images in bodies of all three API formats, with the bundled vision model.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>

#include "kuiper/chat/conversation.h"
#include "kuiper/server/contiguous_runs.h"
#include "test/server/base64.h"
#include "test/server/joined_stream.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::Base64;
using test::Join;
using test::PicturesOf;
using test::ServedEngine;
using test::Source;
using test::Whole;

constexpr char kModel[] = "demo/models/tiny-qwen3-vl";
constexpr char kQuestion[] = "What color is it?";

std::string Sample(const std::string& name) {
  return Source(std::string(kModel) + "/samples/" + name);
}

std::string SampleInBase64(const std::string& name) {
  std::ifstream file(Sample(name), std::ios::binary);
  return Base64(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::string SampleUrl(const std::string& name) {
  return "data:image/png;base64," + SampleInBase64(name);
}

EngineConfig SeeingConfig(int max_context = 512) {
  EngineConfig config;
  config.model_path = Source(kModel);
  config.max_context = max_context;
  return config;
}

Json ImagePart(const std::string& url) {
  return {{"type", "image_url"}, {"image_url", {{"url", url}, {"detail", "auto"}}}};
}

Json Question(const std::string& url) {
  return {{"role", "user"}, {"content", {ImagePart(url), {{"type", "text"}, {"text", kQuestion}}}}};
}

Json BodyOf(const Json& messages) {
  return {
      {"messages", messages}, {"temperature", 0}, {"max_tokens", 12}, {"return_token_ids", true}};
}

std::unique_ptr<Engine> SeeingEngine() {
  EngineConfig config = SeeingConfig();
  config.image_max_tokens = PicturesOf(config.model_path)->processor().max_image_tokens();
  return Engine::Create(config).value();
}

// Returns the request for a question about an image, as the server submits it.
Request RequestOf(const Engine& engine, const std::string& image) {
  std::optional<PictureReader> pictures = PicturesOf(engine.config().model_path);
  const PromptTemplate own = PromptTemplate::Of(engine).value();
  Conversation conversation;
  conversation.AddUser(kQuestion, {{.kind = ContentPart::Kind::kImage, .text = Sample(image)}});
  EXPECT_TRUE(conversation.ReadPictures("", &*pictures).ok());
  TemplateOptions options;
  options.chat_template = &own;
  options.pictures = &*pictures;
  auto prompt = BuildPrompt(*engine.tokenizer(), options, {}, &conversation);
  Request parameters;
  parameters.max_new_tokens = 12;
  parameters.sampling.temperature = 0;
  return MakeRequest(std::move(*prompt), parameters);
}

// Returns the engine's answer without a server.
Completion EngineAnswer(const std::string& image) {
  const std::unique_ptr<Engine> engine = SeeingEngine();
  return engine->Generate(RequestOf(*engine, image)).value();
}

TEST(ServerImages, AnswersAreThoseOfTheEngineInEveryForm) {
  ServedEngine served(SeeingConfig());
  const Json model = Json::parse(served.Ask("GET", "/v1/models").body)["data"][0];
  EXPECT_EQ(model["architecture"]["input_modalities"], Json::array({"text", "image"}));
  for (const std::string name : {"circle.png", "triangle.png"}) {
    const Completion expected = EngineAnswer(name);
    ASSERT_FALSE(expected.text.empty());
    Json body = BodyOf(Json::array({Question(SampleUrl(name))}));
    const auto whole = served.Ask("POST", "/v1/chat/completions", body.dump());
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json answer = Json::parse(whole.body), choice = answer["choices"][0];
    EXPECT_EQ(choice["token_ids"], Json(expected.tokens));
    EXPECT_EQ(choice["message"]["content"], expected.text);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], expected.prompt_tokens);
    EXPECT_GE(answer["usage"]["prompt_tokens_details"]["image_tokens"], 9);
    body["stream"] = true;
    const Whole joined = Join(served.Ask("POST", "/v1/chat/completions", body.dump()).body);
    EXPECT_EQ(joined.ids, expected.tokens);
    EXPECT_EQ(joined.text, expected.text);

    const Json source = {
        {"type", "base64"}, {"media_type", "image/png"}, {"data", SampleInBase64(name)}};
    const Json blocks = {{{"type", "image"}, {"source", source}},
                         {{"type", "text"}, {"text", kQuestion}}};
    Json messages = BodyOf(Json::array({{{"role", "user"}, {"content", blocks}}}));
    messages.erase("return_token_ids");
    const Json message = Json::parse(served.Ask("POST", "/v1/messages", messages.dump()).body);
    ASSERT_EQ(message["type"], "message") << message;
    EXPECT_EQ(message["content"][0]["text"], expected.text);
    messages.erase("max_tokens");
    const auto count = served.Ask("POST", "/v1/messages/count_tokens", messages.dump());
    EXPECT_EQ(Json::parse(count.body)["input_tokens"], expected.prompt_tokens) << count.body;

    const Json parts = {{{"type", "input_image"}, {"image_url", SampleUrl(name)}},
                        {{"type", "input_text"}, {"text", kQuestion}}};
    const Json ask = {{"input", Json::array({{{"role", "user"}, {"content", parts}}})},
                      {"temperature", 0},
                      {"max_output_tokens", 12}};
    const Json response = Json::parse(served.Ask("POST", "/v1/responses", ask.dump()).body);
    ASSERT_EQ(response["object"], "response") << response;
    EXPECT_EQ(response["output"][0]["content"][0]["text"], expected.text);
  }
  const Json props = Json::parse(served.Ask("GET", "/props").body);
  EXPECT_EQ(props["modalities"]["vision"], true);
}

TEST(ServerImages, AnotherTurnReusesThePicture) {
  ServedEngine served(SeeingConfig());
  Json messages = Json::array({Question(SampleUrl("two.png"))});
  const auto ask = [&] {
    return Json::parse(served.Ask("POST", "/chat/completions", BodyOf(messages).dump()).body);
  };
  const Json first = ask();
  messages.push_back(first["choices"][0]["message"]);
  messages.push_back({{"role", "user"}, {"content", "And what else?"}});
  const Json usage = ask()["usage"];
  const int known = first["usage"]["total_tokens"];
  EXPECT_GE(usage["prompt_tokens_details"]["cached_tokens"], known - 1 - 4) << "of pages of 4";
  // Another image in the same position must not match this one.
  messages[0] = Question(SampleUrl("circle.png"));
  EXPECT_LT(ask()["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
}

TEST(ServerImages, WhatIsNotInTheBodyIsNotRead) {
  ServedEngine served(SeeingConfig(128));
  const std::string png = SampleUrl("circle.png");
  const auto refused = [&](const Json& content, const std::string& code, const std::string& why) {
    const Json messages = Json::array({{{"role", "user"}, {"content", content}}});
    const auto answer = served.Ask("POST", "/v1/chat/completions", BodyOf(messages).dump());
    EXPECT_EQ(answer.status, 400) << content;
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["code"], code) << error;
    const bool is_of_parts = code != "context_length_exceeded";
    EXPECT_EQ(error["param"], is_of_parts ? Json("messages") : Json()) << error;
    EXPECT_NE(error["message"].get<std::string>().find(why), std::string::npos) << error;
  };
  refused(Json::array({ImagePart("http://127.0.0.1/x.png")}), "invalid_value",
          "part 0 is not a data: URL");
  refused(Json::array({ImagePart("file:///etc/passwd")}), "invalid_value", "is not a data: URL");
  refused(Json::array({ImagePart(Sample("circle.png"))}), "invalid_value", "is not a data: URL");
  refused(Json::array({ImagePart("")}), "invalid_value", "is not a data: URL");
  refused(Json::array({{{"type", "video"}, {"video", "/tmp"}}}), "unsupported", "is a video");
  refused(Json::array({ImagePart("data:image/png;base64,AAAA")}), "invalid_value",
          "message 0, part 0");
  refused(Json::array({ImagePart(png.substr(0, png.size() / 8 * 4))}), "invalid_value",
          "message 0, part 0");
  refused(Json::array({ImagePart("data:text/plain;base64,AAAA")}), "invalid_value",
          "is not a decodable image");
  Json many = Json::array();
  for (int i = 0; i < 20; ++i) many.push_back(ImagePart(png));
  refused(many, "context_length_exceeded", "maximum context length is 128 tokens");
  // The other API formats refuse such an image too, and the server continues to work.
  const Json url = {{"type", "image"},
                    {"source", {{"type", "url"}, {"url", "http://127.0.0.1/x.png"}}}};
  const Json body = {
      {"max_tokens", 3},
      {"messages", Json::array({{{"role", "user"}, {"content", Json::array({url})}}})}};
  EXPECT_EQ(served.Ask("POST", "/v1/messages", body.dump()).status, 400);
  const auto good =
      served.Ask("POST", "/v1/chat/completions", BodyOf(Json::array({Question(png)})).dump());
  EXPECT_EQ(good.status, 200) << good.body;
  EXPECT_EQ(served.PagesHeld(), 0);
}

TEST(ServerImages, UrlsAreTakenAsBrowsersTakeThem) {
  ServedEngine served(SeeingConfig());
  std::string base64 = SampleInBase64("circle.png");
  const auto ids = [&](const std::string& url) {
    const auto answer =
        served.Ask("POST", "/chat/completions", BodyOf(Json::array({Question(url)})).dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["choices"][0]["token_ids"];
  };
  const Json expected = ids("data:image/png;base64," + base64);
  EXPECT_EQ(ids("data:application/octet-stream;base64," + base64), expected);
  EXPECT_EQ(ids("DATA:;base64," + base64), expected);
  base64.insert(76, "\r\n");
  while (base64.ends_with('=')) base64.pop_back();
  EXPECT_EQ(ids("data:image/jpeg;charset=utf-8;base64," + base64), expected);
}

TEST(ServerImages, PixelsOfWaitingRequestsAreLimited) {
  ServerSettings settings;
  settings.max_picture_bytes = 1;  // a request is served anyway if it is the only one
  ServedEngine served(SeeingConfig(), settings);
  const std::string body = BodyOf(Json::array({Question(SampleUrl("circle.png"))})).dump();
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n";
  const std::shared_ptr<void> engine_stands_still = served.Hold();
  test::RawClient first(served.port()), second(served.port());
  first.Send(head + body);
  second.Send(head + body);
  // One request is refused while the other waits for the engine.
  EXPECT_TRUE(test::Eventually([&] {
    return served.Ask("GET", "/metrics").body.find("status=\"429\"} 1\n") != std::string::npos;
  }));
  EXPECT_EQ(served.Chat({{"messages", Json::array({Question(SampleUrl("circle.png"))})}}).status,
            429);
}

// The client leaves between two layers of the vision encoder. A later request must not find its
// partial result.
TEST(ServerImages, WhoLeavesEndsTheEncodingOfItsPicture) {
  const Completion expected = EngineAnswer("circle.png");
  std::atomic<bool> is_encoding = false;
  std::optional<ServedEngine> served;
  EngineConfig config = SeeingConfig();
  config.on_encoding = [&](int64_t request, double) {
    const bool is_first = !is_encoding.exchange(true);
    if (is_first) test::Eventually([&] { return !served->IsWanted(request); });
    return served->IsWanted(request);
  };
  served.emplace(config);
  const std::string body = BodyOf(Json::array({Question(SampleUrl("circle.png"))})).dump();
  {
    test::RawClient client(served->port());
    client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_TRUE(test::Eventually([&] { return is_encoding.load(); }));
  }
  const auto num_encoded = [&] {
    return served->Call([](Engine& engine) { return engine.run_facts().pictures_encoded; });
  };
  EXPECT_EQ(num_encoded(), 0);
  EXPECT_EQ(served->Call([](Engine& engine) { return engine.kv_stats().pages_used; }), 0);
  EXPECT_FALSE(served->Call([](Engine& engine) { return engine.HasWork(); }));
  const Json again = Json::parse(served->Ask("POST", "/v1/chat/completions", body).body);
  EXPECT_EQ(again["choices"][0]["token_ids"], Json(expected.tokens)) << again;
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(num_encoded(), 1);
}

// The same holds for a run without pages, which has its own engine.
TEST(ServerImages, WhoLeavesEndsTheEncodingOfAContiguousRun) {
  const std::unique_ptr<Engine> engine = SeeingEngine();
  for (const bool leaves : {false, true}) {
    std::vector<int64_t> asked;
    ContiguousRuns runs(*engine, [&](int64_t ticket) {
      asked.push_back(ticket);
      return !leaves || asked.size() < 2;
    });
    runs.Add(7, 0, RequestOf(*engine, "circle.png"));
    std::vector<AnswerEvent> events;
    while (!runs.empty()) runs.Step(&events);
    ASSERT_TRUE(events.back().completion.has_value());
    const FinishReason finish = events.back().completion->finish;
    EXPECT_EQ(finish == FinishReason::kInterrupt, leaves);
    EXPECT_EQ(asked.size() == 2, leaves);
    EXPECT_EQ(asked[0], 7);
  }
}

}  // namespace
}  // namespace kuiper
