// Several samples of one prompt: each equals a request of its own to the bit, they share the pages
// of the prompt, and each ends on its own.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr int kPage = 8;

EngineConfig Config(DeviceType device = DeviceType::kCPU) {
  EngineConfig config = GoldenConfig();
  config.device = {device, 0};
  config.ops.num_threads = 1;
  config.page_size = kPage;
  config.max_num_seqs = 4;
  return config;
}

Request SampledRequest(std::vector<int32_t> prompt, int num_samples, int new_tokens = 9) {
  Request request;
  request.prompt = std::move(prompt);
  request.num_samples = num_samples;
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  request.sampling.temperature = 0.9f;
  request.sampling.seed = 41;
  return request;
}

// Returns the results of single-answer requests with the seeds of the samples.
std::vector<Completion> RunAlone(Engine& engine, const Request& request) {
  std::vector<Completion> completions;
  Request single = request;
  single.num_samples = 1;
  for (int i = 0; i < request.num_samples; ++i) {
    single.sampling.seed = request.sampling.seed + i;
    completions.push_back(RunToEnd(engine, single));
  }
  EXPECT_NE(completions[0].tokens, completions[1].tokens);
  return completions;
}

void ExpectSameBits(const std::vector<Completion>& samples, const std::vector<Completion>& alone,
                    const std::string& what) {
  for (size_t i = 0; i < alone.size(); ++i) {
    ExpectSameBits(samples.at(i), alone[i], what + ", sample " + std::to_string(i));
  }
}

TEST(SamplesTest, EachSampleEqualsARequestOfItsOwn) {
  const auto alone = Create(Config());
  ASSERT_NE(alone, nullptr);
  std::map<int, std::vector<Completion>> expected;  // by length of the prompt
  for (const int length : {1, kPage - 1, kPage, kPage + 1, 3 * kPage, 3 * kPage + 1}) {
    expected[length] = RunAlone(*alone, SampledRequest(Prompt(length, Vocab(*alone)), 3));
  }
  for (const bool paged : {false, true}) {
    for (const bool graph : {false, true}) {
      for (const bool cache : {false, true}) {
        EngineConfig config = Config();
        config.paged = paged;
        config.use_graph = graph;
        config.prefix_cache = cache;
        const auto engine = Create(config);
        ASSERT_NE(engine, nullptr);
        for (const auto& [length, completions] : expected) {
          ExpectSameBits(RunSamples(*engine, SampledRequest(Prompt(length, Vocab(*alone)), 3)),
                         completions,
                         "prompt " + std::to_string(length) + (paged ? " paged" : "") +
                             (graph ? " graph" : "") + (cache ? " cache" : ""));
        }
        if (!cache) {
          EXPECT_EQ(engine->kv_stats().pages_used, 0);
        }
      }
    }
  }
}

// The samples fork while a step of sample 0 is in flight.
TEST(SamplesTest, RunAheadGivesTheSameSamples) {
  const auto alone = Create(Config());
  EngineConfig config = Config();
  config.run_ahead = true;
  const auto engine = Create(config);
  ASSERT_TRUE(alone != nullptr && engine != nullptr);
  for (const int length : {1, kPage - 1, kPage, kPage + 1, 3 * kPage + 1}) {
    Request request = SampledRequest(Prompt(length, Vocab(*alone)), 3);
    request.keep_logits = false;  // keeping logits would wait for the step
    const std::vector<Completion> samples = RunSamples(*engine, request);
    const std::vector<Completion> expected = RunAlone(*alone, request);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(samples[i].tokens, expected[i].tokens) << length;
    EXPECT_EQ(engine->kv_stats().pages_used, 0);
  }
}

TEST(SamplesTest, EachSampleEqualsARequestOfItsOwnOnTheEmulatedDevice) {
  if (!MakeOps({DeviceType::kSimt, 0}, {}).ok()) GTEST_SKIP() << "not part of this build";
  const auto alone = Create(Config(DeviceType::kSimt));
  ASSERT_NE(alone, nullptr);
  const Request request = SampledRequest(Prompt(2 * kPage + 3, Vocab(*alone)), 2, 4);
  const std::vector<Completion> expected = RunAlone(*alone, request);
  for (const bool paged : {false, true}) {
    EngineConfig config = Config(DeviceType::kSimt);
    config.paged = paged;
    config.use_graph = paged;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    ExpectSameBits(RunSamples(*engine, request), expected, paged ? "paged" : "rows");
  }
}

// More samples than max_num_seqs, chunks that end anywhere, penalties, and a second request among
// them.
TEST(SamplesTest, SamplesThatWaitAreTheSame) {
  const auto alone = Create(Config());
  EngineConfig config = Config();
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 7;
  const auto engine = Create(config);
  ASSERT_TRUE(alone != nullptr && engine != nullptr);
  Request request = SampledRequest(Prompt(3 * kPage + 1, Vocab(*alone)), 5);
  request.sampling.repetition_penalty = 1.2f;
  const int64_t other = engine->Add(SampledRequest(Prompt(9, Vocab(*alone), 3), 1)).value();
  const int64_t id = engine->Add(request).value();
  while (engine->HasWork()) engine->Step();
  const std::vector<Completion> expected = RunAlone(*alone, request);
  for (int i = 0; i < 5; ++i) {
    ExpectSameBits(engine->Take(id, i).value(), expected[i], "sample " + std::to_string(i));
  }
  ExpectSameBits(engine->Take(other).value(),
                 RunToEnd(*alone, SampledRequest(Prompt(9, Vocab(*alone), 3), 1)), "other");
}

// Four samples may grow to 3 + 4 * 3 pages; the pool has 7.
TEST(SamplesTest, PreemptedSamplesAreTheSame) {
  const auto alone = Create(Config());
  ASSERT_NE(alone, nullptr);
  const Request request = SampledRequest(Prompt(3 * kPage + 1, Vocab(*alone)), 4, 24);
  const std::vector<Completion> expected = RunAlone(*alone, request);
  for (const Preemption preemption : {Preemption::kRecompute, Preemption::kSwap}) {
    EngineConfig config = Config();
    config.num_blocks = 7;
    config.preemption = preemption;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    ExpectSameBits(RunSamples(*engine, request), expected, "preempted");
    const KvStats stats = engine->kv_stats();
    EXPECT_GT(preemption == Preemption::kSwap ? stats.preempted_swap : stats.preempted_recompute,
              0);
    EXPECT_EQ(stats.pages_used, 0);
  }
}

TEST(SamplesTest, PagesOfThePromptAreSharedUntilTheyAreWritten) {
  constexpr int kSamples = 4;
  for (const int extra : {-1, 0, 1}) {
    const auto engine = Create(Config());
    ASSERT_NE(engine, nullptr);
    const int length = 3 * kPage + extra;
    const int pages = (length + kPage - 1) / kPage;
    engine->Add(SampledRequest(Prompt(length, Vocab(*engine)), kSamples)).value();
    engine->Step();  // the prompt; then the samples fork
    EXPECT_EQ(engine->kv_stats().pages_used, pages);
    EXPECT_EQ(engine->kv_stats().pages_shared, (length - 1 + kPage - 1) / kPage);
    engine->Step();  // sample 0 adds the first generated token, the others the last prompt token
    const int full = (length - 1) / kPage;
    EXPECT_EQ(engine->kv_stats().pages_shared, full);
    EXPECT_EQ(engine->kv_stats().pages_used, full + kSamples + (extra == 0 ? 1 : 0));
    while (engine->HasWork()) engine->Step();
    EXPECT_EQ(engine->kv_stats().pages_used, 0);
  }
}

TEST(SamplesTest, AbortEndsOneSampleOrAll) {
  const auto alone = Create(Config());
  const auto engine = Create(Config());
  ASSERT_TRUE(alone != nullptr && engine != nullptr);
  const Request request = SampledRequest(Prompt(kPage + 3, Vocab(*engine)), 3);
  int64_t id = engine->Add(request).value();
  for (int i = 0; i < 4; ++i) engine->Step();
  engine->Abort(id, 1);
  while (engine->HasWork()) engine->Step();
  EXPECT_EQ(engine->Take(id, 0).value().tokens.size(), 9u);
  EXPECT_EQ(engine->Take(id, 1).value().finish, FinishReason::kInterrupt);
  Request last = request;
  last.num_samples = 1;
  last.sampling.seed += 2;
  ExpectSameBits(engine->Take(id, 2).value(), RunToEnd(*alone, last), "sample 2");

  id = engine->Add(request).value();
  for (int i = 0; i < 4; ++i) engine->Step();
  engine->Abort(id);
  EXPECT_EQ(engine->Step().size(), 3u);
  EXPECT_FALSE(engine->HasWork());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(engine->Take(id, i).value().finish, FinishReason::kInterrupt);
  EXPECT_EQ(engine->kv_stats().pages_used, 0);
}

// Sample 0 computes the prompt for all samples; if it is aborted, the others compute it themselves.
TEST(SamplesTest, AbortOfSampleZeroBeforeItsFirstTokenLeavesTheOthers) {
  const auto alone = Create(Config());
  EngineConfig config = Config();
  config.max_num_batched_tokens = 5;
  const auto engine = Create(config);
  ASSERT_TRUE(alone != nullptr && engine != nullptr);
  Request request = SampledRequest(Prompt(2 * kPage + 3, Vocab(*engine)), 3);
  const int64_t id = engine->Add(request).value();
  engine->Step();
  engine->Abort(id, 0);
  engine->Abort(id, 1);
  while (engine->HasWork()) engine->Step();
  EXPECT_TRUE(engine->Take(id, 0).value().tokens.empty());
  EXPECT_TRUE(engine->Take(id, 1).value().tokens.empty());
  request.num_samples = 1;
  request.sampling.seed += 2;
  ExpectSameBits(engine->Take(id, 2).value(), RunToEnd(*alone, request), "sample 2");
  EXPECT_EQ(engine->kv_stats().pages_used, 0);
}

}  // namespace
}  // namespace kuiper
