#include "kuiper/chat/conversation_file.h"

#include <gtest/gtest.h>

#include "test/temp_file.h"

namespace kuiper {
namespace {

using test::TempFile;

TEST(ConversationFile, ComesBackAsItWas) {
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

TEST(ConversationFile, KeepsThatThereIsNoSystemMessage) {
  Conversation saved;
  saved.SetSystem("");
  saved.AddUser("Hi");
  TempFile file("");
  ASSERT_TRUE(SaveConversation(saved, "m", file.path()).ok());
  const auto loaded = LoadConversation(file.path(), nullptr);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->system(), "");
  EXPECT_EQ(loaded->num_turns(), 1);
}

TEST(ConversationFile, KeepsPicturesByPathAndDigest) {
  const ContentPart image{.kind = ContentPart::Kind::kImage, .text = "/a/b.png", .digest = "12ab"};
  const ContentPart video{
      .kind = ContentPart::Kind::kVideo, .text = "/a/c", .digest = "34cd", .fps = 2.5};
  Conversation saved;
  saved.AddUser("Which?", {image, video});
  TempFile file("");
  // Twice: a conversation that was loaded from a file must be saved unchanged.
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

TEST(ConversationFile, Failures) {
  Conversation conversation;
  TempFile file("not json");
  EXPECT_EQ(SaveConversation(conversation, "m", file.path() + "/x").code(), StatusCode::kInternal);
  EXPECT_EQ(LoadConversation(file.path(), nullptr).status().code(), StatusCode::kInput);
  TempFile fresh("");
  ASSERT_TRUE(SaveConversation(conversation, "m", fresh.path()).ok());
  EXPECT_TRUE(LoadConversation(fresh.path(), nullptr).ok()) << "a chat without turns";
}

}  // namespace
}  // namespace kuiper
