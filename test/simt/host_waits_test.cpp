// Counts of the emulated device about the host's waits: whether the device ever waits for the host.
#include <gtest/gtest.h>

#include "emulator/runtime.h"
#include "kuiper/engine/engine.h"
#include "test/engine/picture_engines.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

std::unique_ptr<Engine> MakeEngine(bool run_ahead) {
  EngineConfig config;
  config.model_path = test::Source("test/data/goldens/qwen3-gqa2-d128-f32");
  config.device = {DeviceType::kSimt, 0};
  config.need_tokenizer = false;
  config.max_context = 64;
  config.use_graph = true;
  config.run_ahead = run_ahead;
  return Create(config);
}

Request MakeRequest(const Engine& engine, int new_tokens) {
  Request request;
  request.prompt = Prompt(20, Vocab(engine));
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  return request;
}

simt::HostWaits WaitsOf(Engine& engine, const Request& request) {
  const simt::HostWaits before = simt::CurrentHostWaits();
  RunToEnd(engine, request);
  simt::HostWaits waits = simt::CurrentHostWaits();
  waits.syncs -= before.syncs;
  waits.events -= before.events;
  waits.idle -= before.idle;
  return waits;
}

// The host waits once per step, for its tokens. By then the next step is queued, so the device runs
// one replay after another. Only the last step has no successor.
TEST(HostWaitsTest, ReplaysFollowEachOtherWithoutHostSynchronisation) {
  constexpr int kSteps = 12;
  const auto engine = MakeEngine(true);
  ASSERT_NE(engine, nullptr);
  RunToEnd(*engine, MakeRequest(*engine, 3));  // captures the graph
  const simt::HostWaits waits = WaitsOf(*engine, MakeRequest(*engine, kSteps));
  EXPECT_EQ(waits.syncs, 0u);
  EXPECT_EQ(waits.events, unsigned{kSteps});
  EXPECT_EQ(waits.idle, 1u);
}

TEST(HostWaitsTest, WithoutRunAheadTheDeviceIsIdleAfterEachStep) {
  constexpr int kSteps = 12;
  const auto engine = MakeEngine(false);
  ASSERT_NE(engine, nullptr);
  RunToEnd(*engine, MakeRequest(*engine, 3));
  const simt::HostWaits waits = WaitsOf(*engine, MakeRequest(*engine, kSteps));
  EXPECT_EQ(waits.syncs, 0u);
  EXPECT_EQ(waits.idle, unsigned{kSteps});
}

// A request that reads logits or whose next token depends on the last one makes the host wait.
TEST(HostWaitsTest, StepsWaitForTheHostWhereItHasWorkToDo) {
  const auto engine = MakeEngine(true);
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest(*engine, 6);
  request.sampling.repetition_penalty = 1.1f;
  EXPECT_EQ(WaitsOf(*engine, request).idle, 6u);
  request = MakeRequest(*engine, 6);
  request.num_logprobs = 1;
  const simt::HostWaits waits = WaitsOf(*engine, request);
  EXPECT_EQ(waits.idle, 6u);
  EXPECT_EQ(waits.syncs, 6u) << "one per row of logits";
}

// An image is encoded after the step in flight, and timed without a wait.
TEST(HostWaitsTest, EncodingAPictureDoesNotWait) {
  const auto engine = Create(test::BaseConfig({DeviceType::kSimt, 0}));
  Request request = test::MakeRequest(test::FindPrompt("two"), 4);
  request.keep_logits = false;
  const double before = engine->run_facts().encode_ms;
  const simt::HostWaits waits = WaitsOf(*engine, request);
  EXPECT_EQ(waits.syncs, 0u);
  EXPECT_EQ(engine->run_facts().pictures_encoded, 2);
  EXPECT_GT(engine->run_facts().encode_ms, before);
}

}  // namespace
}  // namespace kuiper
