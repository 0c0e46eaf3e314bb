#include <utility>

#include "demo/chat.h"
#include "demo/chat_texts.h"
#include "demo/exit_code.h"
#include "demo/prompt_source.h"
#include "demo/report.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

Status Bad(const std::string& message, const std::string& hint = "") {
  return Status(StatusCode::kInvalidArgument, message, hint);
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

bool Chat::Command(const std::string& line) {
  const size_t space = line.find_first_of(" \t");
  const std::string name = line.substr(0, space);
  if (name == "/quit" || name == "/exit") return false;
  const Status status =
      RunCommand(name, space == std::string::npos ? "" : Trim(line.substr(space)));
  if (!status.ok()) Fail(status, false);
  return true;
}

Status Chat::RunCommand(const std::string& name, const std::string& rest) {
  if (name == "/save" || name == "/load") return FileCommand(name, rest);
  if (name == "/set") {
    KU_RETURN_IF_ERROR(ApplySettings(rest, &parameters_));
    console_.Reply(DescribeSettings(parameters_));
    return OkStatus();
  }
  if (name == "/system") return SetSystem(rest);
  if (name == "/think") return SetThinking(rest);
  if (name == "/image") return Bad("this program takes text only");
  if (name == "/help") {
    console_.Reply(ChatHelp());
  } else if (name == "/clear" || name == "/reset") {
    Clear();
  } else if (name == "/regen") {
    Regenerate();
  } else if (name == "/undo") {
    Undo();
  } else if (name == "/tokens") {
    ShowTokens();
  } else if (name == "/stats") {
    ShowStats();
  } else if (name == "/cache") {
    console_.Reply(CacheText(engine_->kv_stats()));
  } else if (name == "/paged") {
    console_.Reply(BlockTableText(engine_->kv_stats(), block_table_));
  } else if (name == "/multiline") {
    multiline_ = true;
  } else {
    return Bad("unknown command " + name.substr(0, 40), "/help lists the commands");
  }
  return OkStatus();
}

Status Chat::FileCommand(const std::string& name, const std::string& path) {
  if (path.empty()) return Bad(name + " needs a file");
  if (name == "/save") {
    KU_RETURN_IF_ERROR(
        SaveConversation(conversation_, ModelName(run_.options.engine.model_path), path));
    console_.Reply("saved " + std::to_string(conversation_.num_turns()) + " turns to " + path);
    return OkStatus();
  }
  KU_ASSIGN_OR_RETURN(conversation_, LoadConversation(path));
  console_.Reply("loaded " + std::to_string(conversation_.num_turns()) + " turns from " + path);
  return OkStatus();
}

void Chat::Clear() {
  conversation_.Clear();
  engine_->ClearPrefixCache();
  engine_->ReleaseUnusedMemory();
  console_.Reply("conversation cleared");
}

void Chat::Regenerate() {
  Conversation before = conversation_;
  if (!conversation_.DropLastAnswer()) {
    console_.Reply("there is no answer yet");
    return;
  }
  Answer(std::move(before));
}

void Chat::Undo() {
  if (!conversation_.DropLastTurn()) {
    console_.Reply("there is nothing to take back");
    return;
  }
  SaveSession();
  console_.Reply("took back the last turn, " + std::to_string(conversation_.num_turns()) + " left");
}

Status Chat::SetSystem(const std::string& text) {
  if (!IsValidUtf8(text)) {
    return Status(StatusCode::kInput, "the system message is not valid UTF-8");
  }
  if (!text.empty()) {
    conversation_.SetSystem(text);
    console_.Reply("system message set");
  } else if (!conversation_.system().has_value()) {
    console_.Reply("system message: the chat template's own");
  } else {
    console_.Reply("system message: " + *conversation_.system());
  }
  return OkStatus();
}

Status Chat::SetThinking(const std::string& value) {
  if (chat_.family != ChatFamily::kQwen3) return Bad("this model does not think");
  if (value == "on" || value == "off") {
    chat_.think = value == "on";
  } else if (value == "auto") {
    chat_.think.reset();
  } else if (!value.empty()) {
    return Bad("/think: '" + value + "' is not one of on, off, auto");
  }
  console_.Reply(std::string("thinking: ") + (!chat_.think.has_value() ? "auto (on)"
                                              : *chat_.think           ? "on"
                                                                       : "off"));
  return OkStatus();
}

void Chat::ShowTokens() {
  size_t used = 0;
  if (conversation_.num_turns() > 0) {
    const auto ids = EncodePrompt(*engine_->tokenizer(), conversation_, chat_);
    if (ids.ok()) used = ids->size();
  }
  const int context = engine_->config().max_context;
  console_.Reply(Format("context: %zu of %d tokens (%.0f%%) in %d turns", used, context,
                        100.0 * static_cast<double>(used) / context, conversation_.num_turns()));
}

void Chat::ShowStats() {
  const ChatTotals& t = totals_;
  console_.Reply(
      Format("turns: %d\nprompt: %ld tokens, %ld reused, %.1f tokens/s\n"
             "generated: %ld tokens, %.1f tokens/s",
             t.turns, t.prompt_tokens, t.cached_tokens,
             PerSecond(static_cast<double>(t.prompt_tokens - t.cached_tokens), t.prefill_ms),
             t.generated_tokens,
             PerSecond(static_cast<double>(t.generated_tokens - t.turns), t.decode_ms)));
}

}  // namespace kuiper::demo
