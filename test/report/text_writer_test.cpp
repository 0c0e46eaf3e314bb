#include "kuiper/report/text_writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kuiper {
namespace {

TokenEvent Event(const std::string& text, const std::string& reasoning = "") {
  TokenEvent event;
  event.text = text;
  event.reasoning = reasoning;
  return event;
}

// What reaches stdout for these events and the completion they add up to.
std::string Output(TextStyle style, const std::vector<TokenEvent>& events, bool inside = false) {
  std::string out;
  TextWriter writer(style, [&](std::string_view text) { out += text; });
  Completion completion;
  for (const TokenEvent& event : events) {
    writer.OnEvent(event);
    completion.text += event.text;
    completion.reasoning += event.reasoning;
  }
  completion.has_reasoning = !completion.reasoning.empty();
  completion.inside_thinking = inside;
  writer.Finish(completion);
  return out;
}

const TextStyle kText{OutputFormat::kText, false, false};
const TextStyle kTextShown{OutputFormat::kText, false, true};
const TextStyle kStream{OutputFormat::kText, true, false};
const TextStyle kStreamShown{OutputFormat::kText, true, true};

TEST(TextWriter, TextHasOnePrefixAndOneNewline) {
  EXPECT_EQ(Output(kText, {Event("Hel"), Event("lo\nyou")}), "Assistant: Hello\nyou\n");
  EXPECT_EQ(Output(kText, {Event("Hello\n")}), "Assistant: Hello\n");
  EXPECT_EQ(Output(kText, {}), "Assistant: \n");
}

TEST(TextWriter, RawAndStreamedTextHaveNoPrefix) {
  EXPECT_EQ(Output({OutputFormat::kRaw, false, false}, {Event("Hello")}), "Hello\n");
  EXPECT_EQ(Output(kStream, {Event("Hel"), Event("lo")}), "Hello\n");
  EXPECT_EQ(Output({OutputFormat::kRaw, true, false}, {Event("Hello")}), "Hello\n");
}

TEST(TextWriter, HiddenThinkingLeavesTheAnswer) {
  const std::vector<TokenEvent> events = {Event("", "hm"), Event("4")};
  EXPECT_EQ(Output(kText, events), "Assistant: 4\n");
  EXPECT_EQ(Output(kStream, events), "4\n");
}

TEST(TextWriter, ShownThinkingStartsOnTheFirstLine) {
  const std::vector<TokenEvent> events = {Event("", "two "), Event("", "plus"), Event("4")};
  EXPECT_EQ(Output(kTextShown, events), "Assistant: <think> two plus\n</think>\n\n4\n");
  EXPECT_EQ(Output(kStreamShown, events), "<think> two plus\n</think>\n\n4\n");
}

TEST(TextWriter, UnfinishedThinkingIsAlwaysShown) {
  const std::vector<TokenEvent> events = {Event("", "two "), Event("", "plus")};
  EXPECT_EQ(Output(kText, events, true), "Assistant: <think> two plus\n");
  EXPECT_EQ(Output(kStream, events, true), "<think> two plus\n");
  EXPECT_EQ(Output(kStreamShown, events, true), "<think> two plus\n");
}

TEST(TextWriter, NothingButTheTag) {
  EXPECT_EQ(Output(kText, {}, true), "Assistant: <think> \n");
  EXPECT_EQ(Output(kStream, {}, true), "<think> \n");
  EXPECT_EQ(Output(kStreamShown, {}, true), "<think> \n");
}

TEST(TextWriter, ReasoningStandsInForAnEmptyAnswer) {
  const std::vector<TokenEvent> events = {Event("", "hm")};
  EXPECT_EQ(Output(kText, events), "Assistant: <think> hm\n</think>\n\n");
  EXPECT_EQ(Output(kStream, events), "<think> hm\n</think>\n\n\n");
  EXPECT_EQ(Output(kTextShown, events), "Assistant: <think> hm\n</think>\n\n");
  EXPECT_EQ(Output(kStreamShown, events), "<think> hm\n</think>\n\n\n");
}

TEST(TextWriter, JsonLinesAreOneObjectPerPiece) {
  const std::string out =
      Output({OutputFormat::kJsonLines, true, false}, {Event("", "r\n"), Event(""), Event("é\"")});
  const size_t end = out.find('\n');
  EXPECT_EQ(nlohmann::json::parse(out.substr(0, end)),
            nlohmann::json({{"type", "delta"}, {"reasoning", "r\n"}}));
  EXPECT_EQ(nlohmann::json::parse(out.substr(end + 1)),
            nlohmann::json({{"type", "delta"}, {"text", "é\""}}));
}

TEST(TextWriter, JsonPrintsNothingByItself) {
  EXPECT_EQ(Output({OutputFormat::kJson, true, false}, {Event("a")}), "");
}

}  // namespace
}  // namespace kuiper
