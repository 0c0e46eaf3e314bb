// The chat of -i: lines in, answers out, and commands that begin with '/'. A failed turn affects
// nothing else: its question is removed from the history and the chat continues.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "demo/answer.h"
#include "demo/attachments.h"
#include "demo/chat_input.h"
#include "demo/chat_texts.h"
#include "demo/tasks.h"
#include "kuiper/chat/session_file.h"
#include "kuiper/report/cache_text.h"
#include "kuiper/report/statistics.h"

namespace kuiper::demo {

class Chat {
 public:
  Chat(ProgramRun& run, std::unique_ptr<Engine> engine, std::unique_ptr<SessionFile> session,
       Conversation conversation, TemplateOptions chat, std::vector<ContentPart> media);

  // Runs until /quit, the end of input, SIGTERM or SIGHUP. Returns the exit code of the first turn
  // that failed, else 0.
  int Loop();

 private:
  // chat.cpp. Answers a message or runs a command; false ends the chat.
  bool Handle(const std::string& message);
  void Ask(const std::string& text);
  // Returns false if there is no answer; the history is then reset to `before`.
  bool Answer(Conversation before);
  void SaveSession();
  void Fail(const Status& status, bool as_answer);

  // chat_commands.cpp. Runs a command; false ends the chat.
  bool Command(const std::string& line);
  Status RunCommand(const std::string& name, const std::string& rest);
  Status Set(const std::string& rest);
  Status FileCommand(const std::string& name, const std::string& path);
  // Returns false if another conversation would be overwritten and the user wants to keep it.
  bool MayOverwrite(const std::string& path);
  Status ShowReply(const StatusOr<std::string>& reply);
  void Regenerate();
  void Undo();
  Status SetSystem(const std::string& text);
  Status SetThinking(const std::string& value);
  void Show();
  std::string ContextText() const;
  void Clear();

  ProgramRun& run_;
  Console& console_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionFile> session_;
  Answerer answerer_;
  const Prompter prompter_;
  Conversation conversation_;
  TemplateOptions chat_;
  Request parameters_;
  ChatTotals totals_;
  BlockTable block_table_;
  Attachments attachments_;
  ChatInput input_;
  std::string own_file_;  // file that this conversation was saved to or loaded from
  int exit_code_ = 0;
};

StatusOr<int> RunChat(ProgramRun& run, const PromptInput& input);

}  // namespace kuiper::demo
