#include "demo/prompt_source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "kuiper/base/line_reader.h"

namespace kuiper::demo {
namespace {

// A file that stands for standard input, or for a prompt file.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    char path[] = "/tmp/kuiper_demo_test_XXXXXX";
    fd_ = mkstemp(path);
    path_ = path;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TempFile() {
    close(fd_);
    std::filesystem::remove(path_);
  }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  std::string path_;
  int fd_ = -1;
};

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

TEST(PromptSource, ImagesWithoutAPathAreThoseOfTheFlags) {
  using Kind = ContentPart::Kind;
  TempFile file(R"([{"role":"user","content":[{"type":"image"},{"type":"text","text":"and"},
      {"type":"image","image":"own.png"},{"type":"video"}]}])");
  Options options;
  options.messages_file = file.path();
  options.media = {{.kind = Kind::kImage, .text = "a"}, {.kind = Kind::kVideo, .text = "b"}};
  const auto input = FromInput("", options);
  ASSERT_TRUE(input.ok()) << input.status().message();
  const std::vector<ContentPart>& parts = input->messages.messages[0].parts;
  EXPECT_EQ(parts[0].text, "a");
  EXPECT_EQ(parts[2].text, "own.png");
  EXPECT_EQ(parts[3].text, "b");
  EXPECT_EQ(input->folder, "/tmp");
  EXPECT_TRUE(input->media.empty());
  options.media.pop_back();
  EXPECT_EQ(FromInput("", options).status().message(),
            "the messages have places for 2 pictures, and 1 was given");
  options.media.insert(options.media.begin(), {.kind = Kind::kVideo, .text = "b"});
  EXPECT_EQ(FromInput("", options).status().message(),
            "the messages have the place of an image where a video was given");
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

TEST(PromptSource, ChatLeavesInputForItsTurns) {
  Options options;
  options.task = Task::kChat;
  const auto input = FromInput("a turn\n", options);
  EXPECT_FALSE(input->text.has_value());
  EXPECT_FALSE(input->is_default);
}

TEST(LineReader, LinesWithAndWithoutEnds) {
  TempFile file("one\n\ntwo\r\nthree");
  LineReader reader(file.fd());
  EXPECT_EQ(reader.Next(), "one");
  EXPECT_EQ(reader.Next(), "");
  EXPECT_EQ(reader.Next(), "two");
  EXPECT_EQ(reader.Next(), "three");
  EXPECT_EQ(reader.Next(), std::nullopt);
}

TEST(LineReader, SkipsTheRestOfAnEndlessLine) {
  constexpr size_t kMaxLine = size_t{64} << 20;
  TempFile file(std::string(kMaxLine + 5000, 'x') + "\nnext");
  LineReader reader(file.fd());
  EXPECT_EQ(reader.Next()->size(), kMaxLine);
  EXPECT_EQ(reader.Next(), "next");
  EXPECT_EQ(reader.Next(), std::nullopt);
}

TEST(LineReader, IsReadyWhenALineOrTheEndIsThere) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LineReader reader(ends[0]);
  EXPECT_FALSE(reader.Ready(0));
  ASSERT_EQ(write(ends[1], "on", 2), 2);
  EXPECT_FALSE(reader.Ready(0)) << "half a line";
  ASSERT_EQ(write(ends[1], "e\ntwo\nth", 8), 8);
  EXPECT_TRUE(reader.Ready(0));
  EXPECT_EQ(reader.Next(), "one");
  EXPECT_TRUE(reader.Ready(0)) << "it has come already";
  EXPECT_EQ(reader.Next(), "two");
  EXPECT_FALSE(reader.Ready(0));
  close(ends[1]);
  EXPECT_TRUE(reader.Ready(0));
  EXPECT_EQ(reader.Next(), "th");
  EXPECT_TRUE(reader.Ready(0));
  EXPECT_EQ(reader.Next(), std::nullopt);
  close(ends[0]);
}

TEST(LineReader, SaysWhyItEnds) {
  TempFile file("a");
  LineReader reader(file.fd());
  EXPECT_EQ(reader.Next(), "a");
  EXPECT_EQ(reader.Next(), std::nullopt);
  EXPECT_TRUE(reader.status().ok());
  LineReader closed(-1);
  EXPECT_EQ(closed.Next(), std::nullopt);
  EXPECT_EQ(closed.status().code(), StatusCode::kInput);
}

TEST(SessionFile, ComesBackAsItWas) {
  Conversation saved;
  saved.SetSystem("be \"brief\"\n");
  saved.AddUser("Grüße 你好");
  Message answer;
  answer.role = Role::kAssistant;
  answer.text = "x\ty";
  answer.reasoning = "thought";
  std::vector<Message> messages = saved.Messages();
  messages.push_back(answer);
  saved.SetMessages(messages);

  TempFile file("");
  ASSERT_TRUE(SaveConversation(saved, "m", file.path()).ok());
  const auto loaded = LoadConversation(file.path(), nullptr);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->system(), "be \"brief\"\n");
  ASSERT_EQ(loaded->Messages().size(), 3u);
  EXPECT_EQ(loaded->Messages()[1].text, "Grüße 你好");
  EXPECT_EQ(loaded->Messages()[2].text, "x\ty");
  EXPECT_EQ(loaded->Messages()[2].reasoning, "thought");
}

TEST(SessionFile, KeepsPicturesByPathAndDigest) {
  const ContentPart image{.kind = ContentPart::Kind::kImage, .text = "/a/b.png", .digest = "12ab"};
  const ContentPart video{
      .kind = ContentPart::Kind::kVideo, .text = "/a/c", .digest = "34cd", .fps = 2.5};
  Conversation saved;
  saved.AddUser("Which?", {image, video});
  TempFile file("");
  // Twice: what was read from a file is written as it stands in the conversation.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(SaveConversation(saved, "m", file.path()).ok());
    const auto loaded = LoadConversation(file.path(), nullptr);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const std::vector<ContentPart> parts = loaded->Messages().at(0).parts;
    ASSERT_EQ(parts.size(), 3u);
    EXPECT_EQ(parts[0].text, image.text);
    EXPECT_EQ(parts[0].digest, image.digest);
    EXPECT_EQ(parts[1].kind, video.kind);
    EXPECT_EQ(parts[1].fps, video.fps);
    EXPECT_EQ(parts[2].text, "Which?");
    saved = *loaded;
  }
}

TEST(SessionFile, Failures) {
  Conversation conversation;
  TempFile file("not json");
  EXPECT_EQ(SaveConversation(conversation, "m", file.path() + "/x").code(), StatusCode::kInternal);
  EXPECT_EQ(LoadConversation(file.path(), nullptr).status().code(), StatusCode::kInput);
  TempFile fresh("");
  ASSERT_TRUE(SaveConversation(conversation, "m", fresh.path()).ok());
  EXPECT_TRUE(LoadConversation(fresh.path(), nullptr).ok()) << "a chat without turns";
}

}  // namespace
}  // namespace kuiper::demo
