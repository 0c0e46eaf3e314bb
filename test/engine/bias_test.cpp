// Request::logit_bias and min_new_tokens through the public API. Compares with a naive choice in
// double precision on every device; also tests early ends and refused requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

EngineConfig Config(const Device& device) {
  EngineConfig config = GoldenConfig();
  config.device = device;
  config.ops.num_threads = 1;
  config.page_size = 8;
  config.max_num_seqs = 4;
  return config;
}

Request MakeRequest(std::vector<int32_t> prompt, int new_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

// The greedy choice from logits [vocab] and biases; `margin` is its lead over the second.
int32_t Best(const float* logits, int vocab, const std::map<int32_t, double>& biases,
             double* margin) {
  std::vector<double> x(logits, logits + vocab);
  for (const auto& [id, bias] : biases) x[id] += bias;
  const auto best = std::max_element(x.begin(), x.end());
  const double value = std::exchange(*best, -kInfinity);
  *margin = value - *std::max_element(x.begin(), x.end());
  return static_cast<int32_t>(best - x.begin());
}

class BiasTest : public ::testing::TestWithParam<Device> {};

TEST_P(BiasTest, EachTokenIsTheBestOfItsLogitsAndBiases) {
  for (const bool paged : {true, false}) {
    EngineConfig config = Config(GetParam());
    config.paged = paged;
    config.use_graph = true;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    const int vocab = Vocab(*engine);
    int changed = 0;
    for (const int length : {1, 7, 8, 9, 25}) {
      Request request = MakeRequest(Prompt(length, vocab, length), 10);
      std::map<int32_t, double> biases;
      const Completion plain = RunToEnd(*engine, request);
      for (const int32_t id : {plain.tokens[0], plain.tokens[3], 5 + length}) {
        biases[id] = request.logit_bias[id] = id % 2 == 0 ? -2.5f : 1.75f;
      }
      request.stop_token_ids = {plain.tokens[1], plain.tokens[2], vocab + 3};
      request.min_new_tokens = 6;
      const Completion c = RunToEnd(*engine, request);
      std::map<int32_t, double> early = biases;
      for (const int32_t id : engine->model_config().eos) early[id] = -kInfinity;
      early[plain.tokens[1]] = early[plain.tokens[2]] = -kInfinity;
      ASSERT_GE(c.tokens.size(), 6u);
      for (size_t i = 0; i < c.tokens.size(); ++i) {
        double margin = 0;
        const int32_t best = Best(&c.logits[i * vocab], vocab, i < 6 ? early : biases, &margin);
        if (margin < 1e-4) continue;
        ASSERT_EQ(c.tokens[i], best) << "token " << i;
      }
      changed += c.tokens != plain.tokens;
    }
    EXPECT_GE(changed, 4);
  }
}

TEST_P(BiasTest, OneTokenIsForcedOrRuledOut) {
  const auto engine = Create(Config(GetParam()));
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest(Prompt(9, Vocab(*engine)), 6);
  request.logit_bias = {{11, 100.f}};
  EXPECT_EQ(RunToEnd(*engine, request).tokens, std::vector<int32_t>(6, 11));
  request.sampling.temperature = 1;
  EXPECT_EQ(RunToEnd(*engine, request).tokens, std::vector<int32_t>(6, 11));
  request.logit_bias = {{11, -100.f}};
  request.num_samples = 4;
  request.max_new_tokens = 20;
  for (const Completion& c : RunSamples(*engine, request)) {
    EXPECT_EQ(std::count(c.tokens.begin(), c.tokens.end(), 11), 0);
  }
}

TEST_P(BiasTest, LogProbabilitiesAreThoseWithoutIt) {
  const auto engine = Create(Config(GetParam()));
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest(Prompt(9, Vocab(*engine)), 1);
  request.num_logprobs = 2;
  const Completion plain = RunToEnd(*engine, request);
  request.logit_bias = {{11, 100.f}};
  const Completion biased = RunToEnd(*engine, request);
  EXPECT_EQ(biased.tokens, (std::vector<int32_t>{11}));
  EXPECT_EQ(biased.logprobs[0].top, plain.logprobs[0].top);
  EXPECT_LT(biased.logprobs[0].chosen, plain.logprobs[0].chosen);
  EXPECT_EQ(plain.logprobs[0].rank, 1);
  EXPECT_GT(biased.logprobs[0].rank, 1);
  EXPECT_EQ(biased.logits, plain.logits);
}

INSTANTIATE_TEST_SUITE_P(Devices, BiasTest, ::testing::ValuesIn(CpuAndAccelerators()),
                         NameOfDevice);

// Every token that the answer would contain ends it.
TEST(MinTokensTest, NoEndComesBeforeThem) {
  const std::string model = GoldenConfig().model_path;
  EngineConfig config = Config({});
  const int vocab = Vocab(*Create(config));
  const test::TempDir dir;
  CopyWithEos(model, {3, 4, vocab - 1}, dir);
  config.model_path = dir.path();
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest(Prompt(9, vocab), 12);
  request.ignore_eos = false;
  for (int id = 5; id < vocab; ++id) request.stop_token_ids.push_back(id);
  for (const int least : {0, 1, 5, 11, 12}) {
    request.min_new_tokens = least;
    const Completion c = RunToEnd(*engine, request);
    ASSERT_GE(c.tokens.size(), static_cast<size_t>(least));
    for (int i = 0; i < least; ++i) EXPECT_LT(c.tokens[i], 3) << "token " << i;
    const bool ends = c.tokens.back() >= 3 && c.tokens.size() > static_cast<size_t>(least);
    EXPECT_EQ(c.finish, ends ? FinishReason::kStop : FinishReason::kLength);
  }
  // A beam search obeys it as well.
  request.keep_logits = false;
  request.min_new_tokens = 5;
  request.beam_width = 3;
  const Completion best = RunToEnd(*engine, request);
  ASSERT_GE(best.tokens.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_LT(best.tokens[i], 3) << "token " << i;
  // End-of-sequence tokens are excluded early on even if they would not end the answer.
  request.beam_width = 1;
  request.ignore_eos = true;
  const Completion ignoring = RunToEnd(*engine, request);
  ASSERT_GE(ignoring.tokens.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_LT(ignoring.tokens[i], 3) << "token " << i;
}

TEST(MinTokensTest, SomeTokenMustBeLeft) {
  const auto engine = Create(Config({}));
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest(Prompt(3, Vocab(*engine)), 4);
  for (int id = 0; id < Vocab(*engine); ++id) request.stop_token_ids.push_back(id);
  EXPECT_TRUE(engine->Add(request).ok());
  request.min_new_tokens = 1;
  EXPECT_EQ(engine->Add(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(BiasCheckTest, WhatCannotBeIsRefusedByName) {
  constexpr int kVocab = 2000;
  const auto error = [&](const auto& change) {
    Request request;
    request.prompt = {1};
    change(request);
    return CheckRequest(request, kVocab).message();
  };
  EXPECT_EQ(error([](Request& r) { r.logit_bias = {{1999, 100.f}, {0, -100.f}}; }), "");
  EXPECT_EQ(error([](Request& r) {
              r.logit_bias = {{2000, 1.f}};
            }),
            "logit_bias: token id 2000 is outside the vocabulary of 2000");
  EXPECT_EQ(error([](Request& r) {
              r.logit_bias = {{-1, 1.f}};
            }),
            "logit_bias: token id -1 is outside the vocabulary of 2000");
  const std::string range = "logit_bias: the bias of token id 7 must be in [-100, 100]";
  EXPECT_EQ(error([](Request& r) { r.logit_bias = {{7, 100.5f}}; }), range);
  EXPECT_EQ(error([](Request& r) {
              r.logit_bias = {{7, std::numeric_limits<float>::quiet_NaN()}};
            }),
            range);
  const auto biases = [](int count) {
    return [count](Request& r) {
      for (int id = 0; id < count; ++id) r.logit_bias[id] = 1;
    };
  };
  EXPECT_EQ(error(biases(kMaxLogitBiases)), "");
  EXPECT_EQ(error(biases(kMaxLogitBiases + 1)),
            "logit_bias: at most 1024 token ids may have a bias");
  EXPECT_EQ(error([](Request& r) { r.min_new_tokens = 256; }), "");
  EXPECT_EQ(error([](Request& r) { r.min_new_tokens = 257; }),
            "min_tokens must be from 0 to max_tokens, which is 256");
  EXPECT_NE(error([](Request& r) { r.min_new_tokens = -1; }), "");
  EXPECT_NE(error([](Request& r) { r.stop_token_ids.resize(kMaxStopTokens + 1); }), "");
}

}  // namespace
}  // namespace kuiper
