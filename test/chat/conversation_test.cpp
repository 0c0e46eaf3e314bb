#include "kuiper/chat/conversation.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "kuiper/io/messages_json.h"
#include "kuiper/io/thinking.h"
#include "kuiper/io/token_stream.h"
#include "test/chat/default_templates.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using test::DefaultPromptTemplate;
using test::Shared;
using Ids = std::vector<int32_t>;

class ConversationTest : public testing::Test {
 protected:
  void SetUp() override {
    KU_REQUIRE_SHARED("tokenizers/qwen3/tokenizer.json");
    auto tokenizer = Tokenizer::Load(Shared("tokenizers/qwen3"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
  }

  std::string Text(const Conversation& conversation, const TemplateOptions& options) {
    const auto ids = EncodePrompt(*tokenizer_, conversation, options);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return DecodeTokens(*tokenizer_, *ids, {.skip_special = false});
  }
  Ids Prompt(const Conversation& conversation, const TemplateOptions& options) {
    return *EncodePrompt(*tokenizer_, conversation, options);
  }
  // An answer as the engine reports it: `raw` is everything the model wrote before its <|im_end|>.
  Completion Answer(const std::string& raw, FinishReason finish = FinishReason::kStop) {
    Completion completion;
    completion.tokens = tokenizer_->EncodeWithSpecials(raw);
    if (finish == FinishReason::kStop) {
      completion.tokens.push_back(*tokenizer_->TokenId("<|im_end|>"));
    }
    completion.finish = finish;
    const ThinkingText split = SplitThinking(raw);
    completion.text = split.answer;
    completion.has_reasoning = split.reasoning.has_value();
    completion.reasoning = split.reasoning.value_or("");
    return completion;
  }
  static bool StartsWith(const Ids& ids, const Ids& prefix) {
    return ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  TemplateOptions qwen3_{.chat_template = &DefaultPromptTemplate("qwen3")};
  TemplateOptions qwen25_{.chat_template = &DefaultPromptTemplate("qwen2")};
};

// Renderings of the official templates by Jinja2.
TEST_F(ConversationTest, EqualsTheOfficialTemplates) {
  KU_REQUIRE_SHARED("chat_goldens/qwen3.json");
  int checked = 0;
  for (const auto& [file, model_type] : {std::pair("chat_goldens/qwen3.json", "qwen3"),
                                         std::pair("chat_goldens/qwen2.5.json", "qwen2")}) {
    std::ifstream stream(Shared(file));
    const nlohmann::json goldens = nlohmann::json::parse(stream);
    for (const auto& item : goldens["cases"]) {
      const auto& args = item["args"];
      if (!args.value("add_generation_prompt", false) || args.contains("tools")) continue;
      auto parsed = ParseMessagesJson(args["messages"].dump());
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      Conversation conversation;
      conversation.SetMessages(parsed->messages);
      TemplateOptions options{.chat_template = &DefaultPromptTemplate(model_type)};
      if (args.contains("enable_thinking")) options.think = args["enable_thinking"].get<bool>();
      EXPECT_EQ(Text(conversation, options), item["rendered"].get<std::string>()) << item["name"];
      ++checked;
    }
  }
  EXPECT_GT(checked, 8);
}

TEST_F(ConversationTest, SystemMessageDefaultAndNone) {
  Conversation conversation;
  conversation.AddUser("Hi");
  EXPECT_EQ(Text(conversation, qwen25_).find("<|im_start|>system\nYou are Qwen"), 0u);
  conversation.SetSystem("Be brief.");
  EXPECT_EQ(Text(conversation, qwen25_).find("<|im_start|>system\nBe brief.<|im_end|>\n"), 0u);
  conversation.SetSystem("");
  const std::string bare = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(Text(conversation, qwen25_), bare);
  EXPECT_EQ(Text(conversation, qwen3_), bare);
}

// An empty system message that was sent is not the same as none.
TEST_F(ConversationTest, AnEmptySystemMessageReachesTheTemplate) {
  const auto parsed =
      ParseMessagesJson(R"([{"role":"system","content":""},{"role":"user","content":"Hi"}])");
  ASSERT_TRUE(parsed.ok());
  Conversation conversation;
  conversation.SetMessages(parsed->messages);
  const std::string expected =
      "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(Text(conversation, qwen25_), expected);
  EXPECT_EQ(Text(conversation, qwen3_), expected);
  const auto own = PromptTemplate::Make(
      {.name = "own",
       .source = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(Text(conversation, {.chat_template = &*own}), "[system:][user:Hi]");
}

TEST_F(ConversationTest, UserTextNeverBecomesControlTokens) {
  Conversation conversation;
  conversation.AddUser("<|im_end|>");
  const Ids ids = Prompt(conversation, qwen3_);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer_->TokenId("<|im_end|>")), 1);
}

// The ids of an answer need not be those its text would be encoded to.
TEST_F(ConversationTest, NextPromptBeginsWithTheGeneratedIds) {
  for (const TemplateOptions& options : {qwen25_, qwen3_}) {
    Conversation conversation;
    conversation.AddUser("Hi");
    Ids expected = Prompt(conversation, options);
    Completion answer = Answer("");
    for (const char* piece : {"H", "e", "l", "l", "o"}) {
      const Ids ids = tokenizer_->Encode(piece);
      answer.tokens.insert(answer.tokens.end() - 1, ids.begin(), ids.end());
    }
    answer.text = "Hello";
    ASSERT_GT(answer.tokens.size() - 1, tokenizer_->Encode("Hello").size());
    conversation.AddAnswer(answer, options, true, *tokenizer_);
    conversation.AddUser("more");
    expected.insert(expected.end(), answer.tokens.begin(), answer.tokens.end());
    EXPECT_TRUE(StartsWith(Prompt(conversation, options), expected));
  }
}

TEST_F(ConversationTest, StrippedThinkingFollowsTheTemplate) {
  Conversation conversation;
  conversation.AddUser("1+1?");
  conversation.AddAnswer(Answer("<think>\nsimple\n</think>\n\n2"), qwen3_, true, *tokenizer_);
  conversation.AddUser("2+2?");
  EXPECT_EQ(Text(conversation, qwen3_),
            "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ConversationTest, KeptThinkingReusesEverything) {
  for (const bool think : {true, false}) {
    TemplateOptions keep = qwen3_;
    keep.keep_thinking = true;
    keep.think = think;
    Conversation conversation;
    conversation.AddUser("1+1?");
    Ids expected = Prompt(conversation, keep);
    const Completion answer = Answer(think ? "<think>\nsimple\n</think>\n\n2" : "2");
    expected.insert(expected.end(), answer.tokens.begin(), answer.tokens.end());
    conversation.AddAnswer(answer, keep, true, *tokenizer_);
    conversation.AddUser("2+2?");
    EXPECT_TRUE(StartsWith(Prompt(conversation, keep), expected)) << think;
  }
}

TEST_F(ConversationTest, CutAnswersAreEncodedFromTheirText) {
  Conversation conversation;
  conversation.AddUser("count");
  Completion answer = Answer("1 2 STOP", FinishReason::kStopString);
  answer.text = "1 2 ";
  conversation.AddAnswer(answer, qwen25_, true, *tokenizer_);
  conversation.AddUser("go on");
  EXPECT_EQ(Text(conversation, qwen25_).find("STOP"), std::string::npos);
  EXPECT_NE(Text(conversation, qwen25_).find("assistant\n1 2 <|im_end|>\n"), std::string::npos);
}

TEST_F(ConversationTest, UnfinishedAnswersAreClosed) {
  Conversation conversation;
  conversation.AddUser("count");
  conversation.AddAnswer(Answer("1 2", FinishReason::kLength), qwen25_, true, *tokenizer_);
  conversation.AddUser("go on");
  EXPECT_NE(Text(conversation, qwen25_).find("assistant\n1 2<|im_end|>\n<|im_start|>user\ngo on"),
            std::string::npos);
}

TEST_F(ConversationTest, TurnsAreDroppedWhole) {
  Conversation conversation;
  conversation.SetSystem("S");
  for (const char* question : {"a", "b", "c"}) {
    conversation.AddUser(question);
    if (std::string(question) != "c") {
      conversation.AddAnswer(Answer("answer"), qwen3_, true, *tokenizer_);
    }
  }
  EXPECT_EQ(conversation.num_turns(), 3);
  EXPECT_TRUE(conversation.waits_for_answer());
  ASSERT_TRUE(conversation.DropOldestTurn());
  EXPECT_EQ(conversation.num_turns(), 2);
  EXPECT_EQ(conversation.Messages()[1].text, "b");
  ASSERT_TRUE(conversation.DropOldestTurn());
  EXPECT_FALSE(conversation.DropOldestTurn()) << "the last question stays";
  EXPECT_EQ(conversation.system(), "S");
  EXPECT_TRUE(conversation.DropLastTurn());
  EXPECT_FALSE(conversation.DropLastTurn());
}

TEST(RoomForAnswers, IsAtMostHalfTheContext) {
  EXPECT_EQ(RoomForAnswers(1024, 128, false).max_prompt, 896);
  EXPECT_EQ(RoomForAnswers(1024, 128, false).kept_prompt, 896);
  EXPECT_EQ(RoomForAnswers(1024, 128, true).kept_prompt, 448);
  EXPECT_EQ(RoomForAnswers(1024, 800, true).max_prompt, 512);
  EXPECT_EQ(RoomForAnswers(1024, 1024, true).max_prompt, 768) << "an answer to the end";
}

// A chat of many turns: the prompt always leaves the room, and between two drops it only grows.
TEST_F(ConversationTest, OldTurnsLeaveSeldomAndManyAtOnce) {
  const HistoryLimits limits = RoomForAnswers(600, 50, true);
  Conversation conversation;
  conversation.SetSystem("S");
  int drops = 0;
  Ids last;
  for (int turn = 0; turn < 60; ++turn) {
    conversation.AddUser("question " + std::to_string(turn));
    const int turns = conversation.num_turns();
    const auto prompt = BuildPrompt(*tokenizer_, qwen25_, limits, &conversation);
    ASSERT_TRUE(prompt.ok());
    EXPECT_LE(static_cast<int>(prompt->ids.size()), 550);
    EXPECT_EQ(prompt->ids, Prompt(conversation, qwen25_));
    EXPECT_EQ(conversation.num_turns(), turns - prompt->dropped_turns);
    if (prompt->dropped_turns == 0) {
      EXPECT_TRUE(StartsWith(prompt->ids, last));
    } else {
      ++drops;
      EXPECT_GE(prompt->dropped_turns, 5);
      EXPECT_GT(prompt->dropped_tokens, 0);
      EXPECT_LE(static_cast<int>(prompt->ids.size()), 275);
      EXPECT_GT(static_cast<int>(prompt->ids.size()), 275 - 50) << "no more than must be";
    }
    last = prompt->ids;
    conversation.AddAnswer(Answer("an answer of some words, about 20 tokens or a few more of them"),
                           qwen25_, true, *tokenizer_);
  }
  EXPECT_GE(drops, 2);
  EXPECT_LE(drops, 8);
}

TEST_F(ConversationTest, TheNewestTurnNeverLeaves) {
  Conversation conversation;
  conversation.AddUser("a long question that no limit lets through");
  HistoryLimits limits;
  limits.max_prompt = limits.kept_prompt = 3;
  limits.max_turns = limits.kept_turns = 0;
  const auto prompt = BuildPrompt(*tokenizer_, qwen3_, limits, &conversation);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->dropped_turns, 0);
  EXPECT_EQ(conversation.num_turns(), 1);
}

TEST_F(ConversationTest, SurplusTurnsAreToldApart) {
  Conversation conversation;
  for (int turn = 0; turn < 12; ++turn) {
    conversation.AddUser("q");
    if (turn < 11) conversation.AddAnswer(Answer("a"), qwen25_, true, *tokenizer_);
  }
  HistoryLimits limits;
  limits.max_turns = 10;
  limits.kept_turns = 5;
  const auto prompt = BuildPrompt(*tokenizer_, qwen25_, limits, &conversation);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->dropped_turns, 6);
  EXPECT_EQ(prompt->surplus_turns, 6);
  EXPECT_EQ(conversation.num_turns(), 6);
}

// Messages of the official processor's goldens with an image, whose pads are the image's tokens.
class PictureConversationTest : public ConversationTest {
 protected:
  void SetUp() override {
    ConversationTest::SetUp();
    if (tokenizer_ == nullptr) return;
    const auto processor = ImageProcessor::Create(VisionConfig(), {});
    ASSERT_TRUE(processor.ok());
    const auto id = [&](const char* token) { return tokenizer_->TokenId(token).value(); };
    pad_ = id("<|image_pad|>");
    reader_.emplace(*processor, VisionTokens{pad_, id("<|video_pad|>"), id("<|vision_start|>"),
                                             id("<|vision_end|>")});
    options_ = {.chat_template = &DefaultPromptTemplate("qwen3_vl"), .pictures = &*reader_};
  }
  ContentPart Image(const std::string& name) {
    ContentPart part{.kind = ContentPart::Kind::kImage,
                     .text = test::Source("test/data/images/" + name)};
    const Status status = reader_->Read("", "x", &part);
    EXPECT_TRUE(status.ok()) << status.message();
    return part;
  }
  int64_t Pads(const Ids& ids) const { return std::count(ids.begin(), ids.end(), pad_); }
  int64_t TokensOf(const ContentPart& part) const {
    return reader_->Of({Message{.parts = {part}}})->at(0)->num_tokens();
  }

  int32_t pad_ = 0;
  std::optional<PictureReader> reader_;
  TemplateOptions options_;
};

TEST_F(PictureConversationTest, PicturesStandInFrontOfTheTextWithAllTheirTokens) {
  const ContentPart a = Image("00-rgb.jpg"), b = Image("rgb-8.png");
  Conversation conversation;
  conversation.AddUser("Which?", {a, b});
  HistoryLimits limits;
  const auto prompt = BuildPrompt(*tokenizer_, options_, limits, &conversation);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  std::string text = "<|im_start|>user\n";
  for (const ContentPart& part : {a, b}) {
    text += "<|vision_start|>";
    for (int64_t i = 0; i < TokensOf(part); ++i) text += "<|image_pad|>";
    text += "<|vision_end|>";
  }
  EXPECT_EQ(prompt->ids,
            tokenizer_->EncodeWithSpecials(text + "Which?<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(prompt->ids, Prompt(conversation, options_));
  ASSERT_EQ(prompt->images.size(), 2u);
  EXPECT_EQ(prompt->images[0].patches.size(), static_cast<size_t>(TokensOf(a)) * 4 * 1536);
  const Request request = MakeRequest(*prompt, {});
  EXPECT_EQ(request.images.size(), 2u);
  EXPECT_EQ(request.prompt, prompt->ids);
}

TEST_F(PictureConversationTest, TurnsThatLeaveTakeTheirPicturesAlong) {
  const ContentPart a = Image("00-rgb.jpg"), b = Image("rgb-8.png");
  Conversation conversation;
  conversation.AddUser("One", {a});
  conversation.AddAnswer(Answer("1"), options_, true, *tokenizer_);
  conversation.AddUser("Two", {b});
  HistoryLimits limits;
  limits.max_turns = limits.kept_turns = 0;
  const auto prompt = BuildPrompt(*tokenizer_, options_, limits, &conversation);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_EQ(prompt->dropped_turns, 1);
  ASSERT_EQ(prompt->images.size(), 1u);
  EXPECT_EQ(Pads(prompt->ids), TokensOf(b));
  EXPECT_GE(prompt->dropped_tokens, TokensOf(a));
}

TEST_F(PictureConversationTest, PadsThatTheModelWroteAreNoPlaces) {
  Conversation conversation;
  conversation.AddUser("One", {Image("00-rgb.jpg")});
  const int64_t pads = Pads(Prompt(conversation, options_));
  conversation.AddAnswer(Answer("a<|image_pad|>b"), options_, true, *tokenizer_);
  conversation.AddUser("<|image_pad|>");
  EXPECT_EQ(Pads(Prompt(conversation, options_)), pads);
}

TEST_F(PictureConversationTest, RawTextSpellsThePlaces) {
  const ContentPart image = Image("00-rgb.jpg");
  const auto prompt = [&](const std::string& text) {
    return RawPrompt(*tokenizer_, options_, Message{.parts = {image, {.text = text}}});
  };
  const auto good = prompt("See <|vision_start|><|image_pad|><|vision_end|>");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(Pads(good->ids), TokensOf(image));
  EXPECT_EQ(good->images.size(), 1u);
  EXPECT_EQ(prompt("no place").status().code(), StatusCode::kInput);
}

TEST_F(PictureConversationTest, ATextModelTakesNone) {
  Conversation conversation;
  conversation.AddUser("One", {Image("00-rgb.jpg")});
  for (const char* model_type : {"qwen3", "qwen3_vl"}) {
    const auto ids = EncodePrompt(*tokenizer_, conversation,
                                  {.chat_template = &DefaultPromptTemplate(model_type)});
    EXPECT_EQ(ids.status().message(), "message 0 holds an image, but the model takes text only");
  }
}

TEST_F(ConversationTest, RegenerateAndUndo) {
  Conversation conversation;
  EXPECT_FALSE(conversation.DropLastAnswer());
  conversation.AddUser("a");
  EXPECT_FALSE(conversation.DropLastAnswer());
  const Ids before = Prompt(conversation, qwen3_);
  conversation.AddAnswer(Answer("x"), qwen3_, true, *tokenizer_);
  ASSERT_TRUE(conversation.DropLastAnswer());
  EXPECT_EQ(Prompt(conversation, qwen3_), before);
}

TEST_F(ConversationTest, OpenThinkingAtTheEnd) {
  const auto inside = [&](const std::string& text) {
    return EndsInsideThinking(*tokenizer_, tokenizer_->EncodeWithSpecials(text));
  };
  EXPECT_TRUE(inside("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(inside("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(inside("<think>x<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(inside("plain"));
}

}  // namespace
}  // namespace kuiper
