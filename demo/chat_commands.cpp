#include <cstdio>
#include <utility>

#include "demo/chat.h"
#include "demo/exit_code.h"
#include "demo/report.h"
#include "demo/session_file.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

constexpr char kHelp[] = R"(/help                this list
/clear, /reset       forget the conversation and its keys and values
/regen               answer the last message again
/undo                take back the last message and its answer
/system [TEXT]       show or set the system message
/think on|off|auto   thinking of Qwen3
/set [NAME=VALUE...] show or change temp, top_k, top_p, min_p, repetition_penalty,
                     presence_penalty, frequency_penalty, seed, max_tokens, reasoning_budget
/tokens              how full the context is
/stats               totals of this chat
/cache               KV cache and prefix cache
/paged               block table of the chat
/save FILE           save the conversation (JSON)
/load FILE           load a conversation
/multiline           a message of several lines, ended by a line /end
                     (or end each line but the last with a backslash)
/quit, /exit         end the chat
//text               a message that begins with a slash
Ctrl-C stops an answer; at the prompt it ends the program.)";

Status Bad(const std::string& message, const std::string& hint = "") {
  return Status(StatusCode::kInvalidArgument, message, hint);
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[400];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

double PerSecond(int64_t count, double ms) {
  return ms > 0 ? static_cast<double>(count) * 1000 / ms : 0;
}

std::string CacheText(const KvStats& kv) {
  std::string text =
      kv.paged
          ? Format("blocks: %d of %d used, %d free, %d shared, %d evictable, %d at most so far",
                   kv.pages_used, kv.pages_total, kv.pages_free, kv.pages_shared,
                   kv.pages_evictable, kv.pages_peak)
          : Format("contiguous cache: %d of %d rows used", kv.pages_used, kv.pages_total);
  text += "\nmemory: " + HumanBytes(static_cast<double>(kv.bytes_reserved)) + " allocated, " +
          HumanBytes(static_cast<double>(kv.bytes_touched)) + " touched";
  if (kv.preempted_recompute + kv.preempted_swap + kv.slides > 0) {
    text += Format("\nfull cache: %lld preemptions recomputed, %lld swapped, %lld slides",
                   static_cast<long long>(kv.preempted_recompute),
                   static_cast<long long>(kv.preempted_swap), static_cast<long long>(kv.slides));
  }
  if (!kv.prefix_cache) return text + "\nprefix cache: off (--prefix-cache)";
  return text + Format(
                    "\nprefix cache: %lld of %lld lookups hit, %lld of %lld tokens reused, %lld "
                    "blocks evicted",
                    static_cast<long long>(kv.hits), static_cast<long long>(kv.lookups),
                    static_cast<long long>(kv.tokens_hit),
                    static_cast<long long>(kv.tokens_requested),
                    static_cast<long long>(kv.evicted_pages));
}

std::string BlockTableText(const KvStats& kv, const std::vector<int32_t>& table) {
  if (!kv.paged) return "the KV cache is one contiguous buffer (--paged-attention uses blocks)";
  std::string text = Format("block table: %zu blocks of %d tokens", table.size(), kv.page_size);
  for (size_t i = 0; i < table.size(); ++i) {
    text += Format("\n  [%zu] tokens %zu..%zu -> block %d", i, i * kv.page_size,
                   (i + 1) * kv.page_size - 1, table[i]);
  }
  return text;
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
  if (name == "/set") return SetParameters(rest);
  if (name == "/system") return SetSystem(rest);
  if (name == "/think") return SetThinking(rest);
  if (name == "/image") return Bad("this program takes text only");
  if (name == "/help") {
    console_.Reply(kHelp);
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
  Conversation loaded;
  KU_RETURN_IF_ERROR(LoadConversation(path, &loaded));
  conversation_ = std::move(loaded);
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

Status Chat::SetParameters(const std::string& assignments) {
  KU_RETURN_IF_ERROR(ApplySettings(assignments, &generation_));
  console_.Reply(DescribeSettings(generation_));
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
  console_.Reply(
      Format("turns: %d\nprompt: %lld tokens, %lld reused, %.1f tokens/s\n"
             "generated: %lld tokens, %.1f tokens/s",
             totals_.turns, static_cast<long long>(totals_.prompt_tokens),
             static_cast<long long>(totals_.cached_tokens),
             PerSecond(totals_.prompt_tokens - totals_.cached_tokens, totals_.prefill_ms),
             static_cast<long long>(totals_.generated_tokens),
             PerSecond(totals_.generated_tokens - totals_.turns, totals_.decode_ms)));
}

}  // namespace kuiper::demo
