// Beam search against a naive one that computes every beam from the start in each step and ranks
// the whole vocabulary; and the guarantees: the same answers from every cache and step layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "kuiper/engine/beam_scorer.h"
#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  double score = 0;
};

EngineConfig Config(DeviceType device = DeviceType::kCPU) {
  EngineConfig config = GoldenConfig();
  config.device = {device, 0};
  config.ops.num_threads = 1;
  config.page_size = 4;
  config.max_num_seqs = 4;
  return config;
}

Request GreedyRequest(std::vector<int32_t> prompt, int new_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = new_tokens;
  return request;
}

// log softmax of the logits behind `tokens`.
std::vector<double> LogSoftmax(Engine& engine, const std::vector<int32_t>& tokens) {
  const int vocab = Vocab(engine);
  std::vector<double> row(vocab);
  const Status status = engine.Logits(tokens, [&](int position, const float* logits) {
    if (position + 1 == static_cast<int>(tokens.size())) std::copy_n(logits, vocab, row.begin());
  });
  EXPECT_TRUE(status.ok()) << status.message();
  long double sum = 0;
  for (double x : row) sum += std::exp(static_cast<long double>(x));
  for (double& x : row) x -= static_cast<double>(std::log(sum));
  return row;
}

// The definition of beam_scorer.h, word by word. `engine` has prompt_logits.
std::vector<Answer> NaiveBeamSearch(Engine& engine, const Request& request, int width,
                                    double length_penalty, const std::set<int32_t>& eos) {
  std::vector<Answer> beams = {{}};  // score: the plain sum
  std::vector<Answer> ended;
  const auto scored = [&](const Answer& beam) {
    return Answer{beam.tokens, beam.score / std::pow(beam.tokens.size(), length_penalty)};
  };
  const auto sort = [](std::vector<Answer>& answers) {
    std::stable_sort(answers.begin(), answers.end(),
                     [](const Answer& a, const Answer& b) { return a.score > b.score; });
  };
  bool done = false;
  for (int step = 0; step < request.max_new_tokens && !done; ++step) {
    std::vector<Answer> candidates;
    for (const Answer& beam : beams) {
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), beam.tokens.begin(), beam.tokens.end());
      const std::vector<double> logprobs = LogSoftmax(engine, tokens);
      for (size_t id = 0; id < logprobs.size(); ++id) {
        candidates.push_back({beam.tokens, beam.score + logprobs[id]});
        candidates.back().tokens.push_back(static_cast<int32_t>(id));
      }
    }
    sort(candidates);
    beams.clear();
    for (int rank = 0; static_cast<int>(beams.size()) < width; ++rank) {
      const Answer& candidate = candidates[rank];
      if (!eos.contains(candidate.tokens.back())) {
        beams.push_back(candidate);
      } else if (rank < width) {
        ended.push_back(scored(candidate));
        sort(ended);
        if (static_cast<int>(ended.size()) > width) ended.pop_back();
      }
    }
    done = static_cast<int>(ended.size()) == width && ended.back().score >= scored(beams[0]).score;
  }
  if (!done) {
    for (const Answer& beam : beams) ended.push_back(scored(beam));
    sort(ended);
    ended.resize(width);
  }
  return ended;
}

void ExpectAnswers(const std::vector<Completion>& actual, const std::vector<Answer>& expected,
                   const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].tokens, expected[i].tokens) << what << ", answer " << i;
    EXPECT_NEAR(actual[i].score, expected[i].score, 1e-5) << what << ", answer " << i;
  }
}

TEST(BeamTest, MatchesTheNaiveSearch) {
  EngineConfig config = Config();
  const auto engine = Create(config);
  config.prompt_logits = true;
  const auto naive = Create(config);
  ASSERT_TRUE(engine != nullptr && naive != nullptr);
  for (const int length : {3, 4, 5, 13}) {
    for (const int width : {2, 4}) {
      Request request = GreedyRequest(Prompt(length, Vocab(*engine)), 5);
      request.ignore_eos = true;
      const auto answers = engine->BeamSearch(request, {.width = width, .length_penalty = 1.f});
      ASSERT_TRUE(answers.ok()) << answers.status().message();
      ExpectAnswers(*answers, NaiveBeamSearch(*naive, request, width, 1, {}),
                    std::to_string(width) + " beams, prompt " + std::to_string(length));
      EXPECT_EQ(answers->front().finish, FinishReason::kLength);
      EXPECT_EQ(engine->kv_stats().pages_used, 0);
    }
  }
}

// Tokens that beams do choose become end-of-sequence tokens; the penalty decides between short and
// long answers.
TEST(BeamTest, EndOfSequenceAndLengthPenaltyAreThoseOfTheNaiveSearch) {
  Request request = GreedyRequest(Prompt(6, Vocab(*Create(Config()))), 8);
  Request free_run = request;
  free_run.ignore_eos = true;
  const auto free_answers = Create(Config())->BeamSearch(free_run, {.width = 3}).value();
  const std::vector<int32_t> eos = {free_answers[0].tokens[2], free_answers[1].tokens[5]};
  EngineConfig config = Config();
  config.model_path = ModelWithEos(config.model_path, eos);
  const auto engine = Create(config);
  config.prompt_logits = true;
  const auto naive = Create(config);
  ASSERT_TRUE(engine != nullptr && naive != nullptr);
  std::set<std::vector<int32_t>> best;
  for (const float penalty : {-2.f, 0.f, 1.f, 4.f}) {
    const auto answers =
        engine->BeamSearch(request, {.width = 3, .length_penalty = penalty}).value();
    ExpectAnswers(answers, NaiveBeamSearch(*naive, request, 3, penalty, {eos.begin(), eos.end()}),
                  "penalty " + std::to_string(penalty));
    const bool any_stopped = std::any_of(answers.begin(), answers.end(), [](const Completion& c) {
      return c.finish == FinishReason::kStop;
    });
    EXPECT_TRUE(any_stopped || penalty > 1) << penalty;
    best.insert(answers[0].tokens);
  }
  EXPECT_GT(best.size(), 1u) << "the penalty must matter";
}

TEST(BeamTest, OneBeamIsGreedy) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  Request request = GreedyRequest(Prompt(9, Vocab(*engine)), 20);
  request.ignore_eos = true;
  EXPECT_EQ(engine->BeamSearch(request, {}).value().at(0).tokens,
            RunToEnd(*engine, request).tokens);
}

TEST(BeamTest, CacheAndStepLayoutDoNotMatter) {
  Request request;
  std::vector<Completion> expected;
  for (const auto& [paged, page_size, graph, cache, chunk] :
       std::vector<std::tuple<bool, int, bool, bool, int>>{{true, 4, false, false, 512},
                                                           {true, 1, false, false, 5},
                                                           {true, 16, true, false, 512},
                                                           {true, 4, true, true, 7},
                                                           {false, 16, false, false, 512},
                                                           {false, 16, true, true, 512}}) {
    EngineConfig config = Config();
    config.paged = paged;
    config.page_size = page_size;
    config.use_graph = graph;
    config.prefix_cache = cache;
    config.max_num_batched_tokens = chunk;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    if (expected.empty()) {
      request = GreedyRequest(Prompt(3 * 4 + 1, Vocab(*engine)), 12);
      request.ignore_eos = true;
    }
    for (int round = 0; round < (cache ? 2 : 1); ++round) {  // cold, then cached
      const auto answers = engine->BeamSearch(request, {.width = 4}).value();
      if (expected.empty()) expected = answers;
      ASSERT_EQ(answers.size(), 4u);
      for (size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].tokens, expected[i].tokens);
        EXPECT_EQ(answers[i].score, expected[i].score) << "to the bit";
      }
      EXPECT_EQ(answers[0].cached_tokens > 0, round == 1);
    }
  }
}

TEST(BeamTest, EmulatedDeviceSharesPagesTheSameWay) {
  if (!MakeOps({DeviceType::kSimt, 0}, {}).ok()) GTEST_SKIP() << "not part of this build";
  std::vector<Completion> expected;
  for (const bool paged : {false, true}) {
    EngineConfig config = Config(DeviceType::kSimt);
    config.paged = paged;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    const auto answers =
        engine->BeamSearch(GreedyRequest(Prompt(6, Vocab(*engine)), 4), {.width = 2}).value();
    if (expected.empty()) expected = answers;
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].tokens, expected[i].tokens);
      EXPECT_EQ(answers[i].score, expected[i].score);
    }
  }
}

// The pool that the search asks for suffices, and a page less is refused.
TEST(BeamTest, PoolOfSharedPromptPagesSuffices) {
  // 13 + 12 - 1 tokens are 6 pages, of which the 3 full ones of the prompt are shared.
  for (const int pages : {3 + 4 * 3 - 1, 3 + 4 * 3}) {
    EngineConfig config = Config();
    config.num_blocks = pages;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    Request request = GreedyRequest(Prompt(13, Vocab(*engine)), 12);
    request.ignore_eos = true;
    const auto answers = engine->BeamSearch(request, {.width = 4});
    EXPECT_EQ(answers.ok(), pages == 15);
    if (!answers.ok()) {
      EXPECT_EQ(answers.status().code(), StatusCode::kResourceExhausted);
    }
    EXPECT_EQ(engine->kv_stats().pages_used, 0);
  }
}

TEST(BeamTest, InterruptGivesTheAnswersSoFar) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  Request request = GreedyRequest(Prompt(5, Vocab(*engine)), 50);
  request.ignore_eos = true;
  for (const int most : {0, 3}) {
    int steps = 0;
    const auto answers =
        engine->BeamSearch(request, {.width = 2}, [&] { return steps++ < most; }).value();
    EXPECT_EQ(answers.at(0).tokens.size(), static_cast<size_t>(most));
    EXPECT_EQ(answers.at(0).finish, FinishReason::kInterrupt);
    EXPECT_EQ(engine->kv_stats().pages_used, 0);
  }
}

TEST(BeamTest, RefusesWhatItDoesNotSupport) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  const auto code = [&](BeamOptions options, const std::function<void(Request&)>& spoil) {
    Request request = GreedyRequest(Prompt(5, Vocab(*engine)), 5);
    spoil(request);
    return engine->BeamSearch(request, options).status().code();
  };
  const auto bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.width = 0}, [](Request&) {}), bad);
  EXPECT_EQ(code({.width = 5}, [](Request&) {}), bad) << "four seats";
  EXPECT_EQ(code({.width = 2, .length_penalty = NAN}, [](Request&) {}), bad);
  EXPECT_EQ(code({.width = 2}, [](Request& r) { r.sampling.temperature = 1; }), bad);
  EXPECT_EQ(code({.width = 2}, [](Request& r) { r.num_samples = 2; }), bad);
  EXPECT_EQ(code({.width = 2}, [](Request& r) { r.stop = {"x"}; }), bad);
  EXPECT_EQ(code({.width = 2}, [](Request& r) { r.keep_logits = true; }), bad);
  EXPECT_EQ(code({.width = 2}, [](Request& r) { r.prompt.clear(); }), StatusCode::kInput);
  EXPECT_FALSE(engine->HasWork());
}

TEST(BeamScorerTest, EqualSumsKeepTheLowerBeamThenTheLowerId) {
  BeamScorer scorer(2, 1, 0);
  const auto never = [](int, int32_t) { return false; };
  scorer.Advance({{{9, -1.f}, {4, -1.f}, {5, -1.f}}}, never);
  ASSERT_EQ(scorer.beams().size(), 2u);
  EXPECT_EQ(scorer.beams()[0].tokens, std::vector<int32_t>{4});
  EXPECT_EQ(scorer.beams()[1].tokens, std::vector<int32_t>{5});
  scorer.Advance({{{8, -1.f}, {7, -2.f}}, {{1, -1.f}, {2, -2.f}}}, never);
  EXPECT_EQ(scorer.beams()[0].tokens, (std::vector<int32_t>{4, 8}));
  EXPECT_EQ(scorer.beams()[1].tokens, (std::vector<int32_t>{5, 1}));
  EXPECT_EQ(scorer.beams()[1].parent, 1);
}

TEST(BeamScorerTest, EndBelowTheFirstWidthRanksIsNoAnswer) {
  BeamScorer scorer(2, 1, 1);
  const auto zero = [](int, int32_t token) { return token == 0; };
  scorer.Advance({{{1, -1.f}, {2, -2.f}, {0, -3.f}, {3, -4.f}}}, zero);
  for (const BeamScorer::Answer& answer : scorer.Answers()) EXPECT_FALSE(answer.ended);
  scorer.Advance({{{0, -0.5f}, {1, -3.f}, {2, -4.f}}, {{1, -3.f}, {0, -4.f}, {2, -5.f}}}, zero);
  const std::vector<BeamScorer::Answer> answers = scorer.Answers();
  EXPECT_TRUE(answers.at(0).ended);
  EXPECT_EQ(answers[0].tokens, (std::vector<int32_t>{1, 0}));
  EXPECT_DOUBLE_EQ(answers[0].score, -1.5 / 2);
  EXPECT_FALSE(scorer.done()) << "one of two answers has ended";
}

}  // namespace
}  // namespace kuiper
