// The guarantees of docs/architecture.md through the public API, on random checkpoints of several
// shape families: every comparison is of token ids and of logit bits. Lengths cross page boundaries
// (b-1, b, b+1, 3b+1), page sizes run from 1 to 256.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr int kNewTokens = 12;

// `model` may end with "@bf16": its weights, and with them the KV cache, converted to BF16; or with
// "@" and another format of the KV cache.
EngineConfig BaseConfig(const std::string& model) {
  const size_t at = std::min(model.find('@'), model.size());
  const std::string format = model.substr(std::min(at + 1, model.size()));
  EngineConfig config = GoldenConfig(model.substr(0, at));
  if (format == "bf16") {
    config.dtype = DType::kBF16;
  } else if (!format.empty()) {
    config.kv_format = KvFormat::FromName(format);
  }
  config.ops.num_threads = 1;
  return config;
}

Request MakeRequest(std::vector<int32_t> prompt, int new_tokens = kNewTokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

// The longest prompt the model has room for, at most `length`.
int Fitting(int length, const Engine& engine, int new_tokens = kNewTokens) {
  return std::min(length, engine.config().max_context - new_tokens);
}

class GuaranteesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GuaranteesTest, PagedEqualsContiguous) {
  EngineConfig config = BaseConfig(GetParam());
  config.paged = false;
  const auto contiguous = Create(config);
  ASSERT_NE(contiguous, nullptr);
  config.paged = true;
  for (const int b : {1, 4, 8, 16, 32, 64, 128, 256}) {
    config.page_size = b;
    const auto paged = Create(config);
    ASSERT_NE(paged, nullptr);
    for (const int wanted : {1, b - 1, b, b + 1, 3 * b + 1}) {
      const int length = Fitting(wanted, *paged);
      if (length < 1) continue;
      const auto prompt = Prompt(length, Vocab(*paged));
      ExpectSameBits(RunToEnd(*paged, MakeRequest(prompt)),
                     RunToEnd(*contiguous, MakeRequest(prompt)),
                     "page size " + std::to_string(b) + ", prompt " + std::to_string(length));
    }
  }
}

TEST_P(GuaranteesTest, ChunkedPrefillEqualsWhole) {
  for (const bool paged : {false, true}) {
    EngineConfig config = BaseConfig(GetParam());
    config.paged = paged;
    const auto whole = Create(config);
    ASSERT_NE(whole, nullptr);
    for (const int chunk : {1, 5, 15, 16, 17, 33}) {
      config.max_num_batched_tokens = chunk;
      const auto chunked = Create(config);
      ASSERT_NE(chunked, nullptr);
      for (const int wanted : {1, 15, 16, 17, 49, 100}) {
        const int length = Fitting(wanted, *whole);
        const auto prompt = Prompt(length, Vocab(*whole));
        ExpectSameBits(RunToEnd(*chunked, MakeRequest(prompt)),
                       RunToEnd(*whole, MakeRequest(prompt)),
                       "chunk " + std::to_string(chunk) + ", prompt " + std::to_string(length));
      }
    }
  }
}

// Requests of different lengths that join and leave at different steps give the same results as
// alone.
TEST_P(GuaranteesTest, BatchedEqualsAlone) {
  for (const bool paged : {false, true}) {
    EngineConfig config = BaseConfig(GetParam());
    config.paged = paged;
    config.page_size = 8;
    const auto alone = Create(config);
    config.max_num_seqs = 7;
    config.max_num_batched_tokens = 20;
    const auto batched = Create(config);
    ASSERT_TRUE(alone != nullptr && batched != nullptr);
    std::vector<int64_t> ids;
    std::vector<Request> requests;
    const int lengths[] = {1, 7, 8, 9, 25, 60, 3, 16, 17, 33, 2};
    for (int i = 0; i < 11; ++i) {
      requests.push_back(MakeRequest(Prompt(lengths[i], Vocab(*alone), i + 1), 3 + 2 * i));
      requests.back().sampling.temperature = i % 3 == 0 ? 0.f : 0.8f;
      requests.back().sampling.seed = 5 + i;
      requests.back().sampling.repetition_penalty = i % 4 == 1 ? 1.2f : 1.f;
      const auto id = batched->Add(requests.back());
      ASSERT_TRUE(id.ok());
      ids.push_back(id.value());
      batched->Step();  // the next one arrives while this one runs
    }
    while (batched->HasWork()) batched->Step();
    for (int i = 0; i < 11; ++i) {
      ExpectSameBits(batched->Take(ids[i]).value(), RunToEnd(*alone, requests[i]),
                     "request " + std::to_string(i) + (paged ? " paged" : " contiguous"));
    }
  }
}

TEST_P(GuaranteesTest, GraphEqualsEager) {
  for (const bool paged : {false, true}) {
    EngineConfig config = BaseConfig(GetParam());
    config.paged = paged;
    config.max_num_seqs = 3;
    const auto eager = Create(config);
    config.use_graph = true;
    const auto graph = Create(config);
    ASSERT_TRUE(eager != nullptr && graph != nullptr);
    for (const int length : {1, 15, 16, 17, 49}) {
      const auto prompt = Prompt(length, Vocab(*eager));
      ExpectSameBits(RunToEnd(*graph, MakeRequest(prompt, 40)),
                     RunToEnd(*eager, MakeRequest(prompt, 40)), "prompt " + std::to_string(length));
    }
    // Three sequences of different lengths: buckets 3, 2 and 1 are captured and padded.
    std::vector<int64_t> ids;
    for (int i = 0; i < 3; ++i) {
      ids.push_back(
          graph->Add(MakeRequest(Prompt(10 + i, Vocab(*eager), i + 2), 10 * (i + 1))).value());
    }
    while (graph->HasWork()) graph->Step();
    for (int i = 0; i < 3; ++i) {
      ExpectSameBits(
          graph->Take(ids[i]).value(),
          RunToEnd(*eager, MakeRequest(Prompt(10 + i, Vocab(*eager), i + 2), 10 * (i + 1))),
          "sequence " + std::to_string(i));
    }
  }
}

TEST_P(GuaranteesTest, CachedEqualsCold) {
  for (const bool paged : {false, true}) {
    EngineConfig config = BaseConfig(GetParam());
    config.paged = paged;
    const auto cold = Create(config);
    ASSERT_NE(cold, nullptr);
    for (const int b : {1, 4, 16}) {
      config.page_size = b;
      config.prefix_cache = true;
      const auto cached = Create(config);
      ASSERT_NE(cached, nullptr);
      const auto base = Prompt(3 * 16 + 5, Vocab(*cold));
      RunToEnd(*cached, MakeRequest(base));  // fills the cache
      for (const int shared : {1, b - 1, b, b + 1, 3 * b + 1, 52}) {
        if (shared < 1 || shared > static_cast<int>(base.size())) continue;
        std::vector<int32_t> prompt(base.begin(), base.begin() + shared);
        const auto tail = Prompt(9, Vocab(*cold), 77);
        prompt.insert(prompt.end(), tail.begin(), tail.end());
        const Completion warm = RunToEnd(*cached, MakeRequest(prompt));
        const std::string what = "shared " + std::to_string(shared) + ", page " +
                                 std::to_string(b) + (paged ? " paged" : " contiguous");
        if (paged) {
          EXPECT_GE(warm.cached_tokens, shared / b * b) << what;
        }
        ExpectSameBits(warm, RunToEnd(*cold, MakeRequest(prompt)), what);
      }
      const Completion again = RunToEnd(*cached, MakeRequest(base));
      EXPECT_GT(again.cached_tokens, 0);
      ExpectSameBits(again, RunToEnd(*cold, MakeRequest(base)), "the same prompt again");
    }
  }
}

// Returns the results of two requests with a common prefix that run together, one `lead` steps
// ahead.
std::pair<Completion, Completion> RunBoth(Engine& engine, const Request& first,
                                          const Request& second, int lead) {
  engine.ClearPrefixCache();
  const int64_t a = engine.Add(first).value();
  for (int i = 0; i < lead; ++i) engine.Step();
  const int64_t b = engine.Add(second).value();
  engine.Step();
  EXPECT_GT(engine.kv_stats().pages_shared, 0) << "they do not run together";
  while (engine.HasWork()) engine.Step();
  return {engine.Take(a).value(), engine.Take(b).value()};
}

EngineConfig SharingConfig(const std::string& model, bool use_graph) {
  EngineConfig config = BaseConfig(model);
  config.page_size = 8;
  config.max_num_seqs = 2;
  config.prefix_cache = true;
  config.use_graph = use_graph;
  return config;
}

// The second request reuses the pages of the first up to their first difference, in the prompt or
// in the tokens sampled after it.
TEST_P(GuaranteesTest, SequencesThatDivergeAfterASharedPrefixEqualAlone) {
  constexpr int kPage = 8;
  const auto alone = Create(BaseConfig(GetParam()));
  ASSERT_NE(alone, nullptr);
  for (const bool use_graph : {false, true}) {
    const auto engine = Create(SharingConfig(GetParam(), use_graph));
    ASSERT_NE(engine, nullptr);
    for (const int shared : {kPage, kPage + 1, 2 * kPage - 1, 3 * kPage, 3 * kPage + 1}) {
      for (const bool by_draw : {false, true}) {
        const std::string what = "shared " + std::to_string(shared) + (by_draw ? ", drawn" : "") +
                                 (use_graph ? ", graph" : "");
        Request first = MakeRequest(Prompt(shared, Vocab(*alone)));
        first.sampling.temperature = 0.9f;
        Request second = first;
        second.sampling.seed = 1;
        if (!by_draw) {
          for (const int32_t id : Prompt(5, Vocab(*alone), 2)) first.prompt.push_back(id);
          for (const int32_t id : Prompt(6, Vocab(*alone), 3)) second.prompt.push_back(id);
        }
        const auto [a, b] = RunBoth(*engine, first, second, 2);
        const int most = static_cast<int>(second.prompt.size()) - 1;
        EXPECT_EQ(b.cached_tokens, std::min(shared, most) / kPage * kPage) << what;
        ExpectSameBits(a, RunToEnd(*alone, first), what + ", first");
        ExpectSameBits(b, RunToEnd(*alone, second), what + ", second");
        EXPECT_NE(a.tokens, b.tokens) << what;
      }
    }
  }
}

// Neither request finds anything in the cache. Both compute the same pages, in one step, or the
// second one its last page in the next step. Then they continue with one copy.
TEST_P(GuaranteesTest, SequencesThatComputeTheSamePrefixAtOnceEqualAlone) {
  constexpr int kPage = 8;
  const auto alone = Create(BaseConfig(GetParam()));
  ASSERT_NE(alone, nullptr);
  for (const bool use_graph : {false, true}) {
    for (const int step_tokens : {512, 3 * kPage}) {
      EngineConfig config = SharingConfig(GetParam(), use_graph);
      config.max_num_batched_tokens = step_tokens;
      const auto engine = Create(config);
      ASSERT_NE(engine, nullptr);
      for (const int shared : {kPage, kPage + 1, 2 * kPage - 1, 2 * kPage, 2 * kPage + 1}) {
        const std::string what =
            "shared " + std::to_string(shared) + ", step " + std::to_string(step_tokens);
        Request first = MakeRequest(Prompt(shared, Vocab(*alone)));
        first.prompt.push_back(1);
        Request second = first;
        second.prompt.back() = 2;
        const auto [a, b] = RunBoth(*engine, first, second, 0);
        EXPECT_EQ(a.cached_tokens + b.cached_tokens, 0) << what;
        ExpectSameBits(a, RunToEnd(*alone, first), what + ", first");
        ExpectSameBits(b, RunToEnd(*alone, second), what + ", second");
      }
    }
  }
}

// The pool has room for less than two of the five requests, so they preempt each other repeatedly.
TEST_P(GuaranteesTest, PreemptedEqualsAlone) {
  EngineConfig config = BaseConfig(GetParam());
  config.page_size = 8;
  const auto alone = Create(config);
  ASSERT_NE(alone, nullptr);
  std::vector<Request> requests;
  std::vector<Completion> expected;
  const int lengths[] = {7, 8, 9, 17, 25};
  for (int i = 0; i < 5; ++i) {
    requests.push_back(MakeRequest(Prompt(lengths[i], Vocab(*alone), i + 1), 26));
    requests.back().sampling.temperature = i % 2 == 0 ? 0.f : 0.8f;
    requests.back().sampling.repetition_penalty = i == 3 ? 1.2f : 1.f;
    expected.push_back(RunToEnd(*alone, requests.back()));
  }
  config.max_num_seqs = 5;
  config.max_num_batched_tokens = 13;
  config.num_blocks = 7;
  for (const bool prefix_cache : {false, true}) {
    for (const Preemption how : {Preemption::kRecompute, Preemption::kSwap}) {
      config.preemption = how;
      config.prefix_cache = prefix_cache;
      const auto crowded = Create(config);
      ASSERT_NE(crowded, nullptr);
      const std::vector<Completion> completions = RunTogether(*crowded, requests);
      const KvStats stats = crowded->kv_stats();
      EXPECT_GE(how == Preemption::kSwap ? stats.preempted_swap : stats.preempted_recompute, 2);
      for (int i = 0; i < 5; ++i) {
        ExpectSameBits(completions[i], expected[i],
                       "request " + std::to_string(i) +
                           (how == Preemption::kSwap ? " swapped" : " recomputed"));
      }
    }
  }
}

// Tokens slide out of the context at the same step, paged or contiguous.
TEST_P(GuaranteesTest, SlidingPagedEqualsContiguous) {
  EngineConfig config = BaseConfig(GetParam());
  config.on_full = OnFull::kSlide;
  config.max_context = 24;
  config.paged = false;
  const auto contiguous = Create(config);
  config.paged = true;
  for (const int b : {8, 16}) {
    config.page_size = b;
    config.prefix_cache = b == 8;
    const auto paged = Create(config);
    ASSERT_TRUE(paged != nullptr && contiguous != nullptr);
    for (const int length : {1, 23}) {
      Request request = MakeRequest(Prompt(length, Vocab(*paged)), 40);
      request.sampling.repetition_penalty = 1.1f;
      const Completion a = RunToEnd(*paged, request);
      ExpectSameBits(a, RunToEnd(*contiguous, request), "page size " + std::to_string(b));
      EXPECT_EQ(a.finish, FinishReason::kLength);
      EXPECT_EQ(a.tokens.size(), 40u);
      EXPECT_GT(a.dropped_tokens, 11) << "it slid once only";
    }
  }
}

TEST_P(GuaranteesTest, CopiedWeightsEqualMappedOnes) {
  EngineConfig config = BaseConfig(GetParam());
  config.weight_storage = WeightStorage::kMapped;
  const auto mapped = Create(config);
  config.weight_storage = WeightStorage::kCopied;
  const auto copied = Create(config);
  ASSERT_TRUE(mapped != nullptr && copied != nullptr);
  for (const int length : {1, 15, 16, 17, 49}) {
    const Request request = MakeRequest(Prompt(length, Vocab(*mapped)), 20);
    ExpectSameBits(RunToEnd(*copied, request), RunToEnd(*mapped, request),
                   "prompt " + std::to_string(length));
  }
}

TEST_P(GuaranteesTest, ThreadCountDoesNotMatter) {
  EngineConfig config = BaseConfig(GetParam());
  const auto one = Create(config);
  ASSERT_NE(one, nullptr);
  for (const int threads : {2, 3}) {
    config.ops.num_threads = threads;
    const auto other = Create(config);
    ASSERT_NE(other, nullptr);
    for (const int wanted : {1, 17, 70}) {
      const int length = Fitting(wanted, *one);
      const auto prompt = Prompt(length, Vocab(*one));
      ExpectSameBits(RunToEnd(*other, MakeRequest(prompt)), RunToEnd(*one, MakeRequest(prompt)),
                     std::to_string(threads) + " threads");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, GuaranteesTest,
    ::testing::Values("qwen3-gqa2-d128-f32", "qwen3-gqa2-d128-bf16", "qwen2-gqa7-d8-f16",
                      "qwen3-gqa2-d64-yarn-f32", "qwen3-gqa2-d64-yarn-f32@bf16",
                      "qwen3-gqa2-d16-sliding-f32", "qwen3-gqa2-d128-bf16@int8",
                      "qwen2-gqa7-d8-f16@int8", "qwen3-gqa2-d16-sliding-f32@int8",
                      "qwen3-gqa2-d128-bf16@fp8_e4m3", "qwen2-gqa7-d8-f16@fp8_e5m2"),
    [](const auto& info) {
      std::string name = info.param;
      for (char& c : name) c = c == '-' || c == '@' ? '_' : c;
      return name;
    });

// The comparison itself must be able to fail: another attention kernel gives other bits.
TEST(GuaranteesControlTest, ComparisonSeesADifference) {
  EngineConfig config = BaseConfig("qwen3-gqa2-d128-f32");
  const auto flash = Create(config);
  config.ops.attention = AttentionKind::kMha;
  const auto mha = Create(config);
  ASSERT_TRUE(flash != nullptr && mha != nullptr);
  const auto prompt = Prompt(200, Vocab(*flash));
  const Completion a = RunToEnd(*flash, MakeRequest(prompt));
  const Completion b = RunToEnd(*mha, MakeRequest(prompt));
  EXPECT_NE(std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace kuiper
