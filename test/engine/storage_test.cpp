// Storage of the KV cache as the engine grows and shrinks it. Slabs hold 256 MB, so these tests
// need many sequences. With one page of 256 tokens each, they fill a slab and begin the next one,
// but touch little memory of either.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr size_t kSlab = size_t{256} << 20;
constexpr int kPageBytes = 256 * 2048;  // 2 layers, 1 head of 128, K and V in FP32
constexpr int kPagesPerSlab = kSlab / kPageBytes;
constexpr int kSeqs = kPagesPerSlab + 5;  // page 0 is unused: six in the second slab

EngineConfig Config(bool use_graph) {
  EngineConfig config = GoldenConfig();
  config.ops.num_threads = 1;
  config.page_size = 256;
  config.max_num_seqs = kSeqs;
  config.max_num_batched_tokens = 2 * kSeqs;
  config.num_blocks = 2 * kPagesPerSlab - 1;
  config.use_graph = use_graph;
  return config;
}

// One of six prompts, so that equal ones stand next to different ones.
Request RequestOf(int i, int vocab) {
  Request request;
  request.prompt = Prompt(1 + i % 2, vocab, i % 6);
  request.max_new_tokens = i < kPagesPerSlab - 1 ? 4 : 2;  // sequences in the second slab end first
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

std::vector<int64_t> AddAll(Engine& engine) {
  std::vector<int64_t> ids;
  for (int i = 0; i < kSeqs; ++i) ids.push_back(engine.Add(RequestOf(i, Vocab(engine))).value());
  return ids;
}

TEST(StorageTest, GivesUnusedSlabsBackAndGrowsAgainWithTheSameBits) {
  const auto alone = Create(GoldenConfig());
  ASSERT_NE(alone, nullptr);
  std::map<std::vector<int32_t>, Completion> expected[2];  // by prompt, of the short and the long
  for (int i = kPagesPerSlab - 7; i < kSeqs; ++i) {
    const Request request = RequestOf(i, Vocab(*alone));
    expected[request.max_new_tokens > 2][request.prompt] = RunToEnd(*alone, request);
  }
  for (const bool use_graph : {false, true}) {
    const auto engine = Create(Config(use_graph));
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->kv_stats().bytes_reserved, kSlab);
    for (int round = 0; round < 2; ++round) {
      const std::vector<int64_t> ids = AddAll(*engine);
      engine->Step();
      engine->ReleaseUnusedMemory();
      EXPECT_EQ(engine->kv_stats().bytes_reserved, 2 * kSlab) << "all are in use";
      engine->Step();  // ends the sequences in the second slab
      EXPECT_EQ(engine->kv_stats().bytes_reserved, 2 * kSlab);
      engine->ReleaseUnusedMemory();
      EXPECT_EQ(engine->kv_stats().bytes_reserved, kSlab);
      EXPECT_EQ(engine->kv_stats().bytes_touched, kSlab - kPageBytes);
      while (engine->HasWork()) engine->Step();
      for (int i = 0; i < kSeqs; ++i) {
        const Request request = RequestOf(i, Vocab(*engine));
        ExpectSameBits(engine->Take(ids[i]).value(),
                       expected[request.max_new_tokens > 2][request.prompt],
                       "request " + std::to_string(i));
      }
    }
  }
}

// Limits the address space to `bytes` more during its lifetime.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(size_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit = {pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + bytes,
                          before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_ = {};
};

class FailedGrowthTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(RunAhead, FailedGrowthTest, testing::Bool());

// A request that needs unavailable memory ends with an error. Requests with pages continue, and the
// pool grows again once memory is available.
TEST_P(FailedGrowthTest, EndsWhoNeedsItAndHarmsNobodyElse) {
  EngineConfig config = Config(false);
  config.run_ahead = GetParam();
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  const Request small = RequestOf(0, Vocab(*engine));
  const Completion expected = RunToEnd(*engine, small);
  {
    const AddressSpaceLimit limit(kSlab / 2);
    const std::vector<int64_t> ids = AddAll(*engine);
    while (engine->HasWork()) engine->Step();
    for (int i = 0; i < kSeqs; ++i) {
      const Completion failed = engine->Take(ids[i]).value();
      if (i < kPagesPerSlab - 1) {
        ASSERT_EQ(failed.finish, FinishReason::kLength) << i;
        if (i == 0) ExpectSameBits(failed, expected, "in the same step as the failure");
        continue;
      }
      ASSERT_EQ(failed.finish, FinishReason::kError);
      ASSERT_EQ(failed.error.code(), StatusCode::kResourceExhausted);
      ASSERT_EQ(failed.error.message(),
                "KV cache: cannot grow from 256 MB by 256 MB: cannot allocate 256 MB of memory");
    }
    EXPECT_EQ(engine->kv_stats().pages_used, 0);
    ExpectSameBits(RunToEnd(*engine, small), expected, "beside the failure");
  }
  const std::vector<int64_t> ids = AddAll(*engine);
  while (engine->HasWork()) engine->Step();
  ExpectSameBits(engine->Take(ids[0]).value(), expected, "after the failure");
  EXPECT_EQ(engine->Take(ids.back()).value().finish, FinishReason::kLength);
  EXPECT_EQ(engine->kv_stats().bytes_reserved, 2 * kSlab);
}

TEST_P(FailedGrowthTest, ComesBehindTheTokensInFlight) {
  constexpr int kPages = 2 * kPagesPerSlab;  // pages of a slab
  EngineConfig config = Config(false);
  config.run_ahead = GetParam();
  config.page_size /= 2;  // the context has more than one
  config.num_blocks = 2 * kPages - 1;
  config.max_num_seqs = kPages;
  config.max_num_batched_tokens = 2 * kPages;
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  const AddressSpaceLimit limit(kSlab / 2);
  Request one = RequestOf(0, Vocab(*engine));  // page
  one.keep_logits = false;
  one.max_new_tokens = 20;
  std::vector<int64_t> others;
  for (int i = 0; i < kPages - 2; ++i) others.push_back(engine->Add(one).value());
  Request two = one;
  two.prompt = Prompt(config.page_size - 2, Vocab(*engine), 1);
  const int64_t id = engine->Add(two).value();
  while (engine->HasWork()) engine->Step();
  const Completion failed = engine->Take(id).value();
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_EQ(failed.tokens.size(), 3u) << "the third one is the first without a place";
  for (const int64_t other : others) {
    ASSERT_EQ(engine->Take(other).value().finish, FinishReason::kLength);
  }
}

}  // namespace
}  // namespace kuiper
