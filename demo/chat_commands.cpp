#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "demo/chat.h"
#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/base/trim.h"
#include "kuiper/chat/conversation_file.h"
#include "kuiper/chat/settings.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/io/utf8.h"
#include "kuiper/report/cache_text.h"
#include "kuiper/report/number_text.h"
#include "kuiper/terminal/raw_terminal.h"

namespace kuiper::demo {

bool Chat::Command(const std::string& line) {
  const size_t space = line.find_first_of(" \t");
  const std::string word = line.substr(0, space);
  const std::string name = CommandOf(word);
  if (name == "/quit") return false;
  const std::string rest(Trimmed(std::string_view(line).substr(word.size())));
  const Status status = name.empty() ? UnknownCommand(word) : RunCommand(name, rest);
  if (!status.ok()) Fail(status, false);
  return true;
}

Status Chat::RunCommand(const std::string& name, const std::string& rest) {
  if (name == "/save" || name == "/load") return FileCommand(name, TypedPath(rest));
  if (name == "/help")
    return ShowReply(ChatHelp(rest, run_.pictures != nullptr, chat_.thinking().has_value()));
  if (name == "/read") return ShowReply(attachments_.AddFile(TypedPath(rest)));
  if (name == "/set") return Set(rest);
  if (name == "/system") return SetSystem(rest);
  if (name == "/think") return SetThinking(rest);
  if (name == "/image" || name == "/video") {
    return ShowReply(attachments_.AddPicture(name, TypedPath(rest), run_.options.video_fps));
  }
  if (!rest.empty()) return InvalidArgument(name + " takes no argument");
  if (name == "/clear") {
    Clear();
  } else if (name == "/regen") {
    Regenerate();
  } else if (name == "/undo") {
    Undo();
  } else if (name == "/show") {
    Show();
  } else if (name == "/tokens") {
    console_.Reply(ContextText());
  } else if (name == "/stats") {
    console_.Reply(TotalsText(totals_));
  } else if (name == "/cache") {
    console_.Reply(SpellParams(CacheText(engine_->kv_stats()), FlagName));
  } else if (name == "/paged") {
    // Screen lines besides the blocks: the command, the next prompt, the pool.
    constexpr int kAround = 6;
    const size_t most_lines =
        console_.is_dialogue() ? std::max(TerminalRows(STDOUT_FILENO) - kAround, 1) : SIZE_MAX;
    const std::optional<PageMap>& map = run_.watch->map();
    if (map.has_value()) KU_RETURN_IF_ERROR(map->status());
    console_.Reply(
        SpellParams(BlockTableText(engine_->kv_stats(), block_table_, map, most_lines), FlagName));
  } else if (name == "/multiline") {
    input_.StartMultiline();
  }
  return OkStatus();
}

Status Chat::Set(const std::string& rest) {
  // Ollama's spellings: these three.
  if (rest.starts_with("system ")) return SetSystem(std::string(Trimmed(rest.substr(7))));
  if (rest == "think" || rest == "nothink") return SetThinking(rest == "think" ? "on" : "off");
  bool& drop_oldest = run_.options.drop_oldest;
  KU_RETURN_IF_ERROR(ApplySettings(rest, &parameters_, &drop_oldest));
  return ShowReply(DescribeSettings(parameters_, drop_oldest));
}

Status Chat::ShowReply(const StatusOr<std::string>& reply) {
  if (reply.ok()) console_.Reply(*reply);
  return reply.status();
}

Status Chat::FileCommand(const std::string& name, const std::string& path) {
  if (path.empty()) return InvalidArgument(name + " needs a file");
  if (name == "/save") {
    if (!MayOverwrite(path)) {
      console_.Reply("not saved");
      return OkStatus();
    }
    KU_RETURN_IF_ERROR(
        SaveConversation(conversation_, ModelName(run_.options.engine.model_path), path));
    own_file_ = path;
    console_.Reply("saved " + Counted(conversation_.num_turns(), "turn") + " to " + path);
    return OkStatus();
  }
  KU_ASSIGN_OR_RETURN(conversation_, LoadConversation(path, run_.pictures.get()));
  own_file_ = path;
  block_table_ = {};
  SaveSession();
  console_.Reply("loaded " + Counted(conversation_.num_turns(), "turn") + " from " + path);
  return OkStatus();
}

// Asks only if a user is at the terminal.
bool Chat::MayOverwrite(const std::string& path) {
  std::error_code ignored;
  const auto is_same = [&](const std::string& own) {
    return !own.empty() && std::filesystem::equivalent(own, path, ignored);
  };
  if (!console_.is_dialogue() || !std::filesystem::exists(path, ignored) ||
      std::filesystem::is_empty(path, ignored) || is_same(own_file_) ||
      is_same(run_.options.session_file)) {
    return true;
  }
  const std::string answer = input_.Ask(path + " exists; overwrite it? [y/N] ");
  return answer == "y" || answer == "Y" || answer == "yes";
}

void Chat::Clear() {
  const bool had_turns = conversation_.num_turns() > 0;
  conversation_.Clear();
  own_file_.clear();
  block_table_ = {};
  attachments_.Clear(conversation_);
  engine_->ClearPrefixCache();
  engine_->ReleaseUnusedMemory();
  if (had_turns) SaveSession();
  console_.Reply("conversation cleared");
}

void Chat::Regenerate() {
  Conversation before = conversation_;
  if (!conversation_.DropLastAnswer()) {
    console_.Reply("there is no answer yet");
    return;
  }
  // With the same seed, the answer would be the same.
  uint64_t& seed = parameters_.sampling.seed;
  const bool greedy = parameters_.sampling.temperature == 0;
  if (!greedy && seed != kRandomSeed) ++seed;
  if (greedy && console_.is_dialogue()) {
    console_.Note("greedy decoding answers the same again: /set temp=0.8 samples");
  }
  Answer(std::move(before));
}

void Chat::Undo() {
  if (!attachments_.empty()) {
    attachments_.Clear(conversation_);
    console_.Reply("removed the attachments of the next message");
    return;
  }
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
  if (text.empty()) {
    console_.Reply(SystemText(conversation_));
  } else {
    conversation_.SetSystem(text);
    console_.Reply("system message set");
  }
  return OkStatus();
}

Status Chat::SetThinking(const std::string& value) {
  if (!chat_.thinking().has_value()) return InvalidArgument("this model has no thinking mode");
  if (value == "on" || value == "off") {
    chat_.think = value == "on";
  } else if (value == "auto") {
    chat_.think.reset();
  } else if (!value.empty()) {
    return InvalidArgument("/think: '" + value + "' is not one of on, off, auto");
  }
  console_.Reply(ThinkingText(chat_));
  return OkStatus();
}

void Chat::Show() {
  const Options& options = run_.options;
  std::string text = "model: " + ModelName(options.engine.model_path) + " (" +
                     engine_->model_config().architecture + ") on " +
                     engine_->device_description() + "\n" + SystemText(conversation_) + "\n";
  if (chat_.thinking().has_value()) text += ThinkingText(chat_) + "\n";
  if (!options.session_file.empty()) text += "session: " + options.session_file + "\n";
  console_.Reply(text + ContextText() + "\nsettings:\n" +
                 DescribeSettings(parameters_, options.drop_oldest));
}

std::string Chat::ContextText() const {
  size_t used = 0;
  if (conversation_.num_turns() > 0) {
    const auto ids = EncodePrompt(*engine_->tokenizer(), conversation_, chat_);
    if (ids.ok()) used = ids->size();
  }
  const int context = engine_->config().max_context;
  std::string text = Format("context: %zu of %d tokens (%.0f%%) in %s", used, context,
                            100.0 * static_cast<double>(used) / context,
                            Counted(conversation_.num_turns(), "turn").c_str());
  if (used >= static_cast<size_t>(context)) {
    text += run_.options.drop_oldest ? "\nthe next message leaves the oldest turns out"
                                     : "\nfull: /undo or /clear makes room";
    const int most = run_.context.of_model;
    if (context < most) text += "; the next chat may have up to -c " + std::to_string(most);
  }
  return text;
}

}  // namespace kuiper::demo
