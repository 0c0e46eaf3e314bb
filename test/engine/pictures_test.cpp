// Engines with a vision encoder: logits of transformers, and the guarantees of docs/architecture.md
// with pictures in the prompt. Every comparison of two engines is of token ids and of logit bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kuiper/model/safetensors.h"
#include "test/engine/picture_engines.h"

namespace kuiper {
namespace {

using test::BaseConfig;
using test::FindPrompt;
using test::HardPrompts;
using test::ImageIds;
using test::Joined;
using test::MakePicture;
using test::MakeRequest;
using test::Parts;
using test::PicturePrompt;
using test::PicturePrompts;
using test::PicturesTest;
using test::TextIds;

INSTANTIATE_TEST_SUITE_P(Devices, PicturesTest, ::testing::ValuesIn(CpuAndAccelerators()),
                         NameOfDevice);

TEST_P(PicturesTest, LogitsAndIdsAreThoseOfTransformers) {
  EngineConfig config = Config();
  config.prompt_logits = true;
  const auto file = SafetensorsFile::Open(test::TinyVision() + "/logits.safetensors").value();
  for (const int chunk : {512, 5}) {
    config.max_num_batched_tokens = chunk;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    for (const PicturePrompt& prompt : PicturePrompts()) {
      const std::string_view bytes = file->Bytes(file->header().tensors.at(prompt.name));
      std::vector<float> expected(bytes.size() / sizeof(float));
      std::memcpy(expected.data(), bytes.data(), bytes.size());
      double worst = 0;
      const Status done = engine->Logits(
          prompt.ids,
          [&](int position, const float* row) {
            for (int i = 0; i < Vocab(*engine); ++i) {
              worst = std::max(worst,
                               std::abs(double{row[i]} - expected[position * Vocab(*engine) + i]));
            }
          },
          0, prompt.pictures);
      ASSERT_TRUE(done.ok()) << done.message();
      EXPECT_LE(worst, 1e-4) << prompt.name;
      Request request = MakeRequest(prompt, static_cast<int>(prompt.greedy.size()));
      EXPECT_EQ(RunToEnd(*engine, request).tokens, prompt.greedy) << prompt.name;
    }
  }
}

TEST_P(PicturesTest, PagedEqualsContiguous) {
  EngineConfig config = Config();
  config.paged = false;
  const auto contiguous = Create(config);
  ASSERT_NE(contiguous, nullptr);
  config.paged = true;
  std::vector<Completion> expected;
  for (const PicturePrompt& prompt : HardPrompts()) {
    expected.push_back(RunToEnd(*contiguous, MakeRequest(prompt)));
  }
  for (const int page : {1, 16, 256}) {
    config.page_size = page;
    const auto paged = Create(config);
    ASSERT_NE(paged, nullptr);
    size_t next = 0;
    for (const PicturePrompt& prompt : HardPrompts()) {
      ExpectSameBits(RunToEnd(*paged, MakeRequest(prompt)), expected[next++],
                     prompt.name + ", page size " + std::to_string(page));
    }
  }
}

// Chunks end at every row of every picture; so do pages, at b - 1, b, b + 1 and 3 b + 1 tokens.
TEST_P(PicturesTest, ChunkedEqualsWhole) {
  const auto whole = Create(Config());
  ASSERT_NE(whole, nullptr);
  for (const bool paged : {false, true}) {
    for (const int chunk : Some({1, 5, 16})) {
      EngineConfig config = Config();
      config.paged = paged;
      config.page_size = 4;
      config.max_num_batched_tokens = chunk;
      const auto chunked = Create(config);
      ASSERT_NE(chunked, nullptr);
      for (const PicturePrompt& prompt : HardPrompts()) {
        ExpectSameBits(RunToEnd(*chunked, MakeRequest(prompt)),
                       RunToEnd(*whole, MakeRequest(prompt)),
                       prompt.name + ", chunk " + std::to_string(chunk));
      }
    }
  }
  for (const int before : {3, 4, 5, 13}) {  // pages of 8: picture at the begin, end, across
    EngineConfig config = Config();
    config.page_size = 8;
    config.max_num_batched_tokens = 7;
    const auto chunked = Create(config);
    const PatchGrid grid{1, 4, 4};
    for (const int behind : {0, 1, 8, 17}) {
      const PicturePrompt prompt =
          Joined("edge", {TextIds("before", before), ImageIds(grid), TextIds("behind", behind)},
                 {MakePicture("edge", grid)});
      ExpectSameBits(RunToEnd(*chunked, MakeRequest(prompt)), RunToEnd(*whole, MakeRequest(prompt)),
                     std::to_string(before) + " before, " + std::to_string(behind) + " behind");
    }
  }
}

TEST_P(PicturesTest, GraphEqualsEager) {
  for (const bool paged : {false, true}) {
    EngineConfig config = Config();
    config.paged = paged;
    config.max_num_seqs = 3;
    const auto eager = Create(config);
    config.use_graph = true;
    config.warm_up = true;
    const auto graph = Create(config);
    ASSERT_TRUE(eager != nullptr && graph != nullptr);
    std::vector<Request> requests;
    for (const PicturePrompt& prompt : HardPrompts()) {
      requests.push_back(MakeRequest(prompt, 6 + static_cast<int>(prompt.ids.size()) % 7));
    }
    const std::vector<Completion> completions = RunTogether(*graph, requests);
    EXPECT_GT(graph->run_facts().steps_replayed, 10);
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectSameBits(completions[i], RunToEnd(*eager, requests[i]), "request " + std::to_string(i));
    }
  }
}

// Pictures and text arrive while others run; the encoder's rows have room for little more than one.
TEST_P(PicturesTest, BatchedEqualsAlone) {
  for (const bool paged : {false, true}) {
    EngineConfig config = Config();
    config.paged = paged;
    config.page_size = 8;
    const auto alone = Create(config);
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 20;
    config.vision_cache_tokens = 36;
    config.prefix_cache = paged;
    const auto batched = Create(config);
    ASSERT_TRUE(alone != nullptr && batched != nullptr);
    std::vector<Request> requests;
    for (int round = 0; round < 2; ++round) {
      for (const PicturePrompt& prompt : HardPrompts()) {
        requests.push_back(MakeRequest(prompt, 3 + static_cast<int>(requests.size()) % 9));
        Request& request = requests.back();
        request.sampling.temperature = requests.size() % 3 == 0 ? 0.f : 0.8f;
        request.sampling.seed = requests.size();
        request.sampling.repetition_penalty = requests.size() % 4 == 1 ? 1.2f : 1.f;
        request.priority = static_cast<int>(requests.size()) % 2;
      }
    }
    const std::vector<Completion> completions = RunTogether(*batched, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectSameBits(completions[i], RunToEnd(*alone, requests[i]),
                     "request " + std::to_string(i) + (paged ? " paged" : " contiguous"));
    }
  }
}

// A prompt again, up to every token of it, after one whose first picture is another.
TEST_P(PicturesTest, CachedEqualsCold) {
  const auto cold = Create(Config());
  ASSERT_NE(cold, nullptr);
  for (const bool paged : {false, true}) {
    for (const int page : Some({1, 4, 16})) {
      EngineConfig config = Config();
      config.paged = paged;
      config.page_size = page;
      config.prefix_cache = true;
      const auto cached = Create(config);
      ASSERT_NE(cached, nullptr);
      for (const std::string name : {"three", "wide", "video", "both"}) {
        const PicturePrompt prompt = FindPrompt(name);
        const std::string what = name + ", page size " + std::to_string(page);
        PicturePrompt other = prompt;
        other.pictures[0] = MakePicture("another", prompt.pictures[0].grid);
        const Completion of_other = RunToEnd(*cached, MakeRequest(other));
        const Completion first = RunToEnd(*cached, MakeRequest(prompt));
        // Pages before the first pad are shared, and none after it.
        const auto pad = std::find_if(prompt.ids.begin(), prompt.ids.end(),
                                      [](int32_t id) { return id == 90 || id == 91; });
        const int before = static_cast<int>(pad - prompt.ids.begin());
        EXPECT_LE(first.cached_tokens, before) << what;
        if (paged) {
          EXPECT_GE(first.cached_tokens, before / page * page) << what;
        }
        const Completion again = RunToEnd(*cached, MakeRequest(prompt));
        const int most = static_cast<int>(prompt.ids.size()) - 1;
        EXPECT_GE(again.cached_tokens, paged ? most / page * page : most) << what;
        ExpectSameBits(of_other, RunToEnd(*cold, MakeRequest(other)), what + ", other");
        const Completion expected = RunToEnd(*cold, MakeRequest(prompt));
        ExpectSameBits(first, expected, what + ", first");
        ExpectSameBits(again, expected, what + ", again");
        EXPECT_NE(of_other.logits, expected.logits) << what;
      }
    }
  }
}

// The previous request was aborted after each number of tokens, so also within the picture.
TEST_P(PicturesTest, AHitThatEndsWithinAPictureEqualsCold) {
  const PicturePrompt prompt = FindPrompt("middle");
  const Request request = MakeRequest(prompt);
  const Completion cold = RunToEnd(*Create(Config()), request);
  for (const bool paged : {false, true}) {
    EngineConfig config = Config();
    config.paged = paged;
    config.page_size = 1;
    config.prefix_cache = true;
    config.max_num_batched_tokens = 1;
    config.run_ahead = false;
    for (int computed = 4; computed < 14; ++computed) {
      const auto engine = Create(config);
      const int64_t id = engine->Add(request).value();
      for (int i = 0; i < computed; ++i) engine->Step();
      engine->Abort(id);
      while (engine->HasWork()) engine->Step();
      const Completion warm = RunToEnd(*engine, request);
      EXPECT_EQ(warm.cached_tokens, computed);
      ExpectSameBits(warm, cold, std::to_string(computed) + (paged ? " paged" : " contiguous"));
    }
  }
}

// The pool is too small for two requests: they preempt each other, also within pictures.
TEST_P(PicturesTest, PreemptedEqualsAlone) {
  EngineConfig config = Config();
  config.page_size = 4;
  const auto alone = Create(config);
  ASSERT_NE(alone, nullptr);
  std::vector<Request> requests;
  std::vector<Completion> expected;
  for (const std::string name : {"start", "middle", "text", "two", "three", "end"}) {
    requests.push_back(MakeRequest(FindPrompt(name), 14));
    requests.back().sampling.temperature = requests.size() % 2 == 0 ? 0.f : 0.8f;
    expected.push_back(RunToEnd(*alone, requests.back()));
  }
  config.max_num_seqs = 6;
  config.max_num_batched_tokens = 7;
  config.num_blocks = 13;
  config.vision_cache_tokens = 17;
  for (const bool prefix_cache : {false, true}) {
    for (const Preemption how : {Preemption::kRecompute, Preemption::kSwap}) {
      config.preemption = how;
      config.prefix_cache = prefix_cache;
      const auto crowded = Create(config);
      ASSERT_NE(crowded, nullptr);
      const std::vector<Completion> completions = RunTogether(*crowded, requests);
      const KvStats stats = crowded->kv_stats();
      EXPECT_GE(how == Preemption::kSwap ? stats.preempted_swap : stats.preempted_recompute, 1);
      for (size_t i = 0; i < requests.size(); ++i) {
        ExpectSameBits(completions[i], expected[i],
                       "request " + std::to_string(i) +
                           (how == Preemption::kSwap ? " swapped" : " recomputed"));
      }
    }
  }
}

// Preempted explicitly after every number of steps, so also within the picture.
TEST_P(PicturesTest, PreemptedWithinAPictureEqualsNeverPreempted) {
  EngineConfig config = Config();
  config.page_size = 4;
  config.max_num_batched_tokens = 3;
  config.run_ahead = false;
  config.preemption = Preemption::kSwap;
  const auto alone = Create(config);
  const Request request = MakeRequest(FindPrompt("two"));
  const Completion expected = RunToEnd(*alone, request);
  for (const Preemption how : {Preemption::kRecompute, Preemption::kSwap}) {
    for (int steps = 1; steps < 9; ++steps) {
      const auto parts = Parts(config);
      const int64_t id = parts->requests->Add(request).value();
      for (int i = 0; i < steps; ++i) parts->steps->Step();
      parts->scheduler->Preempt(1, how);
      while (!parts->requests->empty()) parts->steps->Step();
      ExpectSameBits(parts->requests->Take(id, 0).value(), expected,
                     std::to_string(steps) + " steps");
    }
  }
}

TEST_P(PicturesTest, SamplesAndBeamsEqualThoseAlone) {
  for (const bool paged : {false, true}) {
    EngineConfig config = Config();
    config.paged = paged;
    config.page_size = 4;
    config.max_num_seqs = 4;
    const auto alone = Create(config);
    config.max_num_batched_tokens = 9;
    config.num_blocks = 24;
    config.vision_cache_tokens = 40;
    const auto engine = Create(config);
    ASSERT_TRUE(alone != nullptr && engine != nullptr);
    for (const PicturePrompt& prompt : HardPrompts()) {
      Request samples = MakeRequest(prompt, 6);
      samples.sampling.temperature = 0.9f;
      samples.sampling.seed = 3;
      samples.num_samples = 3;
      const std::vector<Completion> answers = RunSamples(*engine, samples);
      for (int i = 0; i < 3; ++i) {
        Request one = samples;
        one.num_samples = 1;
        one.sampling.seed = 3 + i;
        ExpectSameBits(answers[i], RunToEnd(*alone, one), prompt.name + " " + std::to_string(i));
      }
      Request beams = MakeRequest(prompt, 6);
      beams.keep_logits = false;
      beams.beam_width = 3;
      const Completion best = RunSamples(*engine, beams).at(0);
      const Completion expected = RunSamples(*alone, beams).at(0);
      EXPECT_EQ(best.tokens, expected.tokens) << prompt.name;
      EXPECT_EQ(best.score, expected.score) << prompt.name;
    }
  }
}

// Requests of one picture and one system prompt decode together.
TEST_P(PicturesTest, CascadeEqualsEachByItself) {
  EngineConfig config = Config();
  config.max_context = 320;
  config.page_size = 16;
  const auto alone = Create(config);
  config.max_num_seqs = 3;
  config.prefix_cache = true;
  config.cascade_attention = true;
  const auto engine = Create(config);
  const PatchGrid grid{1, 20, 24};
  const VisionInput picture = MakePicture("large", grid);
  std::vector<Request> requests;
  for (const std::string question : {"a", "b", "c"}) {
    const PicturePrompt prompt =
        Joined(question, {TextIds("system", 30), ImageIds(grid), TextIds(question, 9)}, {picture});
    requests.push_back(MakeRequest(prompt, 12));
  }
  const std::vector<Completion> completions = RunTogether(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSameBits(completions[i], RunToEnd(*alone, requests[i]), "question " + std::to_string(i));
  }
}

}  // namespace
}  // namespace kuiper
