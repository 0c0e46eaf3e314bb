// A contiguous engine that shares the weights of a paged one: the same results bit for bit,
// alternating steps, and only memory that the paged engine's plan leaves free.
#include <gtest/gtest.h>

#include <algorithm>

#include "kuiper/engine/run_comparison.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

EngineConfig PagedConfig(const std::string& golden, int page_size) {
  EngineConfig config = GoldenConfig(golden);
  config.page_size = page_size;
  config.max_context = 128;
  config.max_num_seqs = 3;
  config.max_num_batched_tokens = 24;
  config.prefix_cache = true;
  return config;
}

Request Digested(int length, int vocab, float temperature, int seed = 1) {
  Request request;
  request.prompt = Prompt(length, vocab, seed);
  request.max_new_tokens = 10;
  request.ignore_eos = true;
  request.sampling = {.temperature = temperature, .top_k = 50, .seed = 7};
  request.digest_logits = true;
  return request;
}

// Runs the request on a contiguous engine, alternating steps with the requests of `engine`.
Completion RunBeside(Engine& engine, const Request& request) {
  const int num_tokens = static_cast<int>(request.prompt.size()) + request.max_new_tokens;
  auto beside = engine.MakeContiguousEngine(num_tokens);
  EXPECT_TRUE(beside.ok()) << beside.status().message();
  if (!beside.ok()) return {};
  EXPECT_FALSE((*beside)->config().paged);
  const auto id = (*beside)->Add(request);
  EXPECT_TRUE(id.ok()) << id.status().message();
  while (id.ok() && (*beside)->HasWork()) {
    engine.Step();
    (*beside)->Step();
  }
  return id.ok() ? (*beside)->Take(*id).value() : Completion{};
}

TEST(MakeContiguousEngine, HasTheBitsOfThePagedEngine) {
  for (const char* golden : {"qwen3-gqa2-d128-f32", "qwen3-gqa2-d64-long-f32"}) {
    for (const int page_size : {4, 16}) {
      for (const bool graph : {false, true}) {
        EngineConfig config = PagedConfig(golden, page_size);
        config.use_graph = graph;
        const auto engine = Create(config);
        ASSERT_NE(engine, nullptr);
        const int vocab = Vocab(*engine);
        for (const int length : {page_size - 1, page_size, page_size + 1, 3 * page_size + 1}) {
          for (const float temperature : {0.f, 1.f}) {
            const Request request = Digested(length, vocab, temperature);
            const Completion cold = RunToEnd(*engine, request);
            const Completion cached = RunToEnd(*engine, request);
            Request other = Digested(2 * page_size, vocab, 1.f, 5);
            other.max_new_tokens = 60;
            const auto running = engine->Add(other);
            ASSERT_TRUE(running.ok());
            const Completion contiguous = RunBeside(*engine, request);
            while (engine->HasWork()) engine->Step();
            ASSERT_EQ(contiguous.logit_digests.size(), 10u);
            for (const Completion* paged : {&cold, &cached}) {
              const auto difference =
                  FirstDifference({"paged", *paged}, {"contiguous", contiguous}, vocab);
              EXPECT_FALSE(difference.has_value()) << difference->what;
            }
            // Requests that ran meanwhile give the same results as alone.
            EXPECT_EQ(engine->Take(*running).value().logit_digests,
                      RunToEnd(*engine, other).logit_digests);
          }
        }
      }
    }
  }
}

TEST(MakeContiguousEngine, AnotherKvCacheIsSeenInTheDigests) {
  EngineConfig config = PagedConfig("qwen3-gqa2-d128-f32", 4);
  const auto exact = Create(config);
  config.kv_format = KvFormat{KvFormat::Kind::kInt8};
  const auto rounded = Create(config);
  ASSERT_TRUE(exact != nullptr && rounded != nullptr);
  const Request request = Digested(20, Vocab(*exact), 0.f);
  const Completion a = RunToEnd(*exact, request), b = RunToEnd(*rounded, request);
  const auto difference = FirstDifference({"exact", a}, {"rounded", b}, Vocab(*exact));
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->token, 0);
  EXPECT_NE(difference->what.find("the logits have digest "), std::string::npos)
      << difference->what;
  // The contiguous engine has the format of `engine`.
  EXPECT_EQ(RunBeside(*rounded, request).logit_digests, b.logit_digests);
}

TEST(MakeContiguousEngine, TakesNoMemoryThatThePlanDoesNotLeave) {
  EngineConfig config = GoldenConfig("qwen3-gqa2-d64-long-f32");
  config.page_size = 16;
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  const int context = engine->config().max_context;
  const MemoryPlan& plan = engine->memory_plan();
  EXPECT_LE(engine->memory_in_use(), plan.total_bytes());
  const auto beside = engine->MakeContiguousEngine(context);
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  const MemoryPlan small = (*beside)->memory_plan();
  EXPECT_EQ(small.weight_bytes, 0u);
  EXPECT_GT(small.kv_bytes, 0u);
  // A memory share that just suffices for the engine. On a busy machine the free memory changes
  // between the two plans: then both are made again.
  for (int attempt = 0; attempt < 20; ++attempt) {
    config.memory_utilization =
        1.02 * static_cast<double>(plan.total_bytes()) /
        static_cast<double>(
            Engine::Plan(config, OpenModel(config.model_path).value()).value().available_bytes);
    const auto tight = Engine::Create(config);
    if (!tight.ok()) continue;
    const size_t budget = (*tight)->memory_plan().budget_bytes;
    const size_t room = budget - std::min(budget, (*tight)->memory_in_use());
    if (room >= small.total_bytes()) continue;
    const auto refused = (*tight)->MakeContiguousEngine(context);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(refused.status().message().find("a run without pages needs"), std::string::npos);
    return;
  }
  FAIL() << "no share of the memory was just enough";
}

}  // namespace
}  // namespace kuiper
