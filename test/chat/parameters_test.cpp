#include "kuiper/chat/parameters.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <set>

namespace kuiper {
namespace {

TEST(Parameters, EachStandsOnceAndIsFoundByBothNames) {
  std::set<std::string> names;
  for (const Parameter& parameter : Parameters()) {
    EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
    if (parameter.typed_name != parameter.name) {
      EXPECT_TRUE(names.insert(parameter.typed_name).second) << parameter.typed_name;
    }
    EXPECT_EQ(FindParameter(parameter.name), &parameter);
    EXPECT_EQ(FindParameter(parameter.typed_name), &parameter);
  }
  EXPECT_EQ(FindParameter("paged_attention"), nullptr);
  EXPECT_EQ(FindParameter(""), nullptr);
}

// Each parameter changes only its own variable.
TEST(Parameters, EachHasAVariableOfItsOwn) {
  for (const Parameter& parameter : Parameters()) {
    Request request;
    const std::string before = VariableText(parameter.of(request));
    const std::string value = before == "false" ? "true" : before == "1" ? "0.5" : "1";
    const bool is_map = std::holds_alternative<std::map<int, float>*>(parameter.of(request));
    const bool whole = !std::holds_alternative<float*>(parameter.of(request));
    const std::string text = is_map ? "1:1" : whole && value == "0.5" ? "2" : value;
    ASSERT_TRUE(parameter.Set(&request, "x", text).ok()) << parameter.name;
    for (const Parameter& other : Parameters()) {
      Request fresh;
      const bool changed = VariableText(other.of(request)) != VariableText(other.of(fresh));
      EXPECT_EQ(changed, &other == &parameter) << parameter.name << " and " << other.name;
    }
  }
}

// The engine accepts all values in a range; the range refuses all others.
TEST(Parameters, TheEngineTakesWhatTheRangesAllow) {
  constexpr int kVocab = 1000;
  for (const Parameter& parameter : Parameters()) {
    const Variable kind = parameter.of(*std::make_unique<Request>());
    if (IsSwitch(kind) || ValueName(kind, {}).empty()) continue;
    const Limits& limits = parameter.limits;
    for (const double value : {limits.min, limits.max}) {
      Request request;
      request.prompt = {1};
      if (parameter.name == "length_penalty") request.beam_width = 2;
      if (parameter.name == "min_tokens") request.max_new_tokens = INT32_MAX;
      char text[40];
      const bool is_map = std::holds_alternative<std::map<int, float>*>(kind);
      std::snprintf(text, sizeof(text), is_map ? "3:%.10g" : "%.10g", value);
      if (value == limits.min && limits.above_min) {
        EXPECT_FALSE(parameter.Set(&request, "x", text).ok()) << parameter.name;
        continue;
      }
      ASSERT_TRUE(parameter.Set(&request, "x", text).ok()) << parameter.name << " " << text;
      EXPECT_TRUE(CheckRequest(request, kVocab).ok())
          << parameter.name << " " << text << ": " << CheckRequest(request, kVocab).message();
    }
  }
}

TEST(Parameters, GenerationConfigFillsWhatWasNotGiven) {
  GenerationConfig config;
  config.do_sample = true;
  config.sampling = {{"temperature", 0.6}, {"top_k", 20}, {"top_p", 0.95}};
  Request request;
  request.sampling.top_k = 5;
  ApplyGenerationConfig(
      config, [](const Parameter& p) { return p.typed_name == "top_k"; }, &request);
  EXPECT_EQ(request.sampling.temperature, 0.6f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.top_p, 0.95f);
  EXPECT_EQ(request.sampling.min_p, 0.f);
  const auto none = [](const Parameter&) { return false; };
  config.do_sample = false;
  ApplyGenerationConfig(config, none, &request);
  EXPECT_EQ(request.sampling.temperature, 0.f) << "greedy, whatever the temperature";
  EXPECT_EQ(request.sampling.top_k, 20);
  config.do_sample.reset();
  ApplyGenerationConfig(config, none, &request);
  EXPECT_EQ(request.sampling.temperature, 0.6f);
  config.sampling.clear();
  ApplyGenerationConfig(config, none, &request);
  EXPECT_EQ(request.sampling.temperature, 0.f) << "nobody says that it samples";
  config.do_sample = true;
  ApplyGenerationConfig(config, none, &request);
  EXPECT_EQ(request.sampling.temperature, 1.f);
}

TEST(Parameters, ChatsSampleWhereTheModelDoesNotSay) {
  GenerationConfig config;
  config.sampling = {{"top_p", 0.5}, {"repetition_penalty", 1.25}};
  EXPECT_TRUE(SamplesByDefault(&config));
  EXPECT_EQ(
      config.sampling,
      (std::map<std::string, double>{
          {"temperature", 0.8}, {"top_p", 0.5}, {"min_p", 0.05}, {"repetition_penalty", 1.25}}));
  GenerationConfig greedy, sampling;
  greedy.do_sample = false;
  sampling.sampling = {{"temperature", 0.6}};
  for (GenerationConfig* says : {&greedy, &sampling}) {
    const auto before = says->sampling;
    EXPECT_FALSE(SamplesByDefault(says));
    EXPECT_EQ(says->sampling, before);
  }
}

}  // namespace
}  // namespace kuiper
