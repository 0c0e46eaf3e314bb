// Beam search against a naive one, which computes every beam from the start in each step and ranks
// the whole vocabulary. Also the guarantees: the same answers from every cache and step layout,
// with any other requests, and from pools of every size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "kuiper/engine/engine.h"
#include "kuiper/io/token_stream.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr int kPage = 4;

struct Answer {
  std::vector<int32_t> tokens;
  double score = 0;
};

EngineConfig Config(DeviceType device = DeviceType::kCPU) {
  EngineConfig config = GoldenConfig();
  config.device = {device, 0};
  config.ops.num_threads = 1;
  config.page_size = kPage;
  config.max_num_seqs = 4;
  return config;
}

Request BeamRequest(std::vector<int32_t> prompt, int width, int new_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = new_tokens;
  request.beam_width = request.num_samples = width;
  request.ignore_eos = true;
  return request;
}

// Log softmax of the logits after `tokens`.
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

using Ends = std::function<bool(const std::vector<int32_t>& generated)>;

bool Never(const std::vector<int32_t>&) {
  return false;
}

// Implements the definition in beam_scorer.h literally. `engine` has prompt_logits.
std::vector<Answer> NaiveBeamSearch(Engine& engine, const Request& request, const Ends& ends) {
  const int width = request.beam_width;
  std::vector<Answer> beams = {{}};  // score: the plain sum
  std::vector<Answer> ended;
  const auto scored = [&](const Answer& beam) {
    return Answer{beam.tokens, beam.score / std::pow(beam.tokens.size(), request.length_penalty)};
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
        const auto count = std::count(beam.tokens.begin(), beam.tokens.end(), id);
        const double penalty = request.sampling.frequency_penalty * static_cast<double>(count) +
                               (count > 0 ? request.sampling.presence_penalty : 0);
        candidates.push_back({beam.tokens, beam.score + logprobs[id] - penalty});
        candidates.back().tokens.push_back(static_cast<int32_t>(id));
      }
    }
    sort(candidates);
    beams.clear();
    for (int rank = 0; static_cast<int>(beams.size()) < width; ++rank) {
      const Answer& candidate = candidates[rank];
      if (!ends(candidate.tokens)) {
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

void ExpectSameAnswers(const std::vector<Completion>& actual,
                       const std::vector<Completion>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].tokens, expected[i].tokens) << what << ", answer " << i;
    EXPECT_EQ(actual[i].score, expected[i].score) << what << ", answer " << i << ", to the bit";
    EXPECT_EQ(actual[i].finish, expected[i].finish) << what << ", answer " << i;
  }
}

TEST(BeamTest, MatchesTheNaiveSearch) {
  EngineConfig config = Config();
  const auto engine = Create(config);
  config.prompt_logits = true;
  const auto naive = Create(config);
  ASSERT_TRUE(engine != nullptr && naive != nullptr);
  for (const int length : {kPage - 1, kPage, kPage + 1, 3 * kPage + 1}) {
    for (const int width : {2, 4}) {
      for (const bool penalised : {false, true}) {
        Request request = BeamRequest(Prompt(length, Vocab(*engine)), width, 5);
        request.sampling.presence_penalty = penalised ? 0.5f : 0.f;
        request.sampling.frequency_penalty = penalised ? -0.75f : 0.f;
        const auto answers = RunSamples(*engine, request);
        ExpectAnswers(answers, NaiveBeamSearch(*naive, request, Never),
                      std::to_string(width) + " beams, prompt " + std::to_string(length));
        EXPECT_EQ(answers.at(0).finish, FinishReason::kLength);
        EXPECT_EQ(engine->kv_stats().pages_used, 0);
      }
    }
  }
}

// Tokens that beams often choose become end-of-sequence tokens; the length penalty decides between
// short and long answers.
TEST(BeamTest, EndOfSequenceAndLengthPenaltyAreThoseOfTheNaiveSearch) {
  EngineConfig config = Config();
  const auto free_run = Create(config);
  ASSERT_NE(free_run, nullptr);
  Request request = BeamRequest(Prompt(6, Vocab(*free_run)), 3, 8);
  const auto free_answers = RunSamples(*free_run, request);
  const std::set<int32_t> eos = {free_answers[0].tokens[2], free_answers[1].tokens[5]};
  const test::TempDir dir;
  CopyWithEos(config.model_path, {eos.begin(), eos.end()}, dir);
  config.model_path = dir.path();
  const auto engine = Create(config);
  config.prompt_logits = true;
  const auto naive = Create(config);
  ASSERT_TRUE(engine != nullptr && naive != nullptr);
  request.ignore_eos = false;
  std::set<std::vector<int32_t>> best;
  for (const float penalty : {-2.f, 0.f, 1.f, 4.f}) {
    request.length_penalty = penalty;
    const auto answers = RunSamples(*engine, request);
    ExpectAnswers(
        answers,
        NaiveBeamSearch(*naive, request,
                        [&](const auto& generated) { return eos.contains(generated.back()); }),
        "penalty " + std::to_string(penalty));
    const bool any_stopped = std::any_of(answers.begin(), answers.end(), [](const Completion& c) {
      return c.finish == FinishReason::kStop;
    });
    EXPECT_TRUE(any_stopped || penalty > 1) << penalty;
    best.insert(answers.at(0).tokens);
  }
  EXPECT_GT(best.size(), 1u) << "the penalty must matter";
}

// A beam whose text contains the stop string is an ended answer. It is scored with the tokens up to
// there and cut before the string.
TEST(BeamTest, StopStringsEndBeams) {
  EngineConfig config = Config();
  config.model_path = test::Source("demo/models/tiny-qwen3");
  config.need_tokenizer = true;
  config.max_context = 256;
  const auto engine = Create(config);
  config.prompt_logits = true;
  const auto naive = Create(config);
  ASSERT_TRUE(engine != nullptr && naive != nullptr);
  Request request = BeamRequest(engine->tokenizer()->Encode("The red cat"), 3, 12);
  request.length_penalty = 0;  // favours answers that end early
  const std::string text = RunSamples(*engine, request).at(0).text;
  ASSERT_GT(text.size(), 12u);
  // Within a token, and across two of them.
  for (const std::string& stop : {text.substr(6, 1), text.substr(7, 5)}) {
    request.stop = {"never seen", stop};
    const auto answers = RunSamples(*engine, request);
    const auto has_stop = [&](const std::vector<int32_t>& generated) {
      return DecodeTokens(*engine->tokenizer(), generated).find(stop) != std::string::npos;
    };
    ExpectAnswers(answers, NaiveBeamSearch(*naive, request, has_stop), stop);
    int num_stopped = 0;
    for (const Completion& c : answers) {
      const std::string whole = DecodeTokens(*engine->tokenizer(), c.tokens);
      EXPECT_EQ(c.text, whole.substr(0, whole.find(stop)));
      EXPECT_EQ(c.finish == FinishReason::kStopString, has_stop(c.tokens));
      num_stopped += c.finish == FinishReason::kStopString;
    }
    EXPECT_GT(num_stopped, 0) << stop;
  }
}

TEST(BeamTest, FewerAnswersAreTheBest) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  Request request = BeamRequest(Prompt(9, Vocab(*engine)), 4, 7);
  auto answers = RunSamples(*engine, request);
  for (const int count : {2, 1}) {
    request.num_samples = count;
    answers.resize(count);
    ExpectSameAnswers(RunSamples(*engine, request), answers, "fewer");
  }
  EXPECT_EQ(RunToEnd(*engine, request).tokens, answers[0].tokens);
}

TEST(BeamTest, CacheAndStepLayoutDoNotMatter) {
  std::vector<std::vector<Completion>> expected;
  for (const auto& [paged, page_size, graph, cache, chunk, run_ahead] :
       std::vector<std::tuple<bool, int, bool, bool, int, bool>>{
           {true, kPage, false, false, 512, false},
           {true, 1, false, false, 5, true},
           {true, 16, true, false, 512, false},
           {true, kPage, true, true, 7, true},
           {false, 16, false, false, 512, false},
           {false, 16, true, true, 512, true}}) {
    EngineConfig config = Config();
    config.paged = paged;
    config.page_size = page_size;
    config.use_graph = graph;
    config.prefix_cache = cache;
    config.max_num_batched_tokens = chunk;
    config.run_ahead = run_ahead;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    size_t number = 0;
    for (const int length : {kPage - 1, kPage, kPage + 1, 3 * kPage + 1}) {
      const Request request = BeamRequest(Prompt(length, Vocab(*engine)), 4, 2 * kPage + 2);
      for (int round = 0; round < (cache ? 2 : 1); ++round) {  // cold, then cached
        const auto answers = RunSamples(*engine, request);
        if (number == expected.size()) expected.push_back(answers);
        ExpectSameAnswers(answers, expected[number], "prompt " + std::to_string(length));
        if (round == 1 && length > kPage) {
          EXPECT_GT(answers.at(0).cached_tokens, 0);
        }
      }
      ++number;
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
    const auto answers = RunSamples(*engine, BeamRequest(Prompt(6, Vocab(*engine)), 2, 4));
    if (expected.empty()) expected = answers;
    ExpectSameAnswers(answers, expected, paged ? "paged" : "contiguous");
  }
}

// From a pool that holds one beam at a time up to one that holds all.
TEST(BeamTest, PoolsOfEverySizeGiveTheSameAnswers) {
  const auto roomy = Create(Config());
  ASSERT_NE(roomy, nullptr);
  const Request request = BeamRequest(Prompt(3 * kPage + 1, Vocab(*roomy)), 4, 3 * kPage);
  const auto expected = RunSamples(*roomy, request);
  const int pages_of_one = 6;  // 13 + 12 - 1 tokens
  for (const auto& [on_full, preemption] :
       std::vector<std::pair<OnFull, Preemption>>{{OnFull::kPreempt, Preemption::kRecompute},
                                                  {OnFull::kPreempt, Preemption::kSwap},
                                                  {OnFull::kStop, Preemption::kRecompute}}) {
    for (const bool cache : {false, true}) {
      for (int pages = pages_of_one; pages <= 3 + 4 * 3; ++pages) {
        EngineConfig config = Config();
        config.num_blocks = pages;
        config.on_full = on_full;
        config.preemption = preemption;
        config.prefix_cache = cache;
        const auto engine = Create(config);
        ASSERT_NE(engine, nullptr);
        ExpectSameAnswers(RunSamples(*engine, request), expected, std::to_string(pages) + " pages");
        const KvStats stats = engine->kv_stats();
        EXPECT_EQ(stats.pages_used, stats.pages_evictable);
        EXPECT_EQ(stats.swap_pages_used, 0);
      }
    }
  }
  EngineConfig config = Config();
  config.num_blocks = pages_of_one - 1;
  const auto full = Create(config);
  ASSERT_NE(full, nullptr);
  for (const Completion& c : RunSamples(*full, request)) {
    EXPECT_EQ(c.finish, FinishReason::kContext);
    EXPECT_EQ(c.error.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(c.tokens.size(), 8u) << "20 tokens fit, and one behind them";
  }
  EXPECT_EQ(full->kv_stats().pages_used, 0);
}

// Searches and other requests in the same steps; max_num_seqs and the pages suffice only for some.
TEST(BeamTest, BesideOthersTheAnswersAreTheSame) {
  const auto alone = Create(Config());
  ASSERT_NE(alone, nullptr);
  std::vector<Request> requests;
  std::vector<std::vector<Completion>> expected;
  for (int i = 0; i < 6; ++i) {
    const bool is_search = i % 2 == 0;
    requests.push_back(
        BeamRequest(Prompt(4 + 3 * i, Vocab(*alone), i), is_search ? 2 + i / 2 : 1, 4 + 2 * i));
    Request& request = requests.back();
    if (!is_search) {
      request.num_samples = 2;
      request.sampling.temperature = 0.9f;
      request.keep_logits = i == 3;
    }
    if (i == 4) request.sampling.repetition_penalty = 1.3f;
    expected.push_back(RunSamples(*alone, request));
  }
  for (const auto& [seats, pages, chunk, cache] : std::vector<std::tuple<int, int, int, bool>>{
           {16, 200, 512, false}, {4, 30, 9, false}, {4, 12, 512, true}, {6, 9, 6, false}}) {
    EngineConfig config = Config();
    config.max_num_seqs = seats;
    config.num_blocks = pages;
    config.max_num_batched_tokens = chunk;
    config.prefix_cache = cache;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    std::vector<int64_t> ids;
    for (const Request& request : requests) ids.push_back(engine->Add(request).value());
    while (engine->HasWork()) engine->Step();
    for (size_t i = 0; i < requests.size(); ++i) {
      std::vector<Completion> answers;
      for (int sample = 0; sample < requests[i].num_samples; ++sample) {
        answers.push_back(engine->Take(ids[i], sample).value());
        if (!expected[i][sample].logits.empty()) {
          ExpectSameBits(answers.back(), expected[i][sample], "logits");
        }
      }
      ExpectSameAnswers(answers, expected[i],
                        "request " + std::to_string(i) + ", " + std::to_string(pages) + " pages");
    }
  }
}

TEST(BeamTest, AbortGivesTheAnswersSoFar) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  const Request request = BeamRequest(Prompt(5, Vocab(*engine)), 2, 50);
  for (const int most : {0, 3}) {
    const int64_t id = engine->Add(request).value();
    for (int step = 0; step < most; ++step) EXPECT_TRUE(engine->Step().empty());
    engine->Abort(id, 1);  // no answer ends on its own
    engine->Step();
    EXPECT_FALSE(engine->HasWork());
    for (const int sample : {0, 1}) {
      const Completion c = engine->Take(id, sample).value();
      EXPECT_EQ(c.tokens.size(), static_cast<size_t>(most));
      EXPECT_EQ(c.finish, FinishReason::kInterrupt);
    }
    EXPECT_EQ(engine->kv_stats().pages_used, 0);
  }
}

TEST(BeamTest, RefusesWhatItDoesNotSupport) {
  const auto engine = Create(Config());
  ASSERT_NE(engine, nullptr);
  const auto code = [&](const std::function<void(Request&)>& spoil) {
    Request request = BeamRequest(Prompt(5, Vocab(*engine)), 2, 5);
    spoil(request);
    return engine->Add(request).status().code();
  };
  const auto bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](Request& r) { r.beam_width = 0; }), bad);
  EXPECT_EQ(code([](Request& r) { r.beam_width = 5; }), bad) << "four seats";
  EXPECT_EQ(code([](Request& r) { r.length_penalty = NAN; }), bad);
  EXPECT_EQ(code([](Request& r) { r.num_samples = 3; }), bad);
  EXPECT_EQ(code([](Request& r) { r.sampling.temperature = 1; }), bad);
  EXPECT_EQ(code([](Request& r) { r.reasoning_budget = 3; }), bad);
  EXPECT_EQ(code([](Request& r) { r.keep_logits = true; }), bad);
  EXPECT_EQ(code([](Request& r) { r.num_logprobs = 1; }), bad);
  EXPECT_EQ(code([](Request& r) { r.prompt.clear(); }), StatusCode::kInput);
  EXPECT_FALSE(engine->HasWork());
}

}  // namespace
}  // namespace kuiper
