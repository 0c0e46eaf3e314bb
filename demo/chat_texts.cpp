#include "demo/chat_texts.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "kuiper/base/errors.h"
#include "kuiper/base/terminal_text.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/io/utf8.h"

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

}  // namespace kuiper::demo
