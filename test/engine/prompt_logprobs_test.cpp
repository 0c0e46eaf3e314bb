// Log probabilities of prompts: compared with transformers in FP64
// (test/data/prompt_logprobs.json); the same bits however the prompt is split, cached, shared or
// preempted.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;

constexpr int kPage = 8;

EngineConfig Config() {
  EngineConfig config = GoldenConfig();
  config.ops.num_threads = 1;
  config.page_size = kPage;
  config.max_num_seqs = 4;
  config.prompt_rows = 64;
  return config;
}

Request Scored(std::vector<int32_t> prompt, int new_tokens = 0, int num_top = 3) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = new_tokens;
  request.num_prompt_logprobs = num_top;
  request.ignore_eos = true;
  return request;
}

void ExpectSame(const Completion& a, const Completion& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << what;
  for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    const TokenLogprobs &x = a.prompt_logprobs[i], &y = b.prompt_logprobs[i];
    ASSERT_EQ(x.chosen, y.chosen) << what << ", token " << i + 1;
    ASSERT_EQ(x.rank, y.rank) << what << ", token " << i + 1;
    ASSERT_EQ(x.top, y.top) << what << ", token " << i + 1;
  }
}

// Logits have a standard deviation of 2.6 and are good to 1e-5.
TEST(PromptLogprobsTest, AreThoseOfTransformers) {
  std::ifstream file(test::Source("test/data/prompt_logprobs.json"));
  const Json data = Json::parse(file);
  double worst = 0;
  int num_rows = 0;
  for (const Json& c : data.at("cases")) {
    EngineConfig config = Config();
    config.model_path = test::Source(c.at("model"));
    config.dtype = DType::kF32;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    const auto prompt = c.at("prompt").get<std::vector<int32_t>>();
    const Completion found = RunToEnd(*engine, Scored(prompt));
    EXPECT_EQ(found.finish, FinishReason::kLength);
    EXPECT_TRUE(found.tokens.empty());
    ASSERT_EQ(found.prompt_logprobs.size(), c.at("rows").size());
    for (size_t i = 0; i < found.prompt_logprobs.size(); ++i, ++num_rows) {
      const TokenLogprobs& row = found.prompt_logprobs[i];
      const Json& expected = c.at("rows")[i];
      worst = std::max(worst, std::abs(row.chosen - expected.at("logprob").get<double>()));
      EXPECT_EQ(row.rank, expected.at("rank")) << "token " << i + 1;
      ASSERT_EQ(row.top.size(), 3u);
      for (int k = 0; k < 3; ++k) {
        EXPECT_EQ(row.top[k].first, expected.at("top")[k][0]) << "token " << i + 1;
        worst =
            std::max(worst, std::abs(row.top[k].second - expected.at("top")[k][1].get<double>()));
      }
    }
  }
  EXPECT_GT(num_rows, 200);
  EXPECT_LE(worst, 1e-4);
}

class PromptLogprobsDevicesTest : public ::testing::TestWithParam<Device> {};

// The number of logits rows per step decides how the prompt is split; the bits are those of one
// piece.
TEST_P(PromptLogprobsDevicesTest, ChunksPagesAndCachesChangeNoBit) {
  EngineConfig config = Config();
  config.device = GetParam();
  const auto whole = Create(config);
  ASSERT_NE(whole, nullptr);
  const bool is_cpu = GetParam().type == DeviceType::kCPU;
  for (const int rows : is_cpu ? std::vector<int>{1, 7, 8, 9, 30} : std::vector<int>{7}) {
    for (const bool paged : {true, false}) {
      config.prompt_rows = rows;
      config.paged = config.prefix_cache = paged;
      config.max_num_batched_tokens = rows == 9 ? 9 : 512;
      const auto cut = Create(config);
      ASSERT_NE(cut, nullptr);
      for (const int length : {1, kPage - 1, kPage, kPage + 1, 3 * kPage + 1}) {
        const std::string what = std::to_string(rows) + " rows, prompt " + std::to_string(length);
        const Request request = Scored(Prompt(length, Vocab(*whole), length), 5);
        const Completion expected = RunToEnd(*whole, request);
        EXPECT_EQ(expected.prompt_logprobs.size(), request.prompt.size() - 1) << what;
        ExpectSame(RunToEnd(*cut, request), expected, what);
        const Completion again = RunToEnd(*cut, request);
        ExpectSame(again, expected, what + ", again");
        EXPECT_EQ(again.cached_tokens, 0) << "rows that are not computed have no logits";
        Request plain = request;
        plain.num_prompt_logprobs.reset();
        const Completion unscored = RunToEnd(*cut, plain);
        EXPECT_EQ(unscored.tokens, expected.tokens) << what;
        EXPECT_TRUE(unscored.prompt_logprobs.empty());
        EXPECT_EQ(unscored.cached_tokens, paged ? (length - 1) / kPage * kPage : 0) << what;
      }
    }
  }
}

TEST_P(PromptLogprobsDevicesTest, ManyAtOnceEqualEachAlone) {
  EngineConfig config = Config();
  config.device = GetParam();
  const auto alone = Create(config);
  config.prompt_rows = 5;
  config.run_ahead = true;
  config.use_graph = true;
  const auto together = Create(config);
  ASSERT_TRUE(alone != nullptr && together != nullptr);
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(Scored(Prompt(3 + 5 * i, Vocab(*alone), i), i % 3 * 4, i % 4));
    if (i == 2) requests[i].num_prompt_logprobs.reset();
  }
  const std::vector<Completion> found = RunTogether(*together, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(found[i], RunToEnd(*alone, requests[i]), "request " + std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PromptLogprobsDevicesTest,
                         ::testing::ValuesIn(CpuAndAccelerators()), NameOfDevice);

TEST(PromptLogprobsTest, EachSampleHasThem) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  for (const int new_tokens : {0, 3}) {
    Request request = Scored(Prompt(19, Vocab(*engine)), new_tokens);
    const Completion alone = RunToEnd(*engine, request);
    EXPECT_EQ(alone.prompt_logprobs.size(), 18u);
    request.num_samples = 3;
    const int64_t id = engine->Add(request).value();
    int told = 0;
    while (engine->HasWork()) {
      for (const TokenEvent& event : engine->Step()) told += !event.prompt_logprobs.empty();
    }
    EXPECT_EQ(told, 3) << "with the first event of each";
    for (int i = 0; i < 3; ++i) ExpectSame(engine->Take(id, i).value(), alone, "sample");
  }
}

// The first sample has ended before the others fork from it.
TEST(PromptLogprobsTest, AnAbortedSampleTakesNothingFromTheOthers) {
  EngineConfig config = Config();
  config.prompt_rows = 4;
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  Request request = Scored(Prompt(19, Vocab(*engine)), 3);
  const Completion alone = RunToEnd(*engine, request);
  request.num_samples = 3;
  for (const int steps : {1, 3}) {
    const int64_t id = engine->Add(request).value();
    for (int i = 0; i < steps; ++i) engine->Step();
    engine->Abort(id, 0);
    while (engine->HasWork()) engine->Step();
    EXPECT_EQ(engine->Take(id, 0)->finish, FinishReason::kInterrupt);
    for (int i = 1; i < 3; ++i) ExpectSame(engine->Take(id, i).value(), alone, "sample");
  }
}

TEST(PromptLogprobsTest, AreRefusedWhereThereIsNoMemoryForThem) {
  EngineConfig config = Config();
  config.prompt_rows = 0;
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->Add(Scored({1, 2})).status().code(), StatusCode::kInvalidArgument);
  Request nothing = Scored({1, 2});
  nothing.num_prompt_logprobs.reset();
  const Completion computed = RunToEnd(*engine, nothing);
  EXPECT_EQ(computed.finish, FinishReason::kLength);
  EXPECT_TRUE(computed.tokens.empty());
  Request search = Scored({1, 2}, 3);
  search.beam_width = 2;
  EXPECT_FALSE(Create(Config())->Add(search).ok());
  config.prompt_rows = config.max_num_batched_tokens + 1;
  EXPECT_FALSE(Engine::Create(config).ok());
}

}  // namespace
}  // namespace kuiper
