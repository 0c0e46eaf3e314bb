// What the commands of a chat show, as functions of what they show. They know neither the chat nor
// the terminal.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

// The path that is meant by one typed in a chat: without the quotes that a terminal puts around
// what is dropped on it, and "~/" is the home folder, as in a shell.
std::string TypedPath(const std::string& path);

// "": a line for each command, within a screen of 24 rows; "all" or the name of a command: with
// details. `sees`: the model takes pictures; `thinks`: it has reasoning. kInvalidArgument.
StatusOr<std::string> ChatHelp(const std::string& topic, bool sees, bool thinks);
std::string SystemText(const Conversation& conversation);
std::string ThinkingText(const TemplateOptions& chat);
// The command that is meant: "/quit" for "/q" and "exit"; "" when there is none of this name.
std::string CommandOf(const std::string& name);
// kInvalidArgument: there is no such command, with the nearest one.
Status UnknownCommand(const std::string& name);

}  // namespace kuiper::demo
