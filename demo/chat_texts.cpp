#include "demo/chat_texts.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "demo/options.h"
#include "kuiper/base/errors.h"
#include "kuiper/base/terminal_text.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/io/utf8.h"
#include "kuiper/report/number_text.h"

namespace kuiper::demo {
namespace {

constexpr char kHelpBeforeSet[] = R"(/help, /?            this list
/clear, /reset       forget the conversation and its keys and values
/regen               answer the last message again
/undo                take back the last message and its answer, or what waits
                     for the next one
/system [TEXT]       show or set the system message
/think on|off|auto   thinking of Qwen3
)";
constexpr char kHelpAfterSet[] = R"(
                     stop="a b" ends answers before that text, stop= no longer
                     does; overflow=drop-oldest|error: what becomes of the
                     oldest turns
/show                model, system message, settings
/tokens              how full the context is
/stats               totals of this chat
/cache               KV cache and prefix cache
/paged               block table of the newest answer
/read FILE           put a file in front of the next message
/image FILE          put a picture in front of the next message; several may be
/video PATH          the same with a folder of frames, an animated GIF or WebP
/save FILE           save the conversation (JSON)
/load FILE           load a conversation
/multiline           a message of several lines, ended by a line /end
                     (or end each line but the last with a backslash)
/quit, /exit, /bye   end the chat
//text               a message that begins with a slash
Ctrl-C stops an answer; at the prompt it clears the line, and twice it ends
the chat. Arrows and Ctrl-A/E/K/U/W edit, Alt-Enter breaks the line, up and
Ctrl-R bring back what was typed.)";

struct CommandName {
  const char* name;
  const char* meaning;
};
constexpr CommandName kCommands[] = {
    {"/help", "/help"},     {"/?", "/help"},      {"/clear", "/clear"},
    {"/reset", "/clear"},   {"/regen", "/regen"}, {"/retry", "/regen"},
    {"/undo", "/undo"},     {"/set", "/set"},     {"/system", "/system"},
    {"/think", "/think"},   {"/show", "/show"},   {"/stats", "/stats"},
    {"/tokens", "/tokens"}, {"/cache", "/cache"}, {"/paged", "/paged"},
    {"/read", "/read"},     {"/save", "/save"},   {"/load", "/load"},
    {"/image", "/image"},   {"/video", "/video"}, {"/quit", "/quit"},
    {"/exit", "/quit"},     {"/bye", "/quit"},    {"/q", "/quit"},
    {"exit", "/quit"},      {"quit", "/quit"},    {"/multiline", "/multiline"},
};
constexpr char kOverflow[] = "overflow";

struct Assignment {
  std::string name, value;
};

// NAME=VALUE at `*at`, which then is behind it. A value in double quotes may hold blanks, and \n,
// \t, \" and \\ stand for what they do in C.
StatusOr<Assignment> NextAssignment(const std::string& text, size_t* at) {
  const size_t end = std::min(text.find_first_of(" \t\n", *at), text.size());
  const size_t equals = text.find('=', *at);
  if (equals >= end) {
    return InvalidArgument("/set: '" + text.substr(*at, end - *at) + "' is not NAME=VALUE",
                           "/set alone lists the parameters");
  }
  Assignment assignment{text.substr(*at, equals - *at), ""};
  if (text[equals + 1] != '"') {
    assignment.value = text.substr(equals + 1, end - equals - 1);
    *at = end;
    return assignment;
  }
  for (size_t i = equals + 2; i < text.size(); ++i) {
    if (text[i] == '"') {
      *at = i + 1;
      return assignment;
    }
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    const char c = escape ? text[++i] : text[i];
    assignment.value += !escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return InvalidArgument("/set " + assignment.name + ": the closing quote is missing");
}

std::string InQuotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return quoted + '"';
}

// "; did you mean temp?" for what is no parameter of /set.
std::string Suggestion(const std::string& name) {
  std::vector<std::string_view> names = {kOverflow};
  for (const Parameter& parameter : Parameters()) {
    if (parameter.in_chats) names.emplace_back(parameter.typed_name);
  }
  return DidYouMean(name, names);
}

// Of a list the first value replaces what was there, and an empty one leaves nothing.
Status SetParameter(const Parameter& parameter, const std::string& spelled,
                    const std::string& value, bool first, Request* request) {
  const Variable variable = parameter.of(*request);
  auto* const* strings = std::get_if<std::vector<std::string>*>(&variable);
  if (strings != nullptr && first) (*strings)->clear();
  if (strings != nullptr && value.empty()) return OkStatus();
  if (!IsValidUtf8(value)) return InvalidArgument(spelled + " is not valid UTF-8");
  return parameter.Set(request, spelled, value);
}

}  // namespace

std::string ChatHelp() {
  const std::string set = "/set [NAME=VALUE...] ";
  std::vector<std::string> words = {"show", "or", "change"};
  for (const Parameter& parameter : Parameters()) {
    if (parameter.in_chats) words.push_back(parameter.typed_name + ",");
  }
  words.back().pop_back();
  return kHelpBeforeSet + set + Wrapped(words, set.size()) + kHelpAfterSet;
}

std::string TypedPath(const std::string& path) {
  const bool quoted =
      path.size() > 2 && (path[0] == '"' || path[0] == '\'') && path.back() == path[0];
  if (quoted) return path.substr(1, path.size() - 2);
  const char* home = std::getenv("HOME");
  return path.starts_with("~/") && home != nullptr ? home + path.substr(1) : path;
}

std::string SystemText(const Conversation& conversation) {
  return "system message: " + conversation.system().value_or("the chat template's own");
}

std::string ThinkingText(const TemplateOptions& chat) {
  return std::string("thinking: ") + (!chat.think.has_value() ? "auto (on)"
                                      : *chat.think           ? "on"
                                                              : "off");
}

std::string TotalsText(const ChatTotals& t) {
  return Format(
      "turns: %d\nprompt: %ld tokens, %ld reused, %.1f tokens/s\n"
      "generated: %ld tokens, %.1f tokens/s",
      t.turns, t.prompt_tokens, t.cached_tokens,
      PerSecond(static_cast<double>(t.prompt_tokens - t.cached_tokens), t.prefill_ms),
      t.generated_tokens,
      PerSecond(static_cast<double>(t.generated_tokens - t.turns), t.decode_ms));
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

std::string BlockTableText(const KvStats& kv, const BlockTable& table,
                           const std::optional<PageMap>& map) {
  if (!map.has_value())
    return "the KV cache is one contiguous buffer (--paged-attention uses blocks)";
  using enum KvEvent::Kind;
  const std::string pool = Format(
      "\npool: %d of %d blocks free; so far %ld allocated, %ld shared,\n"
      "      %ld copied, %ld evicted, %ld swapped out",
      map->num_free(), map->num_pages(), map->num_events(kAllocate), map->num_events(kShare),
      map->num_events(kCopy), map->num_events(kEvict), map->num_events(kSwapOut));
  if (table.turn == 0) return "block table: none, there is no answer yet" + pool;
  std::string text = Format("block table: turn %d, %zu blocks of %d tokens, %d tokens", table.turn,
                            table.pages.size(), kv.page_size, table.tokens);
  for (int i = 0; i < static_cast<int>(table.pages.size()); ++i) {
    const int end = std::min((i + 1) * kv.page_size, table.tokens);
    text +=
        Format("\n  [%d] tokens %d..%d -> block %d", i, i * kv.page_size, end - 1, table.pages[i]);
    text += map->is_cached(table.pages[i])          ? ", kept by the prefix cache"
            : map->num_holders(table.pages[i]) == 0 ? ", free again"
                                                    : "";
  }
  if (!kv.prefix_cache) text += "\ngiven back at the end of the turn (--prefix-cache keeps them)";
  return text + pool;
}

std::string CommandOf(const std::string& name) {
  for (const CommandName& command : kCommands) {
    if (name == command.name) return command.meaning;
  }
  return "";
}

Status UnknownCommand(const std::string& name) {
  constexpr size_t kMostShown = 40;
  std::vector<std::string_view> names;
  for (const CommandName& command : kCommands) names.emplace_back(command.name);
  return InvalidArgument(
      "unknown command " + ReplaceInvalidUtf8(name.substr(0, kMostShown)) + DidYouMean(name, names),
      "/help lists the commands; //TEXT sends a message that begins with a slash");
}

Status ApplySettings(const std::string& assignments, Request* parameters, bool* drop_oldest) {
  Request changed = *parameters;
  bool drops = *drop_oldest;
  std::set<std::string> seen;
  for (size_t at = 0; (at = assignments.find_first_not_of(" \t\n", at)) != std::string::npos;) {
    KU_ASSIGN_OR_RETURN(const Assignment word, NextAssignment(assignments, &at));
    std::string name = word.name;
    std::replace(name.begin(), name.end(), '-', '_');
    const Parameter* parameter = FindParameter(name);
    const bool found = parameter != nullptr && parameter->in_chats;
    if (found) name = parameter->typed_name;
    const bool first = seen.insert(name).second;
    const std::string spelled = "/set " + name;
    Status set;
    if (found) {
      set = SetParameter(*parameter, spelled, word.value, first, &changed);
    } else if (name == kOverflow) {
      set = SetVariable(OverflowNames(&drops), {}, spelled, word.value);
    } else {
      set = InvalidArgument(spelled + ": there is no such parameter" + Suggestion(word.name));
    }
    if (!set.ok()) return InvalidArgument(set.message(), "/set alone lists the parameters");
  }
  *parameters = changed;
  *drop_oldest = drops;
  return OkStatus();
}

std::string DescribeSettings(const Request& parameters, bool drop_oldest) {
  Request copy = parameters;
  std::vector<std::string> settings;
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.in_chats) continue;
    const std::string name = parameter.typed_name + "=";
    const Variable variable = parameter.of(copy);
    if (auto* const* strings = std::get_if<std::vector<std::string>*>(&variable)) {
      for (const std::string& value : **strings) settings.push_back(name + InQuotes(value));
      if (!(*strings)->empty()) continue;
    }
    settings.push_back(name + VariableText(variable, parameter.limits));
  }
  settings.push_back(std::string(kOverflow) + "=" + VariableText(OverflowNames(&drop_oldest)));
  return Wrapped(settings, 0);
}

}  // namespace kuiper::demo
