// Whole tiny models on the emulated device and, if present, on a GPU: logits compared with Hugging
// Face, and the guarantees of docs/architecture.md bit for bit. forward_test.cpp and
// guarantees_test.cpp test the CPU in more depth.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "kuiper/engine/engine.h"
#include "kuiper/model/model.h"
#include "test/engine/engine_test_util.h"
#include "test/model/forward_runner.h"
#include "test/model/model_files.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

std::string TestName(std::string name) {
  for (char& c : name) c = c == '-' || c == ':' ? '_' : c;
  return name;
}

// --- logits -----------------------------------------------------------------------------------

// Bounds on the largest and the root mean square difference of logits whose standard deviation is
// 2.6. FP32 differs only in the order of summation. With 16-bit activations some twenty tensors in
// a row are rounded: inputs and outputs of the linear layers of two layers, rotated queries and
// keys, the stored keys and values. Each rounding changes a value by up to 2^-9 (BF16) or 2^-12
// (FP16) of it. Independent errors give sqrt(20) * 2^-9 * 2.6 = 0.023; the largest of 6000 is four
// to eight times that.
struct GoldenCase {
  const char* name;
  double max_error = 1e-4;
  double rms_error = 2e-5;
};

constexpr GoldenCase kGoldens[] = {
    {"qwen2-gqa7-d8-f32"},
    {"qwen2-gqa7-d8-bf16", 0.2, 0.03},
    {"qwen2-gqa7-d8-f16", 0.2 / 8, 0.03 / 8},
    {"qwen2-gqa2-yarn-f32"},
    {"qwen3-gqa2-d128-f32"},
    {"qwen3-gqa2-d128-bf16", 0.2, 0.03},
    {"qwen3-gqa2-d128-f16", 0.2 / 8, 0.03 / 8},
    {"qwen3-gqa2-d64-long-f32"},
    {"qwen3-gqa5-d16-sharded-f32"},
    {"llama-gqa8-d8-f32"},
    {"qwen3-gqa2-d16-sliding-f32"},
    {"qwen3-gqa2-d64-sliding-bf16", 0.2, 0.03},
    {"mistral-gqa2-sliding-f32"},
};

class DeviceGoldenTest : public ::testing::TestWithParam<std::tuple<Device, GoldenCase>> {};

TEST_P(DeviceGoldenTest, LogitsMatchHuggingFace) {
  const auto& [device, golden] = GetParam();
  const std::string dir = test::Source(std::string("test/data/goldens/") + golden.name);
  std::istringstream in(test::ReadFile(dir + "/ids.txt"));
  std::vector<int32_t> ids;
  for (int32_t id; in >> id;) ids.push_back(id);
  const test::NpyMatrix expected = test::ReadNpy(dir + "/logits.npy");
  for (const AttentionKind kind :
       {AttentionKind::kFlash1, AttentionKind::kFlash2, AttentionKind::kMha}) {
    auto ops = MakeOps(device, {.attention = kind});
    ASSERT_TRUE(ops.ok()) << ops.status().message();
    auto model = LoadModel(OpenModel(dir).value(), **ops, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const DType dtype = (*model)->config().decoder.dtype;
    test::ForwardRunner runner(**ops, (*model)->decoder(), static_cast<int>(ids.size()),
                               {.kv_dtype = dtype});
    const std::vector<float> logits = runner.Append(ids);
    ASSERT_EQ(logits.size(), expected.values.size());
    double squares = 0, worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double difference = std::abs(double{logits[i]} - expected.values[i]);
      if (!(difference <= worst)) worst = difference;  // also catches NaN
      squares += difference * difference;
    }
    EXPECT_LE(worst, golden.max_error);
    EXPECT_LE(std::sqrt(squares / static_cast<double>(logits.size())), golden.rms_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(Accelerators()),
                                            ::testing::ValuesIn(kGoldens)),
                         [](const auto& info) {
                           return TestName(DeviceName(std::get<0>(info.param)) + "_" +
                                           std::get<1>(info.param).name);
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceGoldenTest);

// --- guarantees -------------------------------------------------------------------------------

struct GuaranteeCase {
  const char* name;
  AttentionKind attention;
  const char* kv = "auto";
};

class DeviceGuaranteesTest : public ::testing::TestWithParam<std::tuple<Device, GuaranteeCase>> {
 protected:
  EngineConfig Config() const {
    EngineConfig config;
    config.model_path =
        test::Source(std::string("test/data/goldens/") + std::get<1>(GetParam()).name);
    config.ops.attention = std::get<1>(GetParam()).attention;
    config.kv_format = KvFormat::FromName(std::get<1>(GetParam()).kv);
    config.device = std::get<0>(GetParam());
    config.need_tokenizer = false;
    config.use_graph = false;
    return config;
  }
};

Request MakeRequest(const Engine& engine, int length, int seed = 1, int new_tokens = 6) {
  Request request;
  request.prompt = Prompt(length, Vocab(engine), seed);
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

TEST_P(DeviceGuaranteesTest, PagedEqualsContiguous) {
  EngineConfig config = Config();
  config.paged = false;
  const auto contiguous = Create(config);
  config.paged = true;
  for (const int b : {1, 8, 16, 64}) {
    config.page_size = b;
    const auto paged = Create(config);
    ASSERT_TRUE(paged != nullptr && contiguous != nullptr);
    for (const int length : {b - 1, b, b + 1, 3 * b + 1}) {
      if (length < 1 || length + 6 > paged->config().max_context) continue;
      ExpectSameBits(RunToEnd(*paged, MakeRequest(*paged, length)),
                     RunToEnd(*contiguous, MakeRequest(*contiguous, length)),
                     "page size " + std::to_string(b) + ", prompt " + std::to_string(length));
    }
  }
}

TEST_P(DeviceGuaranteesTest, GraphEqualsEager) {
  EngineConfig config = Config();
  config.max_num_seqs = 3;
  const auto eager = Create(config);
  config.use_graph = true;
  const auto graph = Create(config);
  ASSERT_TRUE(eager != nullptr && graph != nullptr);
  for (const int length : {1, 15, 17}) {
    ExpectSameBits(RunToEnd(*graph, MakeRequest(*graph, length, 1, 20)),
                   RunToEnd(*eager, MakeRequest(*eager, length, 1, 20)),
                   "prompt " + std::to_string(length));
  }
  std::vector<int64_t> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(graph->Add(MakeRequest(*graph, 10 + i, i + 2, 5 * (i + 1))).value());
  }
  while (graph->HasWork()) graph->Step();
  for (int i = 0; i < 3; ++i) {
    ExpectSameBits(graph->Take(ids[i]).value(),
                   RunToEnd(*eager, MakeRequest(*eager, 10 + i, i + 2, 5 * (i + 1))),
                   "sequence " + std::to_string(i));
  }
}

TEST_P(DeviceGuaranteesTest, BatchedEqualsAlone) {
  EngineConfig config = Config();
  config.page_size = 8;
  const auto alone = Create(config);
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 20;  // prompts come in chunks, too
  const auto batched = Create(config);
  ASSERT_TRUE(alone != nullptr && batched != nullptr);
  std::vector<int64_t> ids;
  std::vector<Request> requests;
  const int lengths[] = {1, 7, 25, 9, 33, 2};
  for (int i = 0; i < 6; ++i) {
    requests.push_back(MakeRequest(*alone, lengths[i], i + 1, 3 + 2 * i));
    requests.back().sampling.temperature = i % 3 == 0 ? 0.f : 0.8f;
    requests.back().sampling.top_p = i % 2 == 0 ? 1.f : 0.9f;
    requests.back().sampling.seed = 5 + i;
    requests.back().sampling.repetition_penalty = i % 4 == 1 ? 1.2f : 1.f;
    const auto id = batched->Add(requests.back());
    ASSERT_TRUE(id.ok());
    ids.push_back(id.value());
    batched->Step();
  }
  while (batched->HasWork()) batched->Step();
  for (int i = 0; i < 6; ++i) {
    ExpectSameBits(batched->Take(ids[i]).value(), RunToEnd(*alone, requests[i]),
                   "request " + std::to_string(i));
  }
}

TEST_P(DeviceGuaranteesTest, CachedEqualsCold) {
  EngineConfig config = Config();
  const auto cold = Create(config);
  config.page_size = 8;
  config.prefix_cache = true;
  const auto cached = Create(config);
  ASSERT_TRUE(cold != nullptr && cached != nullptr);
  RunToEnd(*cached, MakeRequest(*cached, 30));
  for (const int length : {9, 17, 30, 40}) {
    const Completion warm = RunToEnd(*cached, MakeRequest(*cached, length));
    EXPECT_GT(warm.cached_tokens, 0);
    ExpectSameBits(warm, RunToEnd(*cold, MakeRequest(*cold, length)),
                   "prompt " + std::to_string(length));
  }
}

// Two sequences compute the same pages in one step. A third reuses them while the two decode. Each
// continues differently.
TEST_P(DeviceGuaranteesTest, SequencesOfOnePrefixEqualAlone) {
  EngineConfig config = Config();
  const auto alone = Create(config);
  config.page_size = 8;
  config.max_num_seqs = 3;
  config.prefix_cache = true;
  for (const bool use_graph : {false, true}) {
    config.use_graph = use_graph;
    const auto engine = Create(config);
    ASSERT_TRUE(engine != nullptr && alone != nullptr);
    std::vector<Request> requests(3, MakeRequest(*alone, 17));
    for (int i = 0; i < 3; ++i) requests[i].prompt.push_back(1 + i);
    std::vector<int64_t> ids;
    for (const int i : {0, 1}) ids.push_back(engine->Add(requests[i]).value());
    for (int i = 0; i < 2; ++i) engine->Step();
    ids.push_back(engine->Add(requests[2]).value());
    while (engine->HasWork()) engine->Step();
    for (int i = 0; i < 3; ++i) {
      const Completion c = engine->Take(ids[i]).value();
      EXPECT_EQ(c.cached_tokens, i == 2 ? 16 : 0);
      ExpectSameBits(c, RunToEnd(*alone, requests[i]), "request " + std::to_string(i));
    }
  }
}

// Prompts in chunks while another sequence decodes. For every length of the last chunk, even one
// token, the bits are those of the prompt in one piece.
TEST_P(DeviceGuaranteesTest, ChunksBesideADecodeEqualWholePrompts) {
  EngineConfig config = Config();
  config.page_size = 8;
  for (const Determinism determinism : {Determinism::kOn, Determinism::kStrict}) {
    config.ops.determinism = determinism;
    config.max_num_seqs = 2;
    config.max_num_batched_tokens = 64;
    config.use_graph = false;
    const auto alone = Create(config);
    config.max_num_batched_tokens = 9;  // 8 for the prompt
    config.use_graph = true;
    const auto busy = Create(config);
    ASSERT_TRUE(alone != nullptr && busy != nullptr);
    for (const int length : {7, 8, 9, 17}) {  // eight a step
      const int64_t decode = busy->Add(MakeRequest(*busy, 1, 3, 5)).value();
      busy->Step();
      const int64_t prompt = busy->Add(MakeRequest(*busy, length, 1, 2)).value();
      while (busy->HasWork()) busy->Step();
      const std::string what = "prompt " + std::to_string(length);
      ExpectSameBits(busy->Take(prompt).value(),
                     RunToEnd(*alone, MakeRequest(*alone, length, 1, 2)), what);
      ExpectSameBits(busy->Take(decode).value(), RunToEnd(*alone, MakeRequest(*alone, 1, 3, 5)),
                     what + ", the sequence that decodes");
    }
  }
}

// One of two requests is preempted. Its generated tokens are recomputed the same way as before, so
// this holds without strict, too.
TEST_P(DeviceGuaranteesTest, PreemptedEqualsNotPreempted) {
  EngineConfig config = Config();
  const auto alone = Create(config);
  ASSERT_NE(alone, nullptr);
  config.page_size = 4;
  config.num_blocks = 12;
  config.max_num_seqs = 2;
  for (const Preemption preemption : {Preemption::kRecompute, Preemption::kSwap}) {
    for (const int step_tokens : {3, 64}) {
      config.preemption = preemption;
      config.max_num_batched_tokens = step_tokens;
      config.use_graph = step_tokens == 3;
      const auto full = Create(config);
      ASSERT_NE(full, nullptr);
      const Request first = MakeRequest(*full, 7, 1, 20), second = MakeRequest(*full, 9, 2, 20);
      const int64_t ids[] = {full->Add(first).value(), full->Add(second).value()};
      while (full->HasWork()) full->Step();
      const KvStats stats = full->kv_stats();
      EXPECT_GT(preemption == Preemption::kSwap ? stats.preempted_swap : stats.preempted_recompute,
                0);
      ExpectSameBits(full->Take(ids[0]).value(), RunToEnd(*alone, first), "the first");
      ExpectSameBits(full->Take(ids[1]).value(), RunToEnd(*alone, second), "the second");
    }
  }
}

// Generated tokens as part of a prompt: in strict mode it makes no difference whether their keys
// and values come from decode steps or from a prompt.
TEST_P(DeviceGuaranteesTest, StrictCacheOfAnAnswerEqualsItsPrefill) {
  EngineConfig config = Config();
  config.ops.determinism = Determinism::kStrict;
  const auto cold = Create(config);
  config.page_size = 8;
  config.prefix_cache = true;
  const auto cached = Create(config);
  ASSERT_TRUE(cold != nullptr && cached != nullptr);
  Request request = MakeRequest(*cached, 9, 1, 16);
  const Completion answer = RunToEnd(*cached, request);
  request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  request.max_new_tokens = 4;
  const Completion warm = RunToEnd(*cached, request);
  EXPECT_GE(warm.cached_tokens, 24);
  ExpectSameBits(warm, RunToEnd(*cold, request), "prompt with an answer");
}

// FP32 weights, paged and with captured steps, against the plain engine.
TEST_P(DeviceGuaranteesTest, Fp32OnPagesWithGraphsEqualsContiguousEager) {
  EngineConfig config = Config();
  config.dtype = DType::kF32;
  config.paged = false;
  const auto plain = Create(config);
  config.paged = true;
  config.page_size = 8;
  config.use_graph = true;
  const auto paged = Create(config);
  ASSERT_TRUE(plain != nullptr && paged != nullptr);
  for (const int length : {7, 8, 9, 25}) {
    ExpectSameBits(RunToEnd(*paged, MakeRequest(*paged, length, 1, 3)),
                   RunToEnd(*plain, MakeRequest(*plain, length, 1, 3)),
                   "prompt " + std::to_string(length));
  }
}

constexpr GuaranteeCase kGuarantees[] = {
    {"qwen3-gqa2-d128-f32", AttentionKind::kFlash1},
    {"qwen3-gqa2-d128-bf16", AttentionKind::kFlash2},
    {"qwen2-gqa7-d8-f16", AttentionKind::kFlash1},
    {"qwen3-gqa2-d64-sliding-bf16", AttentionKind::kFlash2},
    {"qwen3-gqa2-d128-bf16", AttentionKind::kFlash2, "int8"},
    {"qwen2-gqa7-d8-f16", AttentionKind::kFlash1, "fp8_e4m3"},
    {"qwen3-gqa2-d64-sliding-bf16", AttentionKind::kMha, "fp8_e5m2"},
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceGuaranteesTest,
                         ::testing::Combine(::testing::ValuesIn(Accelerators()),
                                            ::testing::ValuesIn(kGuarantees)),
                         [](const auto& info) {
                           const GuaranteeCase& c = std::get<1>(info.param);
                           return TestName(DeviceName(std::get<0>(info.param)) + "_" + c.name +
                                           "_" + c.kv);
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceGuaranteesTest);

}  // namespace
}  // namespace kuiper
