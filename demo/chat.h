// The chat of -i: lines in, answers out, and the commands that begin with '/'. One turn fails
// alone: its question leaves the history and the chat goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "demo/answer.h"
#include "demo/tasks.h"
#include "kuiper/base/line_reader.h"

namespace kuiper::demo {

struct ChatTotals {
  int turns = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
};

class Chat {
 public:
  Chat(ProgramRun& run, std::unique_ptr<Engine> engine, Conversation conversation,
       TemplateOptions chat);

  // Until /quit or the end of input; the exit code of the first turn that failed, else 0.
  int Loop(int input_fd);

 private:
  // chat.cpp
  std::optional<std::string> ReadMessage(LineReader& reader);
  void Ask(const std::string& text);
  // `before` is the history again if there is no answer.
  void Answer(Conversation before);
  void SaveSession();
  void Fail(const Status& status, bool as_answer);

  // chat_commands.cpp; false ends the chat.
  bool Command(const std::string& line);
  Status RunCommand(const std::string& name, const std::string& rest);
  Status FileCommand(const std::string& name, const std::string& path);
  void Regenerate();
  void Undo();
  Status SetSystem(const std::string& text);
  Status SetThinking(const std::string& value);
  void ShowTokens();
  void ShowStats();
  void Clear();

  ProgramRun& run_;
  Console& console_;
  std::unique_ptr<Engine> engine_;
  Answerer answerer_;
  Conversation conversation_;
  TemplateOptions chat_;
  Request parameters_;
  ChatTotals totals_;
  std::vector<int32_t> block_table_;  // of the newest answer
  bool multiline_ = false;
  int exit_code_ = 0;
};

StatusOr<int> RunChat(ProgramRun& run, const PromptInput& input);

}  // namespace kuiper::demo
