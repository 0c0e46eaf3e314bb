// The decode graph: when steps are captured, and that a captured graph outlives the sequences and
// the pool it was made with. On the CPU, the emulated device and, if present, a GPU; FP32 on a
// paged cache.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kuiper/engine/decode_graph.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/model/model.h"
#include "test/engine/engine_test_util.h"
#include "test/engine/plan_test_util.h"
#include "test/kv/late_device.h"
#include "test/log_capture.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

constexpr int kMaxSeqs = 9;

std::vector<Device> Devices() {
  std::vector<Device> devices = {Device{}};
  for (DeviceType type : {DeviceType::kSimt, DeviceType::kCUDA}) {
    if (MakeOps({type, 0}, {}).ok()) devices.push_back({type, 0});
  }
  return devices;
}

class GraphTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    ops_ = MakeOps(GetParam(), {.num_threads = 1}).value();
    const std::string path = test::Source("test/data/goldens/qwen3-gqa2-d128-f32");
    LoadOptions options;
    options.max_context = 64;
    model_ = LoadModel(OpenModel(path).value(), *ops_, options).value();
  }

  std::unique_ptr<ModelRunner> MakeRunner(bool use_graph, int page_size, int num_pages) {
    const DecoderConfig& d = model_->config().decoder;
    const KvShape kv{.layers = d.layers,
                     .kv_heads = d.kv_heads,
                     .head_dim = d.head_dim,
                     .num_pages = num_pages,
                     .page_size = page_size,
                     .format = KvFormat::Of(DType::kF32)};
    return ModelRunner::Create(*ops_, model_->decoder(),
                               {.kv = kv,
                                .max_context = 64,
                                .max_seqs = kMaxSeqs,
                                .max_step_tokens = 64,
                                .max_outputs = kMaxSeqs,
                                .max_samples = kMaxSeqs,
                                .vocab_limit = d.vocab,
                                .use_graph = use_graph})
        .value();
  }

  struct Text {
    int64_t id = 0;
    std::vector<int32_t> tokens;
    std::vector<int32_t> pages;
    int num_computed = 0;
  };
  Text MakeText(int length, int seed, std::vector<int32_t> pages) {
    return {++last_id_, Prompt(length, model_->config().decoder.vocab, seed), std::move(pages)};
  }

  // The tokens of each text that are not computed yet, and one more.
  static void Step(ModelRunner& runner, std::vector<Text>& texts) {
    StepPlan plan;
    for (const Text& text : texts) {
      test::Append({.sequence = text.id,
                    .begin = text.num_computed,
                    .tokens = {text.tokens.begin() + text.num_computed, text.tokens.end()},
                    .pages = text.pages,
                    .decodes = text.num_computed > 0,
                    .samples = true},
                   &plan);
    }
    const StepResult result = runner.Take(runner.Launch(plan));
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i].num_computed = static_cast<int>(texts[i].tokens.size());
      texts[i].tokens.push_back(result.tokens.at(i).value());
    }
  }

  // The tokens of `count` sequences after a prompt and `decodes` steps of all of them.
  std::vector<std::vector<int32_t>> Generate(ModelRunner& runner, int count, int decodes) {
    std::vector<Text> texts;
    for (int i = 0; i < count; ++i) texts.push_back(MakeText(3 + i % 3, i + 1, {1 + i}));
    for (int i = 0; i < 1 + decodes; ++i) Step(runner, texts);
    std::vector<std::vector<int32_t>> tokens;
    for (const Text& text : texts) tokens.push_back(text.tokens);
    return tokens;
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  int64_t last_id_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Devices, GraphTest, ::testing::ValuesIn(Devices()), [](const auto& info) {
  return std::string(info.param.type == DeviceType::kCPU    ? "cpu"
                     : info.param.type == DeviceType::kSimt ? "simt"
                                                            : "cuda");
});

// Buckets of 1, 2, 4, 8 and the largest number of sequences.
TEST_P(GraphTest, EachBucketIsRecordedOnceInItsSecondStep) {
  const auto eager = MakeRunner(false, 16, kMaxSeqs + 1);
  const auto graph = MakeRunner(true, 16, kMaxSeqs + 1);
  for (const auto* runner : {&eager, &graph}) {
    ASSERT_TRUE((*runner)->kv().EnsurePages(kMaxSeqs + 1).ok());
  }
  EXPECT_EQ(graph->graph().num_captured(), 0) << "nothing is recorded in advance";
  constexpr int kDecodes = 3;
  const int counts[] = {1, 2, 3, 6, kMaxSeqs};
  int captured = 0;
  for (const int count : counts) {
    EXPECT_EQ(Generate(*graph, count, kDecodes), Generate(*eager, count, kDecodes)) << count;
    EXPECT_EQ(graph->graph().num_captured(), ++captured) << count;
  }
  EXPECT_EQ(graph->graph().num_replayed(), 5 * (kDecodes - 2)) << "recording is running";
  Generate(*graph, 4, kDecodes);  // batches of 3 are padded to 4
  EXPECT_EQ(graph->graph().num_captured(), captured);
  EXPECT_EQ(DecodeGraph::NumBuckets(kMaxSeqs, true), 5);
  EXPECT_EQ(eager->graph().num_captured(), 0);
}

TEST_P(GraphTest, WarmUpRecordsTheBucketsAndLeavesNothingBehind) {
  const auto cold = MakeRunner(true, 16, kMaxSeqs + 1);
  const auto warm = MakeRunner(true, 16, kMaxSeqs + 1);
  ASSERT_TRUE(warm->WarmUp().ok());
  for (const auto* runner : {&cold, &warm}) {
    ASSERT_TRUE((*runner)->kv().EnsurePages(kMaxSeqs + 1).ok());
  }
  EXPECT_EQ(warm->graph().num_captured(), 5);
  EXPECT_EQ(warm->graph().num_replayed(), 0);
  constexpr int kDecodes = 4;
  for (const int count : {1, 3, kMaxSeqs}) {
    EXPECT_EQ(Generate(*warm, count, kDecodes), Generate(*cold, count, kDecodes)) << count;
  }
  EXPECT_EQ(warm->graph().num_captured(), 5);
  EXPECT_EQ(warm->graph().num_replayed(), 3 * kDecodes);
}

// This is the state after /clear: other sequences, on other pages, in a slab that did not exist at
// the capture, or was freed and allocated again.
TEST_P(GraphTest, RecordingOutlivesItsSequencesAndTheSizeOfThePool) {
  const KvShape shape = MakeRunner(true, 256, 2)->kv().shape();
  const int pages_per_slab = static_cast<int>((size_t{256} << 20) / shape.page_bytes());
  const int num_pages = pages_per_slab + 1;
  const auto runner = MakeRunner(true, 256, num_pages);
  ASSERT_TRUE(runner->kv().EnsurePages(2).ok());
  const size_t bytes_before = runner->kv().bytes();
  const auto generate = [&](int32_t page) {
    std::vector<Text> texts = {MakeText(17, 1, {page})};
    for (int i = 0; i < 5; ++i) Step(*runner, texts);
    return texts[0].tokens;
  };
  const std::vector<int32_t> first = generate(1);
  ASSERT_EQ(runner->graph().num_captured(), 1);
  ASSERT_TRUE(runner->kv().EnsurePages(num_pages).ok());
  ASSERT_GT(runner->kv().bytes(), bytes_before) << "the pool did not grow";
  EXPECT_EQ(generate(num_pages - 1), first);
  EXPECT_EQ(generate(2), first);
  runner->kv().ShrinkTo(pages_per_slab);
  ASSERT_EQ(runner->kv().bytes(), bytes_before) << "the pool did not shrink";
  EXPECT_EQ(generate(pages_per_slab - 1), first);
  ASSERT_TRUE(runner->kv().EnsurePages(num_pages).ok());
  EXPECT_EQ(generate(num_pages - 1), first);
  EXPECT_EQ(runner->graph().num_captured(), 1);
}

TEST(DecodeGraphTest, FailedRecordingIsLoggedOnceAndTheSizeStaysEager) {
  test::LateDevice device;  // cannot capture graphs
  DecodeGraph graph(device, 4, true);
  int eager_steps = 0;
  Batch batch;
  batch.num_seqs = 2;
  const test::LogCapture capture;
  for (int i = 0; i < 3; ++i) graph.Run(batch, true, [&](const Batch&) { ++eager_steps; });
  const std::string& log = capture.text();
  EXPECT_EQ(eager_steps, 3);
  EXPECT_EQ(graph.num_captured(), 0);
  EXPECT_EQ(graph.num_replayed(), 0);
  const std::string line = "decode steps of 2 sequences run without a graph: no kernels";
  const size_t at = log.find(line);
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find(line, at + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace kuiper
