#include "demo/chat_texts.h"

#include <algorithm>
#include <sstream>

#include "demo/report.h"
#include "kuiper/chat/parameters.h"

namespace kuiper::demo {
namespace {

constexpr char kHelpBeforeSet[] = R"(/help                this list
/clear, /reset       forget the conversation and its keys and values
/regen               answer the last message again
/undo                take back the last message and its answer
/system [TEXT]       show or set the system message
/think on|off|auto   thinking of Qwen3
)";
constexpr char kHelpAfterSet[] = R"(
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

}  // namespace

std::string ChatHelp() {
  constexpr size_t kWidth = 96;
  std::string text, line = "/set [NAME=VALUE...] show or change";
  const char* separator = " ";
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.in_chats) continue;
    if (line.size() + parameter.typed_name.size() + 2 > kWidth) {
      text += line + ",\n";
      line = std::string(21, ' ');
      separator = "";
    }
    line += separator + parameter.typed_name;
    separator = ", ";
  }
  return kHelpBeforeSet + text + line + kHelpAfterSet;
}

std::string CacheText(const KvStats& kv) {
  std::string text =
      kv.paged
          ? Format("blocks: %d of %d used, %d free, %d shared, %d evictable, %d at most so far",
                   kv.pages_used, kv.pages_total, kv.pages_free, kv.pages_shared,
                   kv.pages_evictable, kv.pages_peak)
          : Format("contiguous cache: %d of %d rows used", kv.pages_used, kv.pages_total);
  text += "\nmemory: " + HumanBytes(kv.bytes_reserved) + " allocated, " +
          HumanBytes(kv.bytes_touched) + " touched";
  if (kv.preempted_recompute + kv.preempted_swap + kv.slides > 0) {
    text += Format("\nfull cache: %ld preemptions recomputed, %ld swapped, %ld slides",
                   kv.preempted_recompute, kv.preempted_swap, kv.slides);
  }
  if (!kv.prefix_cache) return text + "\nprefix cache: off (--prefix-cache)";
  return text + Format(
                    "\nprefix cache: %ld of %ld lookups hit, %ld of %ld tokens reused, %ld blocks "
                    "evicted",
                    kv.hits, kv.lookups, kv.tokens_hit, kv.tokens_requested, kv.evicted_pages);
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

Status ApplySettings(const std::string& assignments, Request* parameters) {
  Request changed = *parameters;
  std::istringstream words(assignments);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return Bad("/set: '" + word + "' is not NAME=VALUE");
    std::string name = word.substr(0, equals);
    std::replace(name.begin(), name.end(), '-', '_');
    const Parameter* parameter = FindParameter(name);
    const bool found = parameter != nullptr && parameter->in_chats;
    if (found) name = parameter->typed_name;
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string spelled = "/set " + name;
    const Status set = found ? parameter->Set(&changed, spelled, word.substr(equals + 1))
                             : Bad(spelled + ": there is no such parameter");
    if (!set.ok()) return Bad(set.message(), "/set alone lists the parameters");
  }
  *parameters = changed;
  return OkStatus();
}

std::string DescribeSettings(const Request& parameters) {
  Request copy = parameters;
  std::string text;
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.in_chats) continue;
    text +=
        (text.empty() ? "" : " ") + parameter.typed_name + "=" + VariableText(parameter.of(copy));
  }
  return text;
}

}  // namespace kuiper::demo
