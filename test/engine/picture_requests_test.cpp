// How an engine handles pictures: cached rows, refused requests, memory.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "kuiper/kernels/cpu/host_memory.h"
#include "test/engine/picture_engines.h"

namespace kuiper {
namespace {

using test::BaseConfig;
using test::FindPrompt;
using test::Ids;
using test::ImageIds;
using test::Joined;
using test::kContext;
using test::MakePicture;
using test::MakeRequest;
using test::Parts;
using test::PicturePrompt;
using test::PicturesTest;
using test::TextIds;

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
  EXPECT_EQ(run(of("c")), 3);  // evicts b
  EXPECT_EQ(run(of("a")), 3);
  EXPECT_EQ(run(of("b")), 4);
  EXPECT_EQ(run(Joined("twice", {ImageIds(grid), ImageIds(grid)},
                       {MakePicture("d", grid), MakePicture("d", grid)})),
            5);
}

// Prompts of one salt share keys and values, prompts of salts that differ anywhere do not.
TEST(PictureRequestTest, SaltsAreComparedAsAWhole) {
  const PatchGrid grid{1, 4, 6};
  const PicturePrompt text = Joined("text", {TextIds("t", 20)}, {});
  const PicturePrompt picture = Joined("picture", {Ids(6, test::kVisionTokens.image_pad), text.ids},
                                       {MakePicture("a", grid)});
  for (const PicturePrompt& prompt : {text, picture}) {
    EngineConfig config = BaseConfig();
    config.page_size = 4;
    config.prefix_cache = true;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    const auto num_cached = [&](const std::string& salt) {
      Request request = MakeRequest(prompt, 1);
      request.cache_salt = salt;
      return RunToEnd(*engine, request).cached_tokens;
    };
    const int most = (static_cast<int>(prompt.ids.size()) - 1) / 4 * 4;
    for (const char* salt : {"", "ab", "ac", "bb", "a", "abc", "b"}) {
      EXPECT_EQ(num_cached(salt), 0) << prompt.name << ", salt \"" << salt << "\"";
      EXPECT_EQ(num_cached(salt), most) << prompt.name << ", salt \"" << salt << "\" again";
    }
  }
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
  EXPECT_EQ(error(prompt).message(), "the prompt has 1 pad without a picture");
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

// Everything allocated for a request is released if it is refused, aborted or done.
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
  // All rows are free: a request that needs all of them runs.
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
