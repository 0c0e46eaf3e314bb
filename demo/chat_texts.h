// Texts that chat commands print, as functions of their inputs. Independent of the chat and the
// terminal.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

// Converts a path typed in a chat. Removes the quotes that a terminal puts around dropped files,
// and expands "~/" to the home folder, as a shell does.
std::string TypedPath(const std::string& path);

// `topic` "": one line for each command, within a screen of 24 rows. "all" or the name of a
// command: with details. `sees`: the model accepts images; `thinks`: it has a thinking mode.
// Returns kInvalidArgument if the topic does not exist.
StatusOr<std::string> ChatHelp(const std::string& topic, bool has_vision, bool thinks);
std::string SystemText(const Conversation& conversation);
std::string ThinkingText(const TemplateOptions& chat);
// Returns the command that a name stands for: "/quit" for "/q" and "exit"; "" if there is none.
std::string CommandOf(const std::string& name);
// Returns kInvalidArgument for an unknown command; it suggests the nearest one.
Status UnknownCommand(const std::string& name);

}  // namespace kuiper::demo
