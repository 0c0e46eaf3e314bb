// Engines that see: logits of transformers, and the guarantees of docs/architecture.md with
// pictures in the prompt. Every comparison of two engines is of token ids and of logit bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "kuiper/engine/engine.h"
#include "kuiper/engine/engine_parts.h"
#include "kuiper/kernels/cpu/host_memory.h"
#include "kuiper/model/safetensors.h"
#include "test/engine/engine_test_util.h"
#include "test/engine/picture_test_util.h"

namespace kuiper {
namespace {

using test::FindPrompt;
using test::ImageIds;
using test::MakePicture;
using test::PicturePrompt;
using test::PicturePrompts;
using test::TextIds;
using Ids = std::vector<int32_t>;

constexpr int kNewTokens = 10;
constexpr int kContext = 96;

EngineConfig BaseConfig(Device device = {}) {
  EngineConfig config;
  config.model_path = test::TinyVision();
  config.need_tokenizer = false;
  config.device = device;
  config.ops.num_threads = 1;
  config.max_context = kContext;
  return config;
}

Request MakeRequest(const PicturePrompt& prompt, int new_tokens = kNewTokens) {
  Request request;
  request.prompt = prompt.ids;
  request.images = prompt.pictures;
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

PicturePrompt Joined(const std::string& name, const std::vector<Ids>& parts,
                     std::vector<VisionInput> pictures) {
  PicturePrompt prompt;
  prompt.name = name;
  for (const Ids& part : parts) prompt.ids.insert(prompt.ids.end(), part.begin(), part.end());
  prompt.pictures = std::move(pictures);
  return prompt;
}

// An image ends the prompt with its last pad, stands alone, or twice, with another between.
std::vector<PicturePrompt> HardPrompts() {
  const PatchGrid grid{1, 4, 6}, other{1, 6, 4};
  const VisionInput a = MakePicture("a", grid), b = MakePicture("b", other);
  std::vector<PicturePrompt> prompts = PicturePrompts();
  const Ids pads(6, test::kVisionTokens.image_pad);
  prompts.push_back(Joined("pads last", {TextIds("p", 3), pads}, {a}));
  prompts.push_back(Joined("pads alone", {pads}, {a}));
  prompts.push_back(Joined(
      "twice", {TextIds("q", 3), ImageIds(grid), ImageIds(other), ImageIds(grid), TextIds("r", 4)},
      {a, b, a}));
  return prompts;
}

std::unique_ptr<EngineParts> Parts(const EngineConfig& config) {
  auto parts = MakeEngineParts(config, OpenModel(config.model_path).value());
  EXPECT_TRUE(parts.ok()) << parts.status().message();
  return std::move(parts).value();
}

class PicturesTest : public ::testing::TestWithParam<Device> {
 protected:
  EngineConfig Config() const { return BaseConfig(GetParam()); }
  // The emulated device takes a while: there the middle one has to do.
  std::vector<int> Some(std::vector<int> values) const {
    return GetParam().type == DeviceType::kSimt ? std::vector{values[values.size() / 2]} : values;
  }
};

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
  for (const int before : {3, 4, 5, 13}) {  // of pages of 8: the picture begins, ends, crosses
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
        // What stands before the first pad is shared, and nothing behind it.
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

// The request before was aborted after each number of tokens, so also within the picture.
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

// A pool for less than two of the requests: they push each other out, within pictures as well.
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

// Put back by hand after every number of steps, so also within the picture.
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

TEST_P(PicturesTest, APictureIsEncodedOnceAndItsRowsAreKept) {
  EngineConfig config = Config();
  config.vision_cache_tokens = 12;
  const auto parts = Parts(config);
  const auto run = [&](const PicturePrompt& prompt) {
    const int64_t id = parts->requests->Add(MakeRequest(prompt, 2)).value();
    while (!parts->requests->empty()) parts->steps->Step();
    EXPECT_TRUE(parts->requests->Take(id, 0).value().error.ok());
    return parts->pictures->num_encoded();
  };
  const PatchGrid grid{1, 4, 6};
  const auto of = [&](const std::string& name) {
    return Joined(name, {ImageIds(grid), TextIds("t", 3)}, {MakePicture(name, grid)});
  };
  EXPECT_EQ(run(of("a")), 1);
  EXPECT_EQ(run(of("a")), 1);
  EXPECT_EQ(run(of("b")), 2);
  EXPECT_EQ(run(of("a")), 2);
  EXPECT_EQ(run(of("c")), 3);  // b goes
  EXPECT_EQ(run(of("a")), 3);
  EXPECT_EQ(run(of("b")), 4);
  EXPECT_EQ(run(Joined("twice", {ImageIds(grid), ImageIds(grid)},
                       {MakePicture("d", grid), MakePicture("d", grid)})),
            5);
}

TEST(PictureRequestTest, WhatCannotBeServedIsRefused) {
  EngineConfig config = BaseConfig();
  config.image_max_tokens = 20;
  config.vision_cache_tokens = 30;
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  const auto error = [&](const PicturePrompt& prompt) {
    return engine->Add(MakeRequest(prompt)).status();
  };
  PicturePrompt prompt = FindPrompt("middle");
  EXPECT_TRUE(error(prompt).ok());
  prompt.ids.push_back(90);
  EXPECT_EQ(error(prompt).message(), "the prompt has 1 pads of pictures that are not there");
  EXPECT_EQ(error(FindPrompt("wide")).code(), StatusCode::kInput);
  EXPECT_EQ(error(FindPrompt("wide")).message(),
            "wide.image0 takes 35 tokens; a frame may take 20");
  const PatchGrid grid{1, 8, 8};
  prompt = Joined("many", {ImageIds(grid), ImageIds(grid)},
                  {MakePicture("a", grid), MakePicture("b", grid)});
  EXPECT_EQ(error(prompt).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(error(prompt).message(), "the pictures take 32 tokens; 30 are kept at a time");
  prompt.pictures[1] = prompt.pictures[0];
  EXPECT_TRUE(error(prompt).ok()) << "the same one twice";

  const auto damaged = [&](const auto& damage) {
    PicturePrompt changed = FindPrompt("middle");
    damage(&changed.pictures[0]);
    return error(changed).code();
  };
  const StatusCode bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(damaged([](VisionInput* p) { p->patches.pop_back(); }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->patches.clear(); }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->grid = {1, 3, 8}; }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->grid = {0, 4, 6}; }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->grid.h = 1 << 30; }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->merge_size = 1; }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->merge_size = 0; }), bad);
  EXPECT_EQ(damaged([](VisionInput* p) { p->seconds = {1, 2}; }), bad);

  config.on_full = OnFull::kSlide;
  const auto sliding = Create(config);
  EXPECT_EQ(sliding->Add(MakeRequest(FindPrompt("middle"))).status().code(), bad);
  EXPECT_TRUE(sliding->Add(MakeRequest(FindPrompt("text"))).ok());
  config.image_max_tokens = 0;
  const auto blind = Create(config);
  EXPECT_EQ(blind->Add(MakeRequest(FindPrompt("middle"))).status().code(), bad);
  EXPECT_EQ(blind->memory_plan().encoder_bytes + blind->memory_plan().picture_bytes, 0u);
  EXPECT_GT(engine->memory_plan().encoder_bytes, 0u);
  const auto text_only = Create(GoldenConfig());
  EXPECT_EQ(text_only->Add(MakeRequest(FindPrompt("middle"))).status().code(), bad);
}

// What was taken for a request that is refused, aborted or done is given back.
TEST(PictureRequestTest, NothingIsLeftOfRequestsThatEnded) {
  EngineConfig config = BaseConfig();
  config.max_num_batched_tokens = 4;
  config.vision_cache_tokens = 12;
  const auto parts = Parts(config);
  Request too_long = MakeRequest(FindPrompt("two"));
  too_long.prompt.resize(kContext, 5);
  EXPECT_EQ(parts->requests->Add(too_long).status().code(), StatusCode::kContextExceeded);
  for (int steps = 0; steps < 6; ++steps) {
    const int64_t id = parts->requests->Add(MakeRequest(FindPrompt("two"))).value();
    for (int i = 0; i < steps; ++i) parts->steps->Step();
    parts->requests->Abort(id, std::nullopt);
    while (!parts->requests->empty()) parts->steps->Step();
    EXPECT_TRUE(parts->requests->Take(id, 0).ok());
  }
  // All of the place is free: a request that needs it runs.
  const PatchGrid grid{1, 6, 8};
  const int64_t id =
      parts->requests->Add(MakeRequest(Joined("fills", {ImageIds(grid)}, {MakePicture("f", grid)})))
          .value();
  while (!parts->requests->empty()) parts->steps->Step();
  EXPECT_EQ(parts->requests->Take(id, 0)->finish, FinishReason::kLength);
  EXPECT_EQ(parts->pictures->cache().num_resident_rows(), 12);
}

TEST(PictureRequestTest, MemoryIsThatOfThePlan) {
  for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kBF16)}) {
    EngineConfig config = BaseConfig();
    config.dtype = dtype;
    config.max_context = 400;
    const PatchGrid grid{1, 20, 36};
    config.vision_cache_tokens = 2 * grid.num_patches() / 4;
    const size_t before = cpu::AllocatedBytes();
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    const MemoryPlan& plan = engine->memory_plan();
    const double mapped = dtype.has_value() ? 0 : static_cast<double>(plan.weight_bytes);
    const auto allocated = [&] {
      return mapped + static_cast<double>(cpu::AllocatedBytes() - before);
    };
    const double total = static_cast<double>(plan.total_bytes());
    EXPECT_NEAR((total - static_cast<double>(plan.picture_bytes)) / allocated(), 1, 0.02);
    for (const std::string name : {"a", "b", "c"}) {
      RunToEnd(*engine, MakeRequest(Joined(name, {ImageIds(grid)}, {MakePicture(name, grid)}), 1));
    }
    EXPECT_NEAR(total / allocated(), 1, 0.02);
  }
}

TEST(PictureRequestTest, RowsOfAPictureAreGivenOut) {
  const auto engine = Create(BaseConfig());
  const PicturePrompt prompt = FindPrompt("middle");
  const auto rows = engine->EncodePicture(prompt.pictures[0]);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  const ModelConfig& model = engine->model_config();
  EXPECT_EQ(rows->size(), 6u * (1 + model.vision->num_deepstack()) * model.decoder.hidden);
  EXPECT_FALSE(engine->EncodePicture(MakePicture("x", {1, 3, 3})).ok());
}

}  // namespace
}  // namespace kuiper
