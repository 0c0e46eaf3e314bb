// A step plan as a value: consistency, limits of a runner, and the byte form.
#include "kuiper/engine/step_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "test/engine/plan_test_util.h"

namespace kuiper {
namespace {

// A plan that uses every field.
StepPlan FullPlan() {
  StepPlan plan;
  plan.ended = {40, 41};
  plan.copies = {{3, 4, 2}, {5, 6, 15}};
  plan.num_axes = 2;
  plan.hidden_layers = {0, 3};
  for (const int64_t sequence : {9, 8, 7}) {
    StepPlan::Entry& entry = plan.Open(sequence, 10 * static_cast<int>(sequence));
    entry.decodes = sequence > 7;
    entry.num_kept_pages = 2;
    for (int i = 0; i < 3; ++i) {
      plan.tokens.push_back(i == 2 ? TokenRef::Sampled(static_cast<int>(sequence) - 7)
                                   : TokenRef::Known(100 + i));
      plan.pages.push_back(1 + i);
    }
    for (const int32_t row : {0, 2}) {
      StepPlan::Sample& sample = plan.samples.emplace_back();
      sample.row = row;
      sample.index = 5 + row;
      sample.params = {.temperature = 0.5f, .top_k = 3, .seed = 77};
      const auto grow = [](auto& array, Range* range) {
        range->begin = static_cast<int32_t>(array.size());
        array.resize(array.size() + 2);
        range->end = static_cast<int32_t>(array.size());
      };
      grow(plan.penalties, &sample.penalties);
      grow(plan.biases, &sample.biases);
      grow(plan.allowed, &sample.allowed);
    }
    plan.logits_rows.push_back(1);
    plan.hidden_rows.push_back(2);
    plan.overrides.push_back({{1, 3}, 12345678901, 5});
    plan.Close();
  }
  for (int i = 0; i < plan.num_axes * plan.num_tokens(); ++i) plan.positions.push_back(i);
  for (size_t i = 0; i < plan.penalties.size(); ++i) {
    plan.penalties[i] = {static_cast<int32_t>(i), 3};
    plan.biases[i] = {static_cast<int32_t>(i), -0.5f};
    plan.allowed[i] = 0x80000001u + static_cast<uint32_t>(i);
  }
  return plan;
}

std::span<const uint8_t> Bytes(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

PlanLimits Limits() {
  return {.max_tokens = 16,
          .max_seqs = 4,
          .max_samples = 4,
          .max_outputs = 6,
          .max_penalties = 100,
          .max_biases = 100,
          .num_axes = 2,
          .max_context = 128,
          .num_pages = 20,
          .vocab = 200,
          .layers = 4};
}

TEST(StepPlanTest, BytesHoldAllOfIt) {
  const StepPlan plan = FullPlan();
  ASSERT_TRUE(CheckPlan(plan).ok()) << CheckPlan(plan).message();
  const std::string bytes = Serialize(plan);
  const auto parsed = ParseStepPlan(Bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(Serialize(*parsed), bytes);
  EXPECT_EQ(parsed->ended, plan.ended);
  EXPECT_EQ(parsed->copies[1].num_tokens, 15);
  EXPECT_EQ(parsed->tokens, plan.tokens);
  EXPECT_EQ(parsed->positions, plan.positions);
  EXPECT_EQ(parsed->entries[1].sequence, 8);
  EXPECT_TRUE(parsed->entries[1].decodes && !parsed->entries[2].decodes);
  EXPECT_EQ(parsed->samples[3].params.temperature, 0.5f);
  EXPECT_EQ(parsed->samples[3].params.seed, 77u);
  EXPECT_EQ(parsed->biases[2].bias, -0.5f);
  EXPECT_EQ(parsed->allowed, plan.allowed);
  EXPECT_EQ(parsed->overrides[2].source, 12345678901);
  EXPECT_EQ(parsed->overrides[2].first_row, 5);
  EXPECT_TRUE(ParseStepPlan(Bytes(Serialize({}))).ok()) << "a plan of nothing";
}

TEST(StepPlanTest, BytesThatAreCutOrTooManyOrOfAnotherVersionAreRefused) {
  const std::string bytes = Serialize(FullPlan());
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(ParseStepPlan(Bytes(bytes.substr(0, size))).ok()) << size;
  }
  EXPECT_FALSE(ParseStepPlan(Bytes(bytes + '\0')).ok());
  std::string other = bytes;
  other[4] = 9;
  const Status refused = ParseStepPlan(Bytes(other)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "step plan: version 9, not 2");
  other[0] = 'X';
  EXPECT_EQ(ParseStepPlan(Bytes(other)).status().message(), "step plan: unknown format");
}

// For any wrong byte, the plan is refused, or it is another consistent plan.
TEST(StepPlanTest, NoByteEndsTheProcess) {
  const std::string bytes = Serialize(FullPlan());
  std::mt19937 rng(3);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string changed = bytes;
    for (int n = 0; n <= i % 3; ++n) changed[rng() % changed.size()] = static_cast<char>(rng());
    const auto parsed = ParseStepPlan(Bytes(changed));
    if (!parsed.ok()) continue;
    ++accepted;
    EXPECT_EQ(Serialize(*parsed), changed);
    EXPECT_EQ(CheckPlan(*parsed, Limits()).code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(CheckPlan(parsed->Only([](const auto& entry) { return entry.decodes; })).ok());
  }
  EXPECT_GT(accepted, 1000);
}

TEST(StepPlanTest, WhatDoesNotAgreeWithItselfIsRefused) {
  const std::vector<std::function<void(StepPlan*)>> mistakes = {
      [](StepPlan* p) { p->tokens.pop_back(); },
      [](StepPlan* p) { p->positions.pop_back(); },
      [](StepPlan* p) { p->num_axes = 0; },
      [](StepPlan* p) { p->num_axes = kMaxAxes + 1; },
      [](StepPlan* p) { p->pages.push_back(1); },
      [](StepPlan* p) { p->entries[1].tokens.begin = 2; },
      [](StepPlan* p) { p->entries[2].pages.end = 10; },
      [](StepPlan* p) { std::swap(p->entries[0].samples.begin, p->entries[0].samples.end); },
      [](StepPlan* p) { p->entries[0].begin = -1; },
      [](StepPlan* p) { p->entries[0].begin = std::numeric_limits<int32_t>::max() - 2; },
      [](StepPlan* p) { p->entries[0].num_kept_pages = -1; },
      [](StepPlan* p) { p->entries[2].decodes = true, p->entries[0].decodes = false; },
      [](StepPlan* p) { p->samples[0].row = 3; },
      [](StepPlan* p) { p->samples[1].row = 0; },
      [](StepPlan* p) { p->samples[1].index = -1; },
      [](StepPlan* p) { p->samples[1].params.temperature = -1; },
      [](StepPlan* p) { p->samples[1].penalties.end = 3; },
      [](StepPlan* p) { p->allowed.push_back(1); },
      [](StepPlan* p) { p->logits_rows[0] = -1; },
      [](StepPlan* p) { p->hidden_rows[0] = 3; },
      [](StepPlan* p) {
        p->hidden_layers = {3, 3};
      },
      [](StepPlan* p) { p->hidden_layers = {}; },
      [](StepPlan* p) {
        p->overrides[0].rows = {2, 4};
      },
      [](StepPlan* p) {
        p->overrides[0].rows = {2, 2};
      },
      [](StepPlan* p) { p->overrides[0].first_row = -1; },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    StepPlan plan = FullPlan();
    mistakes[i](&plan);
    EXPECT_FALSE(CheckPlan(plan).ok()) << "mistake " << i;
    EXPECT_FALSE(ParseStepPlan(Bytes(Serialize(plan))).ok()) << "mistake " << i;
  }
}

TEST(StepPlanTest, WhatARunnerCannotCarryOutIsRefused) {
  StepPlan good = FullPlan();
  EXPECT_EQ(CheckPlan(good, Limits()).message(), "step plan: this runner has no mask of tokens");
  good.allowed.clear();
  for (StepPlan::Sample& sample : good.samples) sample.allowed = {};
  good.biases[3].bias = -std::numeric_limits<float>::infinity();
  PlanLimits limits = Limits();
  limits.max_samples = 6;
  limits.max_outputs = 9;
  ASSERT_TRUE(CheckPlan(good, limits).ok()) << CheckPlan(good, limits).message();

  const std::vector<std::function<void(PlanLimits*)>> smaller = {
      [](PlanLimits* l) { l->max_tokens = 8; },     [](PlanLimits* l) { l->max_seqs = 2; },
      [](PlanLimits* l) { l->max_samples = 5; },    [](PlanLimits* l) { l->max_outputs = 8; },
      [](PlanLimits* l) { l->max_penalties = 11; }, [](PlanLimits* l) { l->max_biases = 11; },
      [](PlanLimits* l) { l->num_axes = 1; },       [](PlanLimits* l) { l->max_context = 92; },
      [](PlanLimits* l) { l->num_pages = 6; },      [](PlanLimits* l) { l->vocab = 101; },
      [](PlanLimits* l) { l->layers = 3; }};
  for (size_t i = 0; i < smaller.size(); ++i) {
    PlanLimits l = limits;
    smaller[i](&l);
    EXPECT_FALSE(CheckPlan(good, l).ok()) << "limit " << i;
  }
  const std::vector<std::function<void(StepPlan*)>> mistakes = {
      [](StepPlan* p) { p->pages[0] = 0; },
      [](StepPlan* p) { p->copies[0].to = 0; },
      [](StepPlan* p) { p->copies[0].num_tokens = 0; },
      [](StepPlan* p) { p->tokens[2] = TokenRef::Sampled(6); },
      [](StepPlan* p) { p->positions[0] = -1; },
      [](StepPlan* p) { p->penalties[0].count = -1; },
      [](StepPlan* p) { p->penalties[0].token = 200; },
      [](StepPlan* p) { p->biases[0].token = 200; },
      [](StepPlan* p) { p->biases[0].bias = std::numeric_limits<float>::infinity(); },
      [](StepPlan* p) { p->biases[0].bias = std::numeric_limits<float>::quiet_NaN(); }};
  for (size_t i = 0; i < mistakes.size(); ++i) {
    StepPlan plan = good;
    mistakes[i](&plan);
    EXPECT_FALSE(CheckPlan(plan, limits).ok()) << "mistake " << i;
  }
}

TEST(StepPlanTest, PartOfAPlanHasWhatItsEntriesHadAndNoCopies) {
  const StepPlan plan = FullPlan();
  const StepPlan part = plan.Only([](const auto& entry) { return entry.sequence != 8; });
  ASSERT_TRUE(CheckPlan(part).ok()) << CheckPlan(part).message();
  EXPECT_TRUE(part.copies.empty()) << "they were made when the whole plan ran";
  EXPECT_EQ(part.ended, plan.ended);
  ASSERT_EQ(part.entries.size(), 2u);
  EXPECT_EQ(part.entries[1].sequence, 7);
  EXPECT_EQ(part.entries[1].begin, 70);
  EXPECT_EQ(part.entries[1].num_kept_pages, 2);
  EXPECT_FALSE(part.entries[1].decodes);
  EXPECT_EQ(part.tokens[5], TokenRef::Sampled(0));
  EXPECT_EQ(part.positions, (std::vector<int32_t>{0, 1, 2, 6, 7, 8, 9, 10, 11, 15, 16, 17}));
  ASSERT_EQ(part.samples.size(), 4u);
  EXPECT_EQ(part.samples[2].penalties.begin, 4);
  EXPECT_EQ(part.samples[2].penalties.end, 6);
  EXPECT_EQ(part.penalties[4].token, 8);
  EXPECT_EQ(part.biases[5].token, 9);
  EXPECT_EQ(part.allowed[7], plan.allowed[11]);
  EXPECT_EQ(part.overrides.size(), 2u);
  EXPECT_EQ(Serialize(plan.Only([](const auto&) { return false; }).Only([](const auto&) {
              return true;
            })).size(),
            Serialize(plan.Only([](const auto&) { return false; })).size());
}

TEST(StepPlanTest, ReferencesAreResolvedWhereTheTokenIsFinite) {
  StepPlan plan;
  plan.tokens = {TokenRef::Known(5), TokenRef::Sampled(1), TokenRef::Sampled(0)};
  Resolve({.tokens = {std::nullopt, 42}}, &plan);
  EXPECT_EQ(plan.tokens[0], TokenRef::Known(5));
  EXPECT_EQ(plan.tokens[1], TokenRef::Known(42));
  EXPECT_EQ(plan.tokens[2], TokenRef::Sampled(0));
}

TEST(StepPlanTest, OnlyStepsOfSampledDecodesAreDecodeSteps) {
  const test::HandMade decode = {.begin = 4, .tokens = {1}, .decodes = true, .samples = true};
  EXPECT_TRUE(test::PlanOf({decode, decode}).decode_only());
  EXPECT_FALSE(StepPlan().decode_only());
  test::HandMade other = decode;
  other.decodes = false;  // the last token of a prompt
  EXPECT_FALSE(test::PlanOf({decode, other}).decode_only());
  other = decode;
  other.samples = false;
  EXPECT_FALSE(test::PlanOf({decode, other}).decode_only());
  other = decode;
  other.tokens = {1, 2};
  EXPECT_FALSE(test::PlanOf({decode, other}).decode_only());
  StepPlan plan = test::PlanOf({decode});
  plan.hidden_layers = plan.hidden_rows = {0};
  plan.entries[0].hidden_rows = {0, 1};
  EXPECT_FALSE(plan.decode_only()) << "hidden rows are wanted";
}

}  // namespace
}  // namespace kuiper
