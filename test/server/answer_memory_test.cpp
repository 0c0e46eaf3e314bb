#include "kuiper/server/answer_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kuiper {
namespace {

Message Of(Role role, const std::string& text) {
  Message message;
  message.role = role;
  message.text = text;
  return message;
}

using Ids = std::vector<int32_t>;

TEST(AnswerMemory, AnAnswerIsKnownBehindItsOwnMessages) {
  AnswerMemory memory(100);
  const TemplateOptions options;
  const std::vector<Message> question = {Of(Role::kUser, "q")};
  memory.Keep(HistoryKey(question, options), "a", {1, 2});

  std::vector<Message> chat = {question[0], Of(Role::kAssistant, "a"), Of(Role::kUser, "r")};
  memory.Recall(options, &chat);
  EXPECT_EQ(chat[1].ids, (Ids{1, 2}));
  memory.Keep(HistoryKey(chat, options), "b", {3});
  chat.push_back(Of(Role::kAssistant, "b"));
  for (Message& message : chat) message.ids.clear();
  memory.Recall(options, &chat);
  EXPECT_EQ(chat[1].ids, (Ids{1, 2}));
  EXPECT_EQ(chat[3].ids, (Ids{3}));

  std::vector<Message> other_text = {question[0], Of(Role::kAssistant, "A")};
  std::vector<Message> other_question = {Of(Role::kUser, "Q"), Of(Role::kAssistant, "a")};
  std::vector<Message> of_the_user = {question[0], Of(Role::kUser, "a")};
  for (auto* messages : {&other_text, &other_question, &of_the_user}) {
    memory.Recall(options, messages);
    EXPECT_TRUE((*messages)[1].ids.empty());
  }
  TemplateOptions other_options;
  other_options.think = false;
  std::vector<Message> same = {question[0], Of(Role::kAssistant, "a")};
  memory.Recall(other_options, &same);
  EXPECT_TRUE(same[1].ids.empty()) << "the prompt was another";
}

TEST(AnswerMemory, TheOldestAreForgotten) {
  AnswerMemory memory(4);
  const TemplateOptions options;
  const auto knows = [&](uint64_t number) {
    // The history of each `number` has a different key.
    std::vector<Message> chat = {Of(Role::kUser, std::to_string(number)),
                                 Of(Role::kAssistant, "a")};
    memory.Recall(options, &chat);
    return !chat[1].ids.empty();
  };
  const auto keep = [&](uint64_t number, Ids ids) {
    memory.Keep(HistoryKey(std::vector{Of(Role::kUser, std::to_string(number))}, options), "a",
                std::move(ids));
  };
  keep(1, {1, 1});
  keep(2, {2, 2});
  EXPECT_TRUE(knows(1)) << "used, so that the second is the oldest";
  keep(3, {3});
  EXPECT_TRUE(knows(1));
  EXPECT_FALSE(knows(2));
  EXPECT_TRUE(knows(3));
  keep(3, {3, 3});
  EXPECT_EQ(memory.num_tokens(), 4u);
  keep(4, {4, 4, 4, 4, 4});
  EXPECT_FALSE(knows(4)) << "more than the memory holds";
  EXPECT_EQ(memory.num_tokens(), 4u);
}

// The network thread stores answers while workers look up others.
TEST(AnswerMemory, NobodyWaitsForALongConversation) {
  AnswerMemory memory(100);
  std::vector<Message> chat = {Of(Role::kUser, std::string(64 << 20, 'x'))};
  std::atomic<bool> has_begun = false, is_done = false;
  std::thread worker([&] {
    has_begun = true;
    memory.Recall({}, &chat);
    is_done = true;
  });
  while (!has_begun) {
  }
  int num_asked = 0;
  while (!is_done) num_asked += memory.num_tokens() == 0;
  worker.join();
  EXPECT_GT(num_asked, 1000);
}

}  // namespace
}  // namespace kuiper
