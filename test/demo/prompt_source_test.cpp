#include "demo/prompt_source.h"

#include <gtest/gtest.h>

#include "test/temp_file.h"

namespace kuiper::demo {
namespace {

using test::TempFile;

StatusOr<PromptInput> FromInput(const std::string& text, Options options = {}) {
  TempFile input(text);
  return ReadPrompt(options, input.fd(), false);
}

TEST(PromptSource, WholeInputIsOneMessage) {
  EXPECT_EQ(FromInput("Hello\n")->text, "Hello");
  EXPECT_EQ(FromInput("Hello")->text, "Hello");
  EXPECT_EQ(FromInput("a\nb\n\n")->text, "a\nb\n");
  EXPECT_EQ(FromInput("a\r\n")->text, "a");
  EXPECT_FALSE(FromInput("Hello\n")->is_default);
}

TEST(PromptSource, EmptyInputAsksTheDefaultQuestion) {
  const auto input = FromInput("");
  ASSERT_TRUE(input.ok());
  EXPECT_TRUE(input->is_default);
  EXPECT_EQ(input->text, "你好，请介绍一下你自己！");
}

TEST(PromptSource, TerminalIsNotRead) {
  TempFile terminal("typed later\n");
  const auto input = ReadPrompt({}, terminal.fd(), true);
  EXPECT_TRUE(input->is_default);
}

TEST(PromptSource, BadInputIsAnInputError) {
  EXPECT_EQ(FromInput("\n").status().code(), StatusCode::kInput);
  EXPECT_EQ(FromInput("\n").status().message(), "standard input is empty");
  EXPECT_EQ(FromInput("ab\xff\n").status().message(), "standard input is not valid UTF-8");
}

TEST(PromptSource, PromptFlagLeavesInputAlone) {
  Options options;
  options.prompt = "Hi";
  EXPECT_EQ(FromInput("ignored", options)->text, "Hi");
  options.prompt = "";
  EXPECT_EQ(FromInput("ignored", options).status().message(), "--prompt is empty");
}

TEST(PromptSource, Files) {
  TempFile file("from a file\n");
  Options options;
  options.prompt_file = file.path();
  EXPECT_EQ(FromInput("ignored", options)->text, "from a file");
  options.prompt_file = "-";
  EXPECT_EQ(FromInput("from input\n", options)->text, "from input");
  EXPECT_EQ(FromInput("", options).status().code(), StatusCode::kInput);
  options.prompt_file = "/nonexistent/file";
  EXPECT_EQ(FromInput("", options).status().message(),
            "cannot open prompt file /nonexistent/file: No such file or directory");
  options.prompt_file = "/";
  EXPECT_EQ(FromInput("", options).status().code(), StatusCode::kInput);
  TempFile empty("");
  options.prompt_file = empty.path();
  EXPECT_EQ(FromInput("", options).status().code(), StatusCode::kInput);
}

TEST(PromptSource, Messages) {
  TempFile file(R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])");
  Options options;
  options.messages_file = file.path();
  const auto input = FromInput("", options);
  ASSERT_TRUE(input.ok()) << input.status().message();
  ASSERT_EQ(input->messages.messages.size(), 2u);
  EXPECT_EQ(input->messages.messages[1].text, "U");
  EXPECT_FALSE(input->text.has_value());
  TempFile bad("[{]");
  options.messages_file = bad.path();
  EXPECT_EQ(FromInput("", options).status().code(), StatusCode::kInput);
}

TEST(PromptSource, TheDefaultQuestionIsAboutThePicture) {
  Options options;
  options.media = {{.kind = ContentPart::Kind::kImage, .text = "a.png"}};
  const auto input = FromInput("", options);
  ASSERT_TRUE(input.ok());
  EXPECT_TRUE(input->is_default);
  EXPECT_EQ(input->text, "Describe this image.");
  EXPECT_EQ(input->media.size(), 1u);
}

// From there relative paths of pictures count.
TEST(PromptSource, KnowsTheFolderOfTheMessages) {
  TempFile file(R"([{"role":"user","content":[{"type":"image","image":"own.png"}]}])");
  Options options;
  options.messages_file = file.path();
  const auto input = FromInput("", options);
  ASSERT_TRUE(input.ok()) << input.status().message();
  EXPECT_EQ(input->folder, "/tmp");
  EXPECT_EQ(input->messages.messages[0].parts[0].text, "own.png");
}

TEST(PromptSource, ChatLeavesInputForItsTurns) {
  Options options;
  options.task = Task::kChat;
  const auto input = FromInput("a turn\n", options);
  EXPECT_FALSE(input->text.has_value());
  EXPECT_FALSE(input->is_default);
}

}  // namespace
}  // namespace kuiper::demo
