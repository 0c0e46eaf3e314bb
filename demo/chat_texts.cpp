#include "demo/chat_texts.h"

#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "kuiper/base/errors.h"
#include "kuiper/base/terminal_text.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

// The line of a command in /help, and the additional text of /help COMMAND.
struct CommandHelp {
  const char* usage;
  const char* what;
  const char* more = "";
};
constexpr CommandHelp kHelp[] = {
    {"/help [COMMAND]", "this list; /help all and /help COMMAND say more"},
    {"/clear", "forget the conversation", "its keys and values, too; also /reset"},
    {"/regen", "answer the last message again",
     "with the next seed, so that another answer comes where the temperature is above 0"},
    {"/undo", "take back the last message and its answer",
     "or the attachments of the next message"},
    {"/system [TEXT]", "show or set the system message"},
    {"/think on|off|auto", "whether the model thinks"},
    {"/set [NAME=VALUE...]", "show or change the settings",
     "stop=\"a b\" ends answers before that text, stop= no longer does; "
     "overflow=drop-oldest|error: what becomes of the oldest turns. Names:"},
    {"/show", "model, system message, settings"},
    {"/tokens", "how full the context is"},
    {"/stats", "totals of this chat"},
    {"/cache, /paged", "KV cache; block table of the newest answer"},
    {"/read FILE", "put a file in front of the next message"},
    {"/image FILE", "put a picture in front of the next message", "several may be"},
    {"/video PATH", "put a video in front of the next message",
     "a folder of frames, an animated GIF or WebP"},
    {"/save, /load FILE", "save the conversation as JSON, or load one"},
    {"/multiline", "a message of several lines, ended by a line /end",
     "or end each line but the last with a backslash"},
    {"/quit", "end the chat", "also /exit, /bye, /q"},
    {"//text", "a message that begins with a slash"},
};
constexpr char kKeys[] =
    "Ctrl-C stops an answer; at the prompt it clears the line, and twice it ends the chat. "
    "Arrows and Ctrl-A/E/K/U/W edit, Alt-Enter breaks the line, up and Ctrl-R bring back what was "
    "typed.";

// Formats the line of a command: its name, then its description, wrapped in the column after the
// names.
std::string HelpLine(const CommandHelp& help, bool all) {
  constexpr size_t kColumn = 21;
  std::string what = help.what;
  if (all && *help.more != '\0') what.append("; ").append(help.more);
  std::string usage = help.usage;
  usage.resize(kColumn, ' ');
  std::istringstream stream(what);
  std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  if (all && usage.starts_with("/set")) {
    for (const Parameter& parameter : Parameters()) {
      if (parameter.in_chats) words.push_back(parameter.typed_name + ",");
    }
    words.back().pop_back();
  }
  return usage + Wrapped(words, kColumn) + "\n";
}

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

StatusOr<std::string> ChatHelp(const std::string& topic, bool has_vision, bool thinks) {
  const bool is_list = topic.empty() || topic == "all";
  const std::string word = topic.starts_with('/') ? topic : "/" + topic;
  const std::string command = CommandOf(word);
  if (!is_list && command.empty()) return UnknownCommand(word);
  std::string text;
  for (const CommandHelp& help : kHelp) {
    const std::string usage = help.usage;
    const bool has_pictures = usage.starts_with("/image") || usage.starts_with("/video");
    const bool can = (has_vision || !has_pictures) && (thinks || !usage.starts_with("/think"));
    const bool is_wanted = is_list ? can : usage.find(command) != std::string::npos;
    if (is_wanted) text += HelpLine(help, !topic.empty());
  }
  std::istringstream keys(is_list ? kKeys : "");
  text += Wrapped({std::istream_iterator<std::string>(keys), {}}, 0);
  return text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
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
