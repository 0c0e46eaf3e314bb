// Cascade attention in whole engines: requests that share a system prompt, and forks, give the same
// bits as alone without it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/engine/shared_pages.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

// Room for two system prompts. Splits of CUDA (128 tokens) and tiles of the CPU (64) end within the
// prompts.
constexpr int kSystemTokens = 130;
static_assert(kSystemTokens > kMinSharedTokens);

EngineConfig Config(Device device, int page_size, bool graph, AttentionKind attention) {
  EngineConfig config = GoldenConfig(device.type == DeviceType::kCPU ? "qwen3-gqa2-d64-long-f32"
                                                                     : "qwen3-gqa2-d128-bf16");
  config.device = device;
  config.ops.num_threads = 2;
  config.ops.attention = attention;
  config.page_size = page_size;
  config.max_num_seqs = 7;
  config.use_graph = graph;
  config.prefix_cache = true;
  return config;
}

// A question after one of two system prompts; the lengths are around multiples of 8 and 16.
Request Ask(const Engine& engine, int question, int new_tokens, int num_samples) {
  Request request;
  request.prompt = Prompt(kSystemTokens, Vocab(engine), 100 + question % 2);
  const std::vector<int32_t> tail = Prompt(12 + question, Vocab(engine), question);
  request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
  request.max_new_tokens = new_tokens;
  request.num_samples = num_samples;
  request.ignore_eos = true;
  request.keep_logits = true;
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 17;
  return request;
}

// The system prompts first, so that the others find them in the prefix cache; then all at once.
std::vector<Completion> AskAll(Engine& engine, int questions, int new_tokens, int num_samples) {
  for (int i = 0; i < 2; ++i) RunToEnd(engine, Ask(engine, i, 1, 1));
  std::vector<std::pair<int64_t, int>> samples;
  for (int i = 0; i < questions; ++i) {
    const int count = i == 0 ? num_samples : 1;
    const auto id = engine.Add(Ask(engine, i, new_tokens + i % 3, count));
    EXPECT_TRUE(id.ok()) << id.status().message();
    for (int s = 0; s < count; ++s) samples.emplace_back(*id, s);
  }
  while (engine.HasWork()) engine.Step();
  std::vector<Completion> completions;
  for (const auto& [id, sample] : samples) completions.push_back(engine.Take(id, sample).value());
  return completions;
}

void ExpectSameBits(EngineConfig config, int questions, int new_tokens, int num_samples,
                    const std::string& what) {
  config.cascade_attention = true;
  const auto on = Create(config);
  config.cascade_attention = false;
  config.use_graph = false;
  const auto off = Create(config);
  ASSERT_TRUE(on != nullptr && off != nullptr);
  const std::vector<Completion> expected = AskAll(*off, questions, new_tokens, num_samples);
  const std::vector<Completion> together = AskAll(*on, questions, new_tokens, num_samples);
  ASSERT_EQ(together.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_GT(expected[i].cached_tokens, 0) << what;
    ExpectSameBits(together[i], expected[i], what + ", sample " + std::to_string(i));
  }
}

TEST(CascadeTest, SameBitsWithAndWithoutOnTheCpu) {
  for (const bool graph : {false, true}) {
    for (const int page : {1, 16, 64}) {
      for (const int questions : {1, 2, 3, 7}) {
        const EngineConfig config = Config(Device{}, page, graph, AttentionKind::kFlash1);
        ExpectSameBits(config, questions, 12, 1,
                       std::to_string(questions) + " questions, pages of " + std::to_string(page) +
                           (graph ? ", graph" : ""));
      }
    }
    ExpectSameBits(Config(Device{}, 16, graph, AttentionKind::kFlash1), 4, 20, 4,
                   graph ? "forks, graph" : "forks");
  }
}

TEST(CascadeTest, SameBitsWithAndWithoutOnDevices) {
  for (const Device& device : Accelerators()) {
    for (const AttentionKind kind : {AttentionKind::kFlash1, AttentionKind::kFlash2}) {
      for (const bool graph : {false, true}) {
        const EngineConfig config = Config(device, 16, graph, kind);
        ExpectSameBits(config, 4, 3, 2, DeviceName(device) + (graph ? ", graph" : ""));
      }
    }
  }
}

}  // namespace
}  // namespace kuiper
