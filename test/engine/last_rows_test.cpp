// The last layer skips rows that are not needed. The remaining rows have the same bits as without
// skipping.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "test/engine/engine_test_util.h"
#include "test/engine/plan_machine.h"
#include "test/engine/plan_test_util.h"

namespace kuiper {
namespace {

using test::ExpectSameRow;
using test::HandMade;
using test::Ids;
using test::kPageSize;
using test::Machine;

// Returns the plan's logits and tokens. `whole`: hidden rows are requested, so that every layer
// computes all rows.
test::Ran RunWith(ModelRunner& runner, StepPlan plan, bool whole) {
  if (whole) {
    plan.hidden_layers = {0};
    plan.hidden_rows = {0};
    plan.entries[0].hidden_rows = {0, 1};
    for (size_t i = 1; i < plan.entries.size(); ++i) plan.entries[i].hidden_rows = {1, 1};
  }
  return test::RunPlan(runner, plan, runner.model().vocab);
}

using Param = std::tuple<Device, std::string>;

class LastRowsTest : public ::testing::TestWithParam<Param> {};

std::string NameOf(const ::testing::TestParamInfo<Param>& info) {
  std::string name = NameOfDevice({std::get<0>(info.param), info.index}) + "_";
  for (const char c : std::get<1>(info.param)) name += c == '/' || c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, LastRowsTest,
                         ::testing::Combine(::testing::ValuesIn(CpuAndAccelerators()),
                                            ::testing::Values("goldens/qwen3-gqa2-d128-f32",
                                                              "goldens/qwen3-gqa2-d64-sliding-bf16",
                                                              "goldens/qwen2-gqa7-d8-f16",
                                                              "quantized/qwen3-awq")),
                         NameOf);

// Decode steps, prompts that end and a prompt that continues, all in one step.
TEST_P(LastRowsTest, HaveTheBitsTheyHaveAmongAllRows) {
  const auto& [device, name] = GetParam();
  const Machine machine(device, name);
  const int vocab = machine.vocab();
  for (const int n : {2, kPageSize - 1, kPageSize, kPageSize + 1, 3 * kPageSize, 13}) {
    SCOPED_TRACE(n);
    const Ids prompt = Prompt(n, vocab), other = Prompt(n + 2, vocab, 5);
    const auto runner = machine.MakeRunner(), all = machine.MakeRunner();
    const auto step = [&](const std::vector<HandMade>& entries, size_t num_rows) {
      const StepPlan plan = test::PlanOf(entries);
      const test::Ran ran = RunWith(*runner, plan, false), expected = RunWith(*all, plan, true);
      EXPECT_EQ(ran.result.tokens, expected.result.tokens);
      ASSERT_EQ(ran.logits.size(), num_rows);
      for (size_t i = 0; i < num_rows; ++i) {
        ExpectSameRow(ran.logits[i], expected.logits[i], "row " + std::to_string(i));
      }
    };
    step({{.sequence = 1, .tokens = prompt, .pages = {1, 2, 3, 4}, .samples = true}}, 1);
    step({{.sequence = 2, .tokens = Ids(other.begin(), other.begin() + n), .pages = {5, 6, 7, 8}}},
         0);
    step({{.sequence = 1,
           .begin = n,
           .tokens = {3},
           .num_kept_pages = 4,
           .decodes = true,
           .samples = true},
          {.sequence = 2,
           .begin = n,
           .tokens = {other[n], other[n + 1]},
           .num_kept_pages = 4,
           .samples = true},
          {.sequence = 3, .tokens = prompt, .pages = {9, 10, 11, 12}},
          {.sequence = 4, .tokens = other, .pages = {13, 14, 15, 16}, .samples = true}},
         3);
    step({{.sequence = 4,
           .begin = n + 2,
           .tokens = {4},
           .num_kept_pages = 4,
           .decodes = true,
           .samples = true},
          {.sequence = 3, .begin = n, .tokens = {1, 2}, .num_kept_pages = 4, .samples = true}},
         2);
  }
}

// Prompts whose logits rows are wanted. First the last rows of two prompts, with a prompt that
// continues before them and one that samples between them. Then a row that is not the last of its
// prompt.
TEST_P(LastRowsTest, GiveEachPromptItsOwnLogits) {
  const auto& [device, name] = GetParam();
  const Machine machine(device, name);
  const Ids a = Prompt(5, machine.vocab(), 1), b = Prompt(6, machine.vocab(), 2);
  for (const int before_last : {0, 1}) {
    const int32_t of_a = 4 - before_last;
    const StepPlan plan = test::PlanOf(
        {{.sequence = 1, .tokens = Prompt(7, machine.vocab(), 3), .pages = {1, 2}},
         {.sequence = 2, .tokens = a, .pages = {3, 4}, .logits_rows = {of_a}},
         {.sequence = 3, .tokens = Prompt(4, machine.vocab(), 4), .pages = {5}, .samples = true},
         {.sequence = 4, .tokens = b, .pages = {6, 7}, .logits_rows = {5}}});
    const test::Ran ran = RunWith(*machine.MakeRunner(), plan, false);
    ASSERT_EQ(ran.logits.size(), 3u);
    const auto alone = [&](const Ids& tokens, int32_t row) {
      const StepPlan one =
          test::PlanOf({{.tokens = tokens, .pages = {1, 2}, .logits_rows = {row}}});
      return RunWith(*machine.MakeRunner(), one, true).logits.at(0);
    };
    ExpectSameRow(ran.logits[1], alone(a, of_a), "row of the second prompt");
    ExpectSameRow(ran.logits[2], alone(b, 5), "row of the fourth prompt");
  }
}

// Counts the rows that layers multiply with weights.
class CountingOps final : public Ops {
 public:
  explicit CountingOps(Ops& ops) : Ops(ops.device()), ops_(ops) {}

  DType ActivationType(DType weights) const override { return ops_.ActivationType(weights); }
  AttentionKind AttentionFor(DType weights, KvFormat kv, int head_dim) const override {
    return ops_.AttentionFor(weights, kv, head_dim);
  }
  Status Reserve(const OpsLimits& limits) override { return ops_.Reserve(limits); }
  size_t ScratchBytes(const OpsLimits& limits) const override { return ops_.ScratchBytes(limits); }
  Status Prepare(const Linear& linear, Epilogue epilogue, DType out_type,
                 int64_t out_stride) override {
    return ops_.Prepare(linear, epilogue, out_type, out_stride);
  }
  int64_t num_rows() const { return num_rows_; }

 private:
  void Count(const ApplyArgs& args) { num_rows_ += args.x.rows(); }
  template <typename Args>
  void Count(const Args&) {}
#define KU_FORWARD_OP(Name)                       \
  void Compute(const Name##Args& args) override { \
    Count(args);                                  \
    ops_.Run(args);                               \
  }
  KU_FOR_EACH_OP(KU_FORWARD_OP)
#undef KU_FORWARD_OP

  Ops& ops_;
  int64_t num_rows_ = 0;
};

// Values that a source adds after the last layer reach the logits. Values added after the layer
// before do not make the last layer compute all rows.
TEST(LastRows, AreAllRowsWhereThePatchesReachTheLastLayer) {
  const Machine machine;
  DecoderConfig config = machine.model->config().decoder;
  DecoderWeights weights = machine.model->decoder().weights();
  ASSERT_EQ(config.layers, 2);
  CountingOps ops(*machine.ops);
  const Decoder two(config, weights, ops);
  config.layers = 1;
  weights.layers.resize(1);
  const Decoder one(config, weights, ops);
  std::vector<float> values(size_t{4} * 2 * config.hidden);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 13);
  const Tensor rows = Tensor::Dense(values.data(), DType::kF32, {4, 2 * config.hidden});
  const auto find_rows = [&](int64_t) { return rows; };

  StepPlan plain =
      test::PlanOf({{.tokens = Prompt(6, machine.vocab()), .pages = {1, 2}, .samples = true}});
  StepPlan patched = plain;
  patched.overrides = {{.rows = {2, 6}, .source = 1}};
  patched.entries[0].overrides = {0, 1};
  int64_t num_rows = 0;  // rows of the last run
  const auto run = [&](const Decoder& decoder, const StepPlan& plan, bool whole) {
    const int64_t before = ops.num_rows();
    const auto logits = RunWith(*machine.MakeRunner(decoder, find_rows), plan, whole).logits.at(0);
    num_rows = ops.num_rows() - before;
    return logits;
  };
  for (const Decoder* decoder : {&one, &two}) {
    SCOPED_TRACE(decoder->config().layers);
    const auto expected = run(*decoder, patched, true);
    const int64_t all_rows = num_rows;
    ExpectSameRow(run(*decoder, patched, false), expected, "patched");
    // All products of the last layer except the first one: 1 row of 6.
    EXPECT_EQ(all_rows - num_rows, decoder == &one ? 0 : 3 * 5);
    EXPECT_NE(expected, run(*decoder, plain, true)) << "the comparison can fail";
  }
}

}  // namespace
}  // namespace kuiper
