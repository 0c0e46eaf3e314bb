// All guarantees of docs/architecture.md together: random engines under random load. Each request
// is compared with itself alone and with a cold cache. Requests arrive, fork, end and are aborted
// while others run.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>

#include "test/engine/engine_test_util.h"
#include "test/engine/picture_test_util.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

struct Case {
  Device device;
  bool has_vision;
  int num_scenarios, num_requests, num_samples, max_context;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{Device{}, false, 200, 16, 3, 96}, {Device{}, true, 200, 16, 3, 96}};
  for (const Device& device : Accelerators()) {
    cases.push_back({device, false, 6, 4, 2, 48});
    cases.push_back({device, true, 4, 4, 2, 64});
  }
  return cases;
}

class RandomScheduleTest : public ::testing::TestWithParam<Case> {
 protected:
  int UpTo(int n) { return static_cast<int>(rng_() % (n + 1)); }

  EngineConfig AloneConfig() const {
    EngineConfig config;
    config.model_path = GetParam().has_vision ? test::TinyVision()
                                              : test::Source("test/data/goldens/qwen2-gqa7-d8-f16");
    config.device = GetParam().device;
    config.need_tokenizer = false;
    config.ops.num_threads = 1;
    config.max_context = GetParam().max_context;
    config.max_num_seqs = 4;
    config.prompt_rows = 64;
    return config;
  }
  // Page sizes and the prefix cache alternate with different periods, so that few scenarios cover
  // every combination.
  EngineConfig RandomConfig(int scenario) {
    EngineConfig config = AloneConfig();
    constexpr int kPageSizes[] = {1, 16, 64};
    config.page_size = kPageSizes[scenario % 3];
    config.prefix_cache = scenario % 2 == 0;
    config.num_blocks = (config.max_context + config.page_size - 1) / config.page_size + UpTo(2);
    config.max_num_seqs = 1 + UpTo(5);
    config.max_num_batched_tokens = config.max_num_seqs + UpTo(1) * UpTo(60);
    config.prompt_rows = 1 + UpTo(std::min(20, config.max_num_batched_tokens - 1));
    config.preemption = static_cast<Preemption>(UpTo(2));
    config.run_ahead = UpTo(1) == 0;
    config.use_graph = UpTo(1) == 0;
    if (GetParam().has_vision) config.vision_cache_tokens = kMostRows + UpTo(kMostRows);
    return config;
  }
  // One of three pictures of one size.
  void AppendPicture(Request* request) {
    const PatchGrid grid{1, 4, 6};
    const std::vector<int32_t> ids = test::ImageIds(grid);
    request->prompt.insert(request->prompt.end(), ids.begin(), ids.end());
    request->images.push_back(
        test::MakePicture(std::string(1, static_cast<char>('a' + UpTo(2))), grid));
  }
  // Prompts share one of two beginnings, with pictures after it and at the end.
  Request RandomRequest(int i, int vocab) {
    Request request;
    const int most = GetParam().max_context;
    request.prompt = Prompt(1 + UpTo(most * (GetParam().has_vision ? 1 : 2) / 5), vocab, 1 + i % 2);
    if (GetParam().has_vision && i % 4 != 3) AppendPicture(&request);
    const auto own = Prompt(1 + UpTo(most / 5), vocab, 10 + i);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    if (GetParam().has_vision && i % 3 == 0) AppendPicture(&request);
    request.max_new_tokens = 1 + UpTo(most / 5);
    request.ignore_eos = true;
    request.keep_logits = true;
    request.sampling.temperature = i % 3 == 0 ? 0.8f : 0.f;
    request.num_samples = i % 3 == 0 ? GetParam().num_samples : 1;
    request.sampling.repetition_penalty = i % 5 == 0 ? 1.2f : 1.f;
    for (int n = i % 3 == 1 ? 5 : 0; n > 0; --n) {
      request.logit_bias[UpTo(vocab - 1)] = static_cast<float>(UpTo(8) - 4);
    }
    if (i % 5 == 2) {
      for (int id = i % 3; id < vocab; id += 3) request.stop_token_ids.push_back(id);
      request.min_new_tokens = UpTo(request.max_new_tokens);
    }
    if (i % 7 == 3) request.num_prompt_logprobs = 2;
    if (i % 4 == 1) {
      request.beam_width = 2 + i % 3;
      request.num_samples = 1;
      request.sampling.temperature = 0;
      request.keep_logits = false;
    }
    return request;
  }
  // Makes each sample a separate request.
  std::vector<Completion> RunAlone(Engine& engine, Request request) {
    std::vector<Completion> samples;
    for (const int num_samples = std::exchange(request.num_samples, 1);
         static_cast<int>(samples.size()) < num_samples; ++request.sampling.seed) {
      samples.push_back(RunToEnd(engine, request));
    }
    return samples;
  }
  // Runs six of the requests and returns the engine's id of each.
  std::map<int64_t, int> RunSome(Engine& engine, bool keep_logits) {
    std::map<int64_t, int> ids;
    for (int i = 0; i < 6; ++i) {
      const int which = UpTo(GetParam().num_requests - 1);
      Request request = requests_[which];
      if (request.beam_width > engine.config().max_num_seqs) continue;
      request.priority = UpTo(2) - 1;
      request.keep_logits &= keep_logits;
      const int64_t id = engine.Add(std::move(request)).value();
      ids[id] = which;
      for (int steps = UpTo(3); steps > 0; --steps) engine.Step();
      if (UpTo(5) == 0) {
        const int sample = UpTo(3) - 1;
        engine.Abort(id, sample < 0 ? std::nullopt : std::optional(sample));
      }
    }
    while (engine.HasWork()) engine.Step();
    return ids;
  }

  static void ExpectSamePromptLogprobs(const Completion& a, const Completion& b) {
    ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size());
    for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
      ASSERT_EQ(a.prompt_logprobs[i].chosen, b.prompt_logprobs[i].chosen) << "token " << i + 1;
      ASSERT_EQ(a.prompt_logprobs[i].rank, b.prompt_logprobs[i].rank) << "token " << i + 1;
      ASSERT_EQ(a.prompt_logprobs[i].top, b.prompt_logprobs[i].top) << "token " << i + 1;
    }
  }

  static constexpr int kMostRows = 12;  // most picture rows of a request

  std::mt19937 rng_{77};
  std::vector<Request> requests_;
};

TEST_P(RandomScheduleTest, EveryRequestGetsTheBitsItGetsAloneAndCold) {
  const auto alone = Create(AloneConfig());
  ASSERT_NE(alone, nullptr);
  std::vector<std::vector<Completion>> expected;
  for (int i = 0; i < GetParam().num_requests; ++i) {
    const int vocab = GetParam().has_vision ? test::kVisionTokens.image_pad : Vocab(*alone);
    requests_.push_back(RandomRequest(i, vocab));
    expected.push_back(RunAlone(*alone, requests_.back()));
  }
  int64_t preempted = 0, hits = 0, searches = 0;
  for (int scenario = 0; scenario < GetParam().num_scenarios; ++scenario) {
    const auto engine = Create(RandomConfig(scenario));
    ASSERT_NE(engine, nullptr);
    const bool compares_bits = UpTo(1) == 0;  // the engine does not run ahead of kept logits
    for (const auto& [id, which] : RunSome(*engine, compares_bits)) {
      const bool is_search = requests_[which].beam_width > 1;
      for (int sample = 0; sample < requests_[which].num_samples; ++sample) {
        const Completion c = engine->Take(id, sample).value();
        if (c.finish == FinishReason::kInterrupt) continue;
        searches += is_search;
        const Completion& cold = expected[which][sample];
        ASSERT_EQ(c.tokens, cold.tokens) << "scenario " << scenario;
        ASSERT_EQ(c.score, cold.score) << "scenario " << scenario;
        ExpectSamePromptLogprobs(c, cold);
        if (!compares_bits || is_search) continue;
        ExpectSameBits(c, cold, "scenario " + std::to_string(scenario));
      }
    }
    const KvStats stats = engine->kv_stats();
    preempted += stats.preempted_recompute + stats.preempted_swap;
    hits += stats.hits;
  }
  EXPECT_GE(preempted, GetParam().num_scenarios / 3);
  EXPECT_GE(hits, GetParam().num_scenarios / 3);
  EXPECT_GE(searches, GetParam().num_scenarios / 3);
}

INSTANTIATE_TEST_SUITE_P(Devices, RandomScheduleTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           std::string name = DeviceName(info.param.device);
                           for (char& c : name) c = c == ':' ? '_' : c;
                           return name + (info.param.has_vision ? "_sees" : "");
                         });

}  // namespace
}  // namespace kuiper
