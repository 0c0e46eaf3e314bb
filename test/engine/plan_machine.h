// A runner of step plans on a model, without scheduler and engine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/engine/model_runner.h"
#include "kuiper/model/model.h"
#include "kuiper/ops/ops.h"
#include "test/test_data.h"

namespace kuiper::test {

inline constexpr int kPageSize = 4;
inline constexpr int kNumPages = 40;
inline constexpr int kMaxSeqs = 4;
inline constexpr int kMaxContext = 64;

using Ids = std::vector<int32_t>;
using Logits = std::vector<std::vector<float>>;

// A model on a device of its own, as another process would have it.
struct Machine {
  explicit Machine(Device device = {}, const std::string& name = "goldens/qwen3-gqa2-d128-f32") {
    ops = MakeOps(device, {.num_threads = 1}).value();
    OpenedModel opened = OpenModel(Source("test/data/" + name)).value();
    LoadOptions options;
    options.max_context = kMaxContext;
    model = LoadModel(std::move(opened), *ops, options).value();
  }
  std::unique_ptr<ModelRunner> MakeRunner(const Decoder& decoder,
                                          ModelRunner::FindRows find_rows = {}) const {
    const DecoderConfig& d = decoder.config();
    auto runner = ModelRunner::Create(*ops, decoder,
                                      {.kv = {.layers = d.layers,
                                              .kv_heads = d.kv_heads,
                                              .head_dim = d.head_dim,
                                              .num_pages = kNumPages,
                                              .page_size = kPageSize,
                                              .format = KvFormat::Of(DType::kF32)},
                                       .max_context = kMaxContext,
                                       .max_seqs = kMaxSeqs,
                                       .max_step_tokens = 64,
                                       .max_outputs = 16,
                                       .max_samples = 16,
                                       .num_axes = 3,
                                       .vocab_limit = d.vocab},
                                      std::move(find_rows))
                      .value();
    EXPECT_TRUE(runner->kv().EnsurePages(kNumPages).ok());
    return runner;
  }
  std::unique_ptr<ModelRunner> MakeRunner() const { return MakeRunner(model->decoder()); }
  int vocab() const { return model->config().decoder.vocab; }

  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

struct Ran {
  StepResult result;
  Logits logits;  // a row per sample, then those of logits_rows
};

inline Ran RunPlan(ModelRunner& runner, const StepPlan& plan, int vocab) {
  EXPECT_TRUE(runner.Check(plan).ok()) << runner.Check(plan).message();
  Ran ran;
  const auto visit = [](int, int, std::span<const float>) {};
  ran.result = runner.Take(runner.Launch(plan, visit));
  const size_t rows = plan.samples.size() + plan.logits_rows.size();
  for (size_t row = 0; row < rows; ++row) {
    const float* logits = runner.HostLogits(static_cast<int>(row));
    ran.logits.emplace_back(logits, logits + vocab);
  }
  return ran;
}

inline void ExpectSameRow(const std::vector<float>& a, const std::vector<float>& b,
                          const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

}  // namespace kuiper::test
