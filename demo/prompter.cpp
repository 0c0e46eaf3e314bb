#include "demo/prompter.h"

#include "kuiper/base/text.h"
#include "kuiper/chat/chat_response.h"
#include "kuiper/engine/request.h"

namespace kuiper::demo {
namespace {

std::string PictureHint(const Prompt& prompt) {
  int64_t tokens = 0;
  for (const VisionInput& picture : prompt.images) tokens += picture.num_tokens();
  if (tokens == 0) return "";
  return std::to_string(tokens) + " of them stand for pictures: lower --max-pixels, ";
}

}  // namespace

HistoryLimits Prompter::LimitsOf(const Request& parameters) const {
  const bool goes_on = options_.task == Task::kChat || !options_.session_file.empty();
  HistoryLimits limits;
  if (options_.drop_oldest) {
    limits = RoomForAnswers(limits_.max_context, parameters.max_new_tokens, goes_on);
  }
  if (goes_on) {
    limits.max_turns = options_.max_history;
    limits.kept_turns = options_.max_history - options_.max_history / 2;
  }
  return limits;
}

// The library does not know the flags, so the hint about which of them helps is made here.
std::string Prompter::Hint(int num_tokens, bool has_history) const {
  const bool chats = options_.task == Task::kChat;
  const std::string most = "-c " + std::to_string(limits_.of_model);
  std::string hint;
  if (limits_.max_context < limits_.of_model) {
    hint = num_tokens < limits_.of_model ? "raise --max-context (" + most + " at most), "
                                         : "the model allows " + most + " at most: ";
  }
  hint += chats ? "shorten the message" : "shorten the prompt";
  if (!has_history) return hint;
  if (chats) hint += ", or make room by /undo or /clear";
  if (options_.drop_oldest) return hint;
  return hint + (chats ? " or /set overflow=drop-oldest" : ", or use --overflow drop-oldest");
}

StatusOr<Prompt> Prompter::Build(const TemplateOptions& chat, const Request& parameters,
                                 Conversation* conversation) const {
  const HistoryLimits limits = LimitsOf(parameters);
  StatusOr<Prompt> prompt = options_.raw
                                ? RawPrompt(tokenizer_, chat, conversation->Messages().back())
                                : BuildPrompt(tokenizer_, chat, limits, conversation);
  if (!prompt.ok()) return prompt;
  const int num_tokens = static_cast<int>(prompt->ids.size());
  const Status fits = CheckPromptFits(num_tokens, limits_.max_context);
  const bool has_history = !options_.raw && conversation->num_turns() > 1;
  if (!fits.ok()) {
    // The error code in the message is for scripts.
    const std::string code = " (code " + std::string(ErrorName(fits.code())) + ")";
    return Status(fits.code(), fits.message() + (options_.task == Task::kChat ? "" : code),
                  PictureHint(*prompt) + Hint(num_tokens, has_history));
  }
  if (prompt->surplus_turns > 0) {
    console_.Note("history keeps " + Counted(limits.max_turns, "turn") +
                  " (--max-history): dropped the oldest " + std::to_string(prompt->surplus_turns));
  }
  if (prompt->dropped_turns > prompt->surplus_turns) {
    console_.Note("to leave room for the answer: dropped the oldest " +
                  Counted(prompt->dropped_turns - prompt->surplus_turns, "turn") + " (" +
                  Counted(prompt->dropped_tokens, "token") + ")");
  }
  return prompt;
}

}  // namespace kuiper::demo
