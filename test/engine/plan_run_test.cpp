// Plans that the scheduler does not make today, but that a runner must support. They verify several
// tokens of a sequence in one step, have several position axes or hidden rows, or come from another
// process.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kuiper/engine/model_runner.h"
#include "kuiper/engine/override_span.h"
#include "kuiper/engine/scheduler.h"
#include "test/engine/engine_test_util.h"
#include "test/engine/plan_machine.h"
#include "test/engine/plan_test_util.h"
#include "test/engine/scheduler_test_util.h"
#include "test/model/forward_runner.h"

namespace kuiper {
namespace {

using test::ExpectSameRow;
using test::Ids;
using test::kMaxContext;
using test::kMaxSeqs;
using test::kPageSize;
using test::Logits;
using test::Machine;
using test::Ran;
using test::RunPlan;

// Tokens [begin, size) of `text`, on pages 1, 2, ... Each row is sampled as by a scheduler: at the
// next index, with the counts of the tokens before it.
StepPlan Verify(const Ids& text, int num_prompt, int begin, int num_sent_pages) {
  StepPlan plan;
  StepPlan::Entry& entry = plan.Open(7, begin);
  entry.decodes = begin >= num_prompt;
  entry.num_kept_pages = num_sent_pages;
  const int end = static_cast<int>(text.size());
  for (int page = num_sent_pages; page * kPageSize < end; ++page) plan.pages.push_back(page + 1);
  for (int pos = begin; pos < end; ++pos) {
    plan.tokens.push_back(TokenRef::Known(text[pos]));
    plan.positions.push_back(pos);
    if (pos + 1 < num_prompt) continue;
    StepPlan::Sample& sample = plan.samples.emplace_back();
    sample.row = pos - begin;
    sample.index = pos + 1 - num_prompt;
    sample.params = {.temperature = 0.8f, .repetition_penalty = 1.3f, .seed = 5};
    sample.penalties.begin = static_cast<int32_t>(plan.penalties.size());
    Ids distinct(text.begin(), text.begin() + pos + 1);
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const int32_t id : distinct) plan.penalties.push_back({id, 1});
    sample.penalties.end = static_cast<int32_t>(plan.penalties.size());
  }
  plan.Close();
  return plan;
}

int PagesOf(size_t num_tokens) {
  return static_cast<int>((num_tokens + kPageSize - 1) / kPageSize);
}

class PlanRunTest : public ::testing::TestWithParam<Device> {};

INSTANTIATE_TEST_SUITE_P(Devices, PlanRunTest, ::testing::ValuesIn(CpuAndAccelerators()),
                         NameOfDevice);

TEST_P(PlanRunTest, VerifyingTokensInOneStepGivesTheBitsOfOneStepEach) {
  constexpr int kTokens = 5;
  const Machine machine(GetParam());
  for (const int num_prompt : {kPageSize - 1, kPageSize, kPageSize + 1, 3 * kPageSize}) {
    SCOPED_TRACE(num_prompt);
    const auto single = machine.MakeRunner(), verifying = machine.MakeRunner();
    Ids text = Prompt(num_prompt, machine.vocab(), num_prompt);
    int begin = 0, told = 0;
    Logits rows;
    for (int i = 0; i <= kTokens; ++i) {
      const Ran ran = RunPlan(*single, Verify(text, num_prompt, begin, told), machine.vocab());
      begin = static_cast<int>(text.size());
      told = PagesOf(text.size());
      rows.push_back(ran.logits.at(0));
      text.push_back(ran.result.tokens.at(0).value());
    }

    // First the prompt, then drafts, of which the third is wrong, then the remainder in place of
    // the rejected tokens.
    Ids draft(text.begin(), text.begin() + num_prompt);
    const Ran first = RunPlan(*verifying, Verify(draft, num_prompt, 0, 0), machine.vocab());
    ExpectSameRow(first.logits.at(0), rows[0], "prompt");
    EXPECT_EQ(first.result.tokens.at(0), text[num_prompt]);
    draft.assign(text.begin(), text.begin() + num_prompt + 4);
    draft[num_prompt + 2] = (draft[num_prompt + 2] + 1) % machine.vocab();
    const Ran drafts = RunPlan(
        *verifying, Verify(draft, num_prompt, num_prompt, PagesOf(num_prompt)), machine.vocab());
    ASSERT_EQ(drafts.result.tokens.size(), 4u);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(drafts.result.tokens[i], text[num_prompt + 1 + i]) << i;
      ExpectSameRow(drafts.logits[i], rows[1 + i], "draft " + std::to_string(i));
    }
    EXPECT_NE(drafts.logits[2], rows[3]) << "the comparison can fail";
    draft.assign(text.begin(), text.begin() + num_prompt + kTokens);
    const Ran rest =
        RunPlan(*verifying, Verify(draft, num_prompt, num_prompt + 2, PagesOf(num_prompt + 4)),
                machine.vocab());
    ASSERT_EQ(rest.result.tokens.size(), size_t{kTokens - 2});
    for (int i = 0; i < kTokens - 2; ++i) {
      EXPECT_EQ(rest.result.tokens[i], text[num_prompt + 3 + i]) << i;
      ExpectSameRow(rest.logits[i], rows[3 + i], "rest " + std::to_string(i));
    }
  }
}

// A model with RoPE on three axes gives text the same bits as with one axis.
TEST_P(PlanRunTest, PositionsThatAgreeOnEachAxisAreThoseOfText) {
  const Machine machine(GetParam());
  DecoderWeights weights = machine.model->decoder().weights();
  const int pairs = machine.model->config().decoder.head_dim / 2;
  Ids axis_of_pair;
  for (int i = 0; i < pairs; ++i) axis_of_pair.push_back(i % 3);
  const Buffer memory = machine.ops->device().Allocate(pairs * sizeof(int32_t)).value();
  weights.rope.axis_of_pair = memory.As(DType::kI32, {pairs});
  machine.ops->device().Upload(weights.rope.axis_of_pair,
                               Tensor::Dense(axis_of_pair.data(), DType::kI32, {pairs}));
  machine.ops->device().Sync();
  const Decoder decoder(machine.model->config().decoder, weights, *machine.ops);

  const Ids text = Prompt(3 * kPageSize + 1, machine.vocab());
  const StepPlan one_axis = Verify(text, 1, 0, 0);
  StepPlan plan = one_axis;
  plan.num_axes = 3;
  for (int axis = 1; axis < 3; ++axis) {
    plan.positions.insert(plan.positions.end(), one_axis.positions.begin(),
                          one_axis.positions.end());
  }
  const Ran expected = RunPlan(*machine.MakeRunner(), one_axis, machine.vocab());
  const Ran ran = RunPlan(*machine.MakeRunner(decoder), plan, machine.vocab());
  EXPECT_EQ(ran.result.tokens, expected.result.tokens);
  ASSERT_EQ(ran.logits.size(), text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    ExpectSameRow(ran.logits[i], expected.logits[i], "row " + std::to_string(i));
  }
  // Rows of an image have other positions on one axis.
  for (size_t i = text.size() / 2; i < text.size(); ++i) plan.positions[text.size() + i] += 9;
  const Ran image = RunPlan(*machine.MakeRunner(decoder), plan, machine.vocab());
  EXPECT_EQ(image.logits[0], expected.logits[0]);
  EXPECT_NE(image.logits.back(), expected.logits.back());
}

// Six rows for a sequence's tokens [4, 10): the embeddings of `ids` and, with `adds`, values that
// are added after the first layer.
class SourceOfRows {
 public:
  SourceOfRows(const Machine& machine, const Ids& ids, bool adds)
      : hidden_(machine.model->config().decoder.hidden), width_((adds ? 2 : 1) * hidden_) {
    const int count = static_cast<int>(ids.size());
    memory_ = machine.ops->device().Allocate(sizeof(float) * count * width_).value();
    rows_ = memory_.As(DType::kF32, {count, width_});
    const std::vector<float> embeddings = Embed(machine, ids);
    std::vector<float> values;
    for (int row = 0; row < count; ++row) {
      for (int i = 0; i < hidden_; ++i) values.push_back(embeddings[row * hidden_ + i]);
      for (int i = hidden_; i < width_; ++i) values.push_back(Added(row, i - hidden_));
    }
    machine.ops->device().Upload(rows_, Tensor::Dense(values.data(), DType::kF32, {count, width_}));
    machine.ops->device().Sync();
  }
  Tensor Find(int64_t source) const { return source == kSource ? rows_ : Tensor(); }
  static float Added(int row, int i) { return 0.01f * static_cast<float>((row + 1) * (i % 7 - 3)); }

  static constexpr int64_t kSource = 77;
  static constexpr OverrideSpan kSpan{.begin = 4, .rows = 2, .columns = 3, .source = kSource};

 private:
  std::vector<float> Embed(const Machine& machine, const Ids& ids) const {
    const int count = static_cast<int>(ids.size());
    ComputeDevice& device = machine.ops->device();
    std::vector<TokenRef> tokens;
    for (const int32_t id : ids) tokens.push_back(TokenRef::Known(id));
    const Buffer memory = device.Allocate(sizeof(float) * count * (hidden_ + 1)).value();
    const Tensor out = memory.As(DType::kF32, {count, hidden_});
    const Tensor at = memory.As(DType::kI32, {count}, sizeof(float) * count * hidden_);
    device.Upload(at, Tensor::Dense(tokens.data(), DType::kI32, {count}));
    machine.ops->Run(
        EmbedArgs{.out = out, .table = machine.model->decoder().weights().embed, .ids = at});
    std::vector<float> values(count * hidden_);
    device.Download(Tensor::Dense(values.data(), DType::kF32, {count, hidden_}), out);
    device.Sync();
    return values;
  }

  int hidden_, width_;
  Buffer memory_;
  Tensor rows_;
};

// Tokens [begin, end) of a text with the patches, and the logits of the last one.
StepPlan PatchedPlan(const Ids& text, int begin, int end) {
  StepPlan plan = test::PlanOf({{.sequence = 7,
                                 .begin = begin,
                                 .tokens = Ids(text.begin() + begin, text.begin() + end),
                                 .num_kept_pages = PagesOf(begin)}});
  for (int page = PagesOf(begin); page < PagesOf(end); ++page) plan.pages.push_back(page + 1);
  plan.logits_rows = {end - begin - 1};
  AppendOverrides({&SourceOfRows::kSpan, 1}, begin, end, &plan.overrides);
  StepPlan::Entry& entry = plan.entries[0];
  entry.pages.end = static_cast<int32_t>(plan.pages.size());
  entry.logits_rows.end = 1;
  entry.overrides.end = static_cast<int32_t>(plan.overrides.size());
  return plan;
}

TEST_P(PlanRunTest, PatchedRowsAreThoseOfTheirSource) {
  const Machine machine(GetParam());
  const Ids text = Prompt(3 * kPageSize + 1, machine.vocab());
  Ids pads = text;
  std::fill_n(pads.begin() + 4, 6, 3);
  const int end = static_cast<int>(text.size());
  const SourceOfRows rows(machine, Ids(text.begin() + 4, text.begin() + 10), false);
  const auto runner = machine.MakeRunner(machine.model->decoder(),
                                         [&](int64_t source) { return rows.Find(source); });
  const Ran expected = RunPlan(*machine.MakeRunner(), Verify(text, end, 0, 0), machine.vocab());
  const Ran whole = RunPlan(*runner, PatchedPlan(pads, 0, end), machine.vocab());
  ExpectSameRow(whole.logits[0], expected.logits[0], "the embeddings of other ids");
  // A chunk may end at every row.
  for (int cut = 1; cut < end; ++cut) {
    const auto pieces = machine.MakeRunner(machine.model->decoder(),
                                           [&](int64_t source) { return rows.Find(source); });
    RunPlan(*pieces, PatchedPlan(pads, 0, cut), machine.vocab());
    const Ran rest = RunPlan(*pieces, PatchedPlan(pads, cut, end), machine.vocab());
    ExpectSameRow(rest.logits[0], expected.logits[0], "cut at " + std::to_string(cut));
  }

  StepPlan bad = PatchedPlan(pads, 0, end);
  bad.overrides[0].source = 78;
  EXPECT_EQ(runner->Check(bad).message(), "step plan: source 78 of a patch has no 6 rows");
  bad = PatchedPlan(pads, 0, end);
  bad.overrides[0].first_row = 1;
  EXPECT_EQ(runner->Check(bad).message(), "step plan: source 77 of a patch has no 7 rows");
  EXPECT_EQ(machine.MakeRunner()->Check(PatchedPlan(pads, 0, end)).code(),
            StatusCode::kInvalidArgument);
}

TEST_P(PlanRunTest, WhatASourceAddsComesBehindItsLayer) {
  const Machine machine(GetParam());
  const Ids text = Prompt(3 * kPageSize + 1, machine.vocab());
  const int end = static_cast<int>(text.size());
  const SourceOfRows rows(machine, Ids(text.begin() + 4, text.begin() + 10), true);
  const auto hidden_rows = [&](StepPlan plan) {
    plan.hidden_layers = {0};
    plan.hidden_rows.resize(end);
    std::iota(plan.hidden_rows.begin(), plan.hidden_rows.end(), 0);
    plan.entries[0].hidden_rows.end = end;
    std::vector<std::vector<float>> hidden;
    const auto runner = machine.MakeRunner(machine.model->decoder(),
                                           [&](int64_t source) { return rows.Find(source); });
    runner->Take(runner->Launch(plan, [&](int, int, std::span<const float> values) {
      hidden.emplace_back(values.begin(), values.end());
    }));
    return hidden;
  };
  StepPlan plain = PatchedPlan(text, 0, end);
  plain.overrides.clear();
  plain.entries[0].overrides = {};
  auto expected = hidden_rows(plain);
  for (int row = 0; row < 6; ++row) {
    std::vector<float>& values = expected[4 + row];
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += SourceOfRows::Added(row, static_cast<int>(i));
  }
  const auto hidden = hidden_rows(PatchedPlan(text, 0, end));
  ASSERT_EQ(hidden.size(), expected.size());
  for (int row = 0; row < end; ++row) {
    ExpectSameRow(hidden[row], expected[row], "row " + std::to_string(row));
  }
}

// Plans of a scheduler that runs ahead, shares pages, preempts and copies. Two runners execute
// them; one gets only the bytes.
TEST_P(PlanRunTest, PlanFromItsBytesDoesTheSameElsewhere) {
  const Machine here(GetParam()), there(GetParam());
  const auto runner = here.MakeRunner(), other = there.MakeRunner();
  BlockPool pool(14, kPageSize);
  const auto reuse = MakePageReuse(pool, 0);
  Scheduler scheduler({.max_seqs = kMaxSeqs,
                       .max_step_tokens = 12,
                       .max_context = kMaxContext,
                       .group_decodes = true},
                      pool, reuse.get());
  const auto make = [&](int64_t id, int prompt) {
    auto seq = std::make_unique<Sequence>();
    seq->id = id;
    seq->tokens = Prompt(prompt, here.vocab(), 3);
    seq->num_prompt = prompt;
    seq->max_new_tokens = 8;
    seq->sampling = {.temperature = 0.7f, .seed = static_cast<uint64_t>(id)};
    return seq;
  };
  for (int64_t id = 1; id <= 6; ++id) {
    ASSERT_TRUE(scheduler.Add(make(id, 5 + 3 * static_cast<int>(id))).ok());
  }
  struct InFlight {
    StepPlan plan;
    int flight, other_flight;
  };
  std::vector<InFlight> in_flight;
  int steps = 0, copies = 0, references = 0;
  const auto launch = [&](bool ahead) {
    Scheduler::Step step = scheduler.Schedule(ahead);
    ASSERT_TRUE(step.out_of_pages.empty());
    if (step.plan.entries.empty()) return;
    const std::string bytes = Serialize(step.plan);
    const auto parsed =
        ParseStepPlan({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(Serialize(*parsed), bytes);
    ASSERT_TRUE(other->Check(*parsed).ok()) << other->Check(*parsed).message();
    copies += static_cast<int>(step.plan.copies.size());
    for (const TokenRef token : step.plan.tokens) references += !token.is_known();
    const int flight = runner->Launch(step.plan), other_flight = other->Launch(*parsed);
    scheduler.Launched(step.plan);
    for (size_t row = 0; row < step.plan.samples.size(); ++row) {
      const float* a = runner->HostLogits(static_cast<int>(row));
      const float* b = other->HostLogits(static_cast<int>(row));
      EXPECT_EQ(std::memcmp(a, b, here.vocab() * sizeof(float)), 0) << "step " << steps;
    }
    in_flight.push_back({std::move(step.plan), flight, other_flight});
    ++steps;
  };
  while (scheduler.HasWork()) {
    ASSERT_LT(steps, 1000);
    if (in_flight.empty()) launch(false);
    if (in_flight.empty()) continue;
    launch(true);
    const InFlight oldest = std::move(in_flight.front());
    in_flight.erase(in_flight.begin());
    const StepResult result = runner->Take(oldest.flight);
    EXPECT_EQ(other->Take(oldest.other_flight).tokens, result.tokens);
    scheduler.Commit(oldest.plan, test::Outcomes(oldest.plan, [&](const auto& entry) {
                       return result.Of(entry)[0].value();
                     }));
    for (const StepPlan::Entry& entry : oldest.plan.entries) {
      const Sequence* seq = scheduler.Find(entry.sequence);
      if (seq == nullptr || entry.samples.empty()) continue;
      if (seq->num_known() == seq->num_prompt + 1 && seq->id < 3) {
        ASSERT_TRUE(scheduler.Fork(seq->id, make(seq->id + 10, seq->num_prompt)).ok());
      }
      if (seq->num_known() >= seq->num_prompt + 8) scheduler.Finish(seq->id);
    }
  }
  EXPECT_GT(steps, 20);
  EXPECT_GT(references, 20);
  EXPECT_GT(copies, 0);
}

TEST(HiddenRowsTest, AreThoseOfTheLayersAndRowsThatThePlanNames) {
  const Machine machine;
  const int layers = machine.model->config().decoder.layers;
  const int hidden = machine.model->config().decoder.hidden;
  const Ids text = Prompt(9, machine.vocab());
  std::vector<std::vector<float>> expected(layers);  // [layers][T, hidden]
  test::ForwardRunner forward(*machine.ops, machine.model->decoder(), 9, {});
  forward.Append(text, [&](int layer, Tensor residual) {
    expected[layer].assign(residual.ptr<float>(), residual.ptr<float>() + residual.numel());
  });

  StepPlan plan = test::PlanOf({{.sequence = 1, .tokens = {1, 2, 3}, .pages = {9}},
                                {.sequence = 2, .tokens = text, .pages = {1, 2, 3}}});
  plan.hidden_layers = {layers - 1};
  plan.hidden_rows = {2, 8};
  plan.entries[1].hidden_rows = {0, 2};
  const auto runner = machine.MakeRunner();
  std::vector<int> rows;
  runner->Take(runner->Launch(plan, [&](int layer, int row, std::span<const float> values) {
    EXPECT_EQ(layer, layers - 1);
    rows.push_back(row);
    const float* row_of_text = expected[layer].data() + (row - 3) * hidden;
    ExpectSameRow({values.begin(), values.end()}, {row_of_text, row_of_text + hidden}, "hidden");
  }));
  EXPECT_EQ(rows, (std::vector<int>{3 + 2, 3 + 8}));
}

}  // namespace
}  // namespace kuiper
