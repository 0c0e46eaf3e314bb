// The public API: limits, ends and failures of requests.
#include "kuiper/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include "test/engine/engine_test_util.h"
#include "test/log_capture.h"

namespace kuiper {
namespace {

EngineConfig Config(const std::string& golden = "qwen3-gqa2-d128-f32") {
  EngineConfig config = GoldenConfig(golden);
  config.max_context = 128;
  return config;
}

Request MakeRequest(int prompt, int new_tokens) {
  Request request;
  for (int i = 0; i < prompt; ++i) request.prompt.push_back(3 + i % 50);
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  return request;
}

TEST(EngineTest, GeneratesExactlyAsManyTokensAsAsked) {
  const auto engine = Engine::Create(Config()).value();
  for (const int n : {1, 2, 17}) {
    const Completion c = engine->Generate(MakeRequest(5, n)).value();
    EXPECT_EQ(static_cast<int>(c.tokens.size()), n);
    EXPECT_EQ(c.finish, FinishReason::kLength);
    EXPECT_EQ(c.prompt_tokens, 5);
  }
  EXPECT_EQ(engine->kv_stats().pages_used, 0);
}

TEST(EngineTest, StopsAtTheContextAndCountsPromptAndAnswer) {
  EngineConfig config = Config();
  config.max_context = 33;
  const auto engine = Engine::Create(config).value();
  const Completion c = engine->Generate(MakeRequest(20, 100)).value();
  EXPECT_EQ(c.tokens.size(), 13u);
  EXPECT_EQ(c.finish, FinishReason::kContext);
  EXPECT_TRUE(c.error.ok());
  EXPECT_EQ(engine->Generate(MakeRequest(32, 100)).value().tokens.size(), 1u);
  EXPECT_EQ(engine->Generate(MakeRequest(33, 1)).status().code(), StatusCode::kContextExceeded);
}

TEST(EngineTest, FullPoolKeepsTheTextAndSaysHowFarItGot) {
  EngineConfig config = Config();
  config.num_blocks = 2;
  const auto engine = Engine::Create(config).value();
  const Completion c = engine->Generate(MakeRequest(20, 100)).value();
  EXPECT_EQ(c.finish, FinishReason::kContext);
  EXPECT_EQ(c.error.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(c.error.message(), "KV cache is full (2/2 blocks, 32 tokens) after 13 tokens");
  EXPECT_EQ(c.tokens.size(), 13u);
  EXPECT_EQ(engine->kv_stats().pages_free, 2);
  EXPECT_EQ(engine->Generate(MakeRequest(33, 1)).status().code(), StatusCode::kResourceExhausted);
}

TEST(EngineTest, EndOfSequenceTokenEndsTheAnswerAndIsCounted) {
  const auto engine = Engine::Create(Config()).value();
  const Completion free_run = engine->Generate(MakeRequest(5, 60)).value();
  // The third token that the model chooses becomes an end-of-sequence token in a copy of the model.
  EngineConfig config = Config();
  const test::TempDir dir;
  CopyWithEos(config.model_path, {free_run.tokens[2]}, dir);
  config.model_path = dir.path();
  const auto stopping = Engine::Create(config).value();
  Request request = MakeRequest(5, 60);
  request.ignore_eos = false;
  const Completion c = stopping->Generate(request).value();
  EXPECT_EQ(c.finish, FinishReason::kStop);
  const auto first = std::find(free_run.tokens.begin(), free_run.tokens.end(), free_run.tokens[2]);
  EXPECT_EQ(c.tokens, std::vector<int32_t>(free_run.tokens.begin(), first + 1));
}

// A chat model may name its end-of-turn token in only one file.
TEST(EngineTest, AnswersEndAtWhatAnyFileNames) {
  struct Files {
    const char *config, *generation, *tokenizer;  // the end token in each file
  };
  constexpr Files kFiles[] = {
      {"[1502]", "[1500]", "<|endoftext|>"},
      {"1500", "[1502, 1500]", "<|endoftext|>"},
      {"1500", "1500", "<|im_end|>"},
      {"1500", "null", "<|im_end|>"},
  };
  for (const Files& files : kFiles) {
    const test::TempDir dir;
    std::filesystem::copy(test::Source("demo/models/tiny-qwen3"), dir.path());
    const auto edit = [&](const char* name, const char* key, const nlohmann::json& value) {
      nlohmann::json json = nlohmann::json::parse(std::ifstream(dir / name));
      json[key] = value;
      std::ofstream(dir / name) << json;
    };
    edit("config.json", "eos_token_id", nlohmann::json::parse(files.config));
    edit("generation_config.json", "eos_token_id", nlohmann::json::parse(files.generation));
    edit("tokenizer_config.json", "eos_token", files.tokenizer);
    EngineConfig config;
    config.model_path = dir.path();
    config.max_context = 256;
    const test::LogCapture log;
    const auto engine = Engine::Create(config).value();
    EXPECT_NE(log.text().find("answers end at <|"), std::string::npos) << log.text();
    EXPECT_NE(log.text().find("<|im_end|> (1502)"), std::string::npos) << log.text();
    EXPECT_NE(log.text().find("<|endoftext|> (1500)"), std::string::npos) << log.text();
    Request request;
    request.prompt = engine->tokenizer()->EncodeWithSpecials(
        "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>"
        "\n\n");
    request.max_new_tokens = 120;
    const Completion answer = engine->Generate(request).value();
    EXPECT_EQ(answer.finish, FinishReason::kStop) << files.config;
    EXPECT_EQ(answer.tokens.back(), 1502);
    // The request overrides this.
    request.ignore_eos = true;
    request.stop_token_ids = {1500};
    request.max_new_tokens = 20;
    EXPECT_EQ(engine->Generate(request).value().finish, FinishReason::kLength);
  }
}

TEST(EngineTest, AbortEndsOneRequestAndLeavesTheOther) {
  EngineConfig config = Config();
  config.max_num_seqs = 2;
  const auto engine = Engine::Create(config).value();
  const int64_t a = engine->Add(MakeRequest(5, 50)).value();
  const int64_t b = engine->Add(MakeRequest(7, 10)).value();
  for (int i = 0; i < 3; ++i) engine->Step();
  engine->Abort(a);
  engine->Abort(a);
  engine->Abort(12345);
  while (engine->HasWork()) engine->Step();
  const Completion aborted = engine->Take(a).value();
  EXPECT_EQ(aborted.finish, FinishReason::kInterrupt);
  EXPECT_EQ(aborted.tokens.size(), 3u);
  EXPECT_EQ(engine->Take(b).value().tokens.size(), 10u);
  EXPECT_EQ(engine->kv_stats().pages_used, 0);
}

TEST(EngineTest, CallbackCanEndTheGeneration) {
  const auto engine = Engine::Create(Config()).value();
  int seen = 0;
  const Completion c =
      engine->Generate(MakeRequest(5, 50), [&](const TokenEvent&) { return ++seen < 4; }).value();
  EXPECT_EQ(c.tokens.size(), 4u);
  EXPECT_EQ(c.finish, FinishReason::kInterrupt);
}

TEST(EngineTest, RefusesBadRequests) {
  const auto engine = Engine::Create(Config()).value();
  auto code = [&](const std::function<void(Request&)>& spoil) {
    Request request = MakeRequest(5, 5);
    spoil(request);
    return engine->Add(request).status().code();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(code([](Request& r) { r.prompt.clear(); }), StatusCode::kInput);
  const auto bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](Request& r) { r.prompt[2] = -1; }), bad);
  EXPECT_EQ(code([](Request& r) { r.prompt[2] = 1 << 30; }), bad);
  EXPECT_EQ(code([](Request& r) { r.max_new_tokens = -1; }), bad);
  EXPECT_EQ(code([](Request& r) { r.num_samples = 0; }), bad);
  EXPECT_EQ(code([](Request& r) { r.num_samples = 1 << 30; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.temperature = -1; }), bad);
  EXPECT_EQ(code([&](Request& r) { r.sampling.temperature = nan; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.top_p = 0; }), bad);
  EXPECT_EQ(code([&](Request& r) { r.sampling.min_p = nan; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.top_k = -3; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.repetition_penalty = 0; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.repetition_penalty = 1e-38f; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.presence_penalty = -3e38f; }), bad);
  EXPECT_EQ(code([&](Request& r) { r.sampling.frequency_penalty = nan; }), bad);
  EXPECT_FALSE(engine->HasWork());
  Request samples = MakeRequest(5, 5);
  samples.num_samples = 2;
  EXPECT_EQ(engine->Generate(samples).status().code(), bad);
}

TEST(EngineTest, RefusesBadConfigurations) {
  auto code = [&](const std::function<void(EngineConfig&)>& spoil) {
    EngineConfig config = Config();
    spoil(config);
    return Engine::Create(config).status().code();
  };
  const auto bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](EngineConfig& c) { c.page_size = 24; }), bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.page_size = 512; }), bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.max_context = 1 << 30; }), bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.max_num_batched_tokens = 0; }), bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.num_blocks = 0; }), bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.ops.num_threads = std::numeric_limits<int>::max(); }),
            bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.prefix_cache_tokens = -1; }), bad);
  EXPECT_EQ(code([](EngineConfig& c) { c.model_path = "/nonexistent"; }), StatusCode::kModel);
  EXPECT_EQ(code([](EngineConfig& c) { c.need_tokenizer = true; }), StatusCode::kTokenizer);
  EXPECT_EQ(code([](EngineConfig& c) {
              c.device = {DeviceType::kCUDA, 0};
            }),
            StatusCode::kUnavailable);
  EXPECT_EQ(code([](EngineConfig& c) { c.memory_utilization = 1e-9; }),
            StatusCode::kResourceExhausted);
}

// A NaN in the weights of layer 1 is reported with the step and the layer, and the pages are freed.
TEST(EngineTest, NonFiniteLogitsNameTheStepAndTheLayer) {
  const test::TempDir dir;
  std::filesystem::copy(Config().model_path, dir.path());
  const std::string file = dir / "model.safetensors";
  std::string bytes = test::ReadFile(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const std::string json = bytes.substr(8, header);
  const size_t entry = json.find("\"model.layers.1.mlp.down_proj.weight\"");
  ASSERT_NE(entry, std::string::npos);
  const std::string key = "\"data_offsets\":[";
  const size_t offset = std::stoul(json.substr(json.find(key, entry) + key.size()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&bytes[8 + header + offset], &nan, sizeof(nan));
  test::WriteFile(file, bytes);

  EngineConfig config = Config();
  config.model_path = dir.path();
  config.prefix_cache = true;
  config.max_num_seqs = 2;
  const std::string message = "model produced NaN at token 0 (layer scan: first bad layer 1)";
  for (const char* format : {"auto", "fp16", "int8", "fp8_e4m3", "fp8_e5m2"}) {
    config.kv_format = KvFormat::FromName(format);
    const bool narrow = config.kv_format == KvFormat::Of(DType::kF16);
    const auto engine = Engine::Create(config).value();
    const Completion c = engine->Generate(MakeRequest(40, 5)).value();
    EXPECT_EQ(c.finish, FinishReason::kError);
    EXPECT_EQ(c.error.message(), message + (narrow ? "; try dtype bf16" : ""));
    EXPECT_TRUE(c.tokens.empty());
    Request search = MakeRequest(40, 5);
    search.beam_width = search.num_samples = 2;
    for (const Completion& beam : RunSamples(*engine, search)) {
      EXPECT_EQ(beam.finish, FinishReason::kError);
      EXPECT_EQ(beam.error.message(), c.error.message());
    }
    EXPECT_EQ(engine->kv_stats().pages_used, 0) << "pages of a failed prompt must not be reused";
  }
}

TEST(EngineTest, LogprobsAreTheLogSoftmaxOfTheLogits) {
  const auto engine = Engine::Create(Config()).value();
  Request request = MakeRequest(9, 4);
  request.keep_logits = true;
  request.num_logprobs = 3;
  const Completion c = engine->Generate(request).value();
  const int vocab = engine->model_config().decoder.vocab;
  ASSERT_EQ(c.logprobs.size(), 4u);
  for (int t = 0; t < 4; ++t) {
    const float* row = &c.logits[static_cast<size_t>(t) * vocab];
    long double sum = 0;
    for (int i = 0; i < vocab; ++i) sum += std::exp(static_cast<long double>(row[i]));
    EXPECT_NEAR(c.logprobs[t].chosen, row[c.tokens[t]] - std::log(sum), 1e-5);
    ASSERT_EQ(c.logprobs[t].top.size(), 3u);
    EXPECT_EQ(c.logprobs[t].top[0].first, c.tokens[t]);  // greedy
    EXPECT_GE(c.logprobs[t].top[0].second, c.logprobs[t].top[1].second);
    EXPECT_GE(c.logprobs[t].top[1].second, c.logprobs[t].top[2].second);
  }
}

TEST(EngineTest, PlanTouchesNoWeightsAndAgreesWithCreate) {
  EngineConfig config = Config();
  const auto plan = Engine::Plan(config, OpenModel(config.model_path).value());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_pages, 8);  // 128 tokens in pages of 16
  const auto engine = Engine::Create(config).value();
  EXPECT_EQ(engine->memory_plan().kv_bytes, plan->kv_bytes);
  EXPECT_EQ(engine->kv_stats().pages_total, 8);
}

// After OpenModel no file is opened by name again: neither weights nor texts.
TEST(EngineTest, OpensTheFilesOnce) {
  const test::TempDir dir;
  EngineConfig config = Config();
  const Completion expected = RunToEnd(*Create(config), MakeRequest(9, 4));
  std::filesystem::create_directory(dir / "model");
  std::filesystem::copy(config.model_path, dir / "model", std::filesystem::copy_options::recursive);
  config.model_path = dir / "model";
  OpenedModel model = OpenModel(config.model_path).value();
  std::filesystem::rename(dir / "model", dir / "elsewhere");
  EXPECT_TRUE(Engine::Plan(config, model).ok());
  const auto engine = Engine::Create(config, std::move(model));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ(RunToEnd(**engine, MakeRequest(9, 4)).tokens, expected.tokens);
}

TEST(EngineTest, DevicesAreThoseThatEnginesRunOn) {
  const std::vector<Device> devices = Engine::Devices();
  EXPECT_EQ(devices.at(0), Device{});
  std::vector<Device> first;  // the first device of each kind
  std::copy_if(devices.begin() + 1, devices.end(), std::back_inserter(first),
               [](Device device) { return device.index == 0; });
  EXPECT_EQ(first, Accelerators());
  for (const Device& device : devices) {
    EXPECT_TRUE(Engine::CheckDevice(device).ok()) << DeviceName(device);
  }
  EXPECT_EQ(Engine::CheckDevice({DeviceType::kCUDA, 1000}).code(), StatusCode::kUnavailable);
}

// Engines created, used and destroyed at the same time give the same results as alone.
TEST(EngineTest, TwoEnginesRunInTwoThreads) {
  std::vector<Device> devices = Accelerators();
  devices.push_back(Device{});
  for (const Device& device : devices) {
    const auto run = [&device](int prompt) {
      EngineConfig config = Config();
      config.device = device;
      config.ops.num_threads = 2;
      Request request = MakeRequest(prompt, 5);
      request.keep_logits = true;
      const auto engine = Create(config);
      return engine == nullptr ? Completion() : RunToEnd(*engine, request);
    };
    Completion together[2];
    std::thread other([&] { together[1] = run(2); });
    together[0] = run(17);
    other.join();
    ExpectSameBits(together[0], run(17), DeviceName(device));
    ExpectSameBits(together[1], run(2), DeviceName(device) + ", the other");
  }
}

// Between two calls an Engine may pass from one thread to another.
TEST(EngineTest, EachStepMayComeFromAThreadOfItsOwn) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest(9, 5);
  request.keep_logits = true;
  const Completion expected = RunToEnd(*engine, request);
  const int64_t id = engine->Add(request).value();
  while (engine->HasWork()) std::thread([&] { engine->Step(); }).join();
  ExpectSameBits(engine->Take(id).value(), expected, "a thread for each step");
}

TEST(EngineTest, SeedsGiveTheSameDrawAgainAndOtherSeedsOthers) {
  const auto engine = Engine::Create(Config()).value();
  Request request = MakeRequest(9, 30);
  request.sampling.temperature = 1.f;
  request.sampling.seed = 1;
  const auto a = engine->Generate(request).value().tokens;
  EXPECT_EQ(engine->Generate(request).value().tokens, a);
  request.sampling.seed = 2;
  EXPECT_NE(engine->Generate(request).value().tokens, a);
}

}  // namespace
}  // namespace kuiper
