// SchedulingPolicy::kLatency changes no bit of an answer, although a clock decides the chunk sizes
// and prompts use other kernels on devices.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr int kPage = 16;

struct Variant {
  bool paged = true, graph = false, beside_another = false;
  double target_ms = 50;
};

EngineConfig Config(Device device, const Variant& variant) {
  EngineConfig config = GoldenConfig();
  config.device = device;
  config.dtype = DType::kBF16;
  config.page_size = kPage;
  config.max_context = 128;
  config.max_num_seqs = 2;
  config.policy = SchedulingPolicy::kLatency;
  config.latency_target_ms = variant.target_ms;
  config.paged = variant.paged;
  config.use_graph = variant.graph;
  return config;
}

Request MakeRequest(const Engine& engine, int prompt, int new_tokens, int seed) {
  Request request;
  request.prompt = Prompt(prompt, Vocab(engine), seed);
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

// Returns the answer to a prompt that arrives while another sequence decodes, or while none does.
Completion Answer(const EngineConfig& config, int prompt, bool beside_another) {
  const auto engine = Create(config);
  if (engine == nullptr) return {};
  if (!beside_another) return RunToEnd(*engine, MakeRequest(*engine, prompt, 6, 2));
  EXPECT_TRUE(engine->Add(MakeRequest(*engine, 20, 100, 1)).ok());
  while (engine->Step().empty()) continue;
  const auto id = engine->Add(MakeRequest(*engine, prompt, 6, 2));
  EXPECT_TRUE(id.ok());
  for (bool done = false; !done;) {
    for (const TokenEvent& event : engine->Step()) {
      done = done || (event.request == *id && event.finish != FinishReason::kNone);
    }
  }
  return engine->Take(*id).value();
}

TEST(LatencyTest, NeighboursChunksPagesAndGraphsChangeNoBit) {
  std::vector<Device> devices = Accelerators();
  devices.push_back({});
  for (const Device device : devices) {
    for (const int prompt : {kPage - 1, kPage, kPage + 1, 3 * kPage}) {
      const Completion alone = Answer(Config(device, {.paged = false}), prompt, false);
      for (const Variant& v : {Variant{}, Variant{.beside_another = true},
                               Variant{.graph = true, .beside_another = true},
                               Variant{.paged = false, .beside_another = true},
                               Variant{.beside_another = true, .target_ms = 1e-6}}) {
        ExpectSameBits(Answer(Config(device, v), prompt, v.beside_another), alone,
                       DeviceName(device) + ", prompt of " + std::to_string(prompt) +
                           (v.paged ? ", paged" : "") + (v.graph ? ", graph" : "") +
                           (v.beside_another ? ", beside another" : ""));
      }
    }
  }
}

// Prompt rows use the kernels of decode steps: bits and scratch memory are those of strict mode,
// which has no other kernels.
TEST(LatencyTest, PromptsOnDevicesTakeTheKernelsOfDecodeSteps) {
  for (const Device device : Accelerators()) {
    EngineConfig config = Config(device, {});
    const Completion latency = Answer(config, 3 * kPage, false);
    config.policy = SchedulingPolicy::kThroughput;
    config.ops.determinism = Determinism::kStrict;
    ExpectSameBits(Answer(config, 3 * kPage, false), latency, "strict");
    config.ops.determinism = Determinism::kOn;
    const auto both_kinds = Create(config);
    config.policy = SchedulingPolicy::kLatency;
    const auto one_kind = Create(config);
    ASSERT_TRUE(both_kinds != nullptr && one_kind != nullptr);
    EXPECT_LT(one_kind->memory_plan().workspace_bytes, both_kinds->memory_plan().workspace_bytes);
  }
}

TEST(LatencyTest, TheTargetIsChecked) {
  for (const double target : {0.0, -1.0}) {
    EngineConfig config = Config({}, {});
    config.latency_target_ms = target;
    const auto engine = Engine::Create(config);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kuiper
