// Where the prompt of a run comes from: --prompt, --file, --messages, standard input, or the
// default question. Also the reading of input files, with limits. Knows nothing of models or
// tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "demo/options.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/io/messages_json.h"

namespace kuiper::demo {

// Exactly one of `text` and `messages` is there, except in a chat, where both may be absent.
struct PromptInput {
  std::optional<std::string> text = {};  // one user message
  ParsedMessages messages = {};          // of --messages, whole; none if it was not given
  bool is_default = false;               // nothing was given: the default question
  std::vector<ContentPart> media = {};   // images and videos of the user message
  std::string folder = {};               // where relative paths in `messages` begin
};

// In a chat standard input is left alone: its lines are the turns. kInput for what is empty,
// missing or not UTF-8.
StatusOr<PromptInput> ReadPrompt(const Options& options, int input_fd, bool input_is_terminal);

// Whether ReadPrompt reads standard input.
bool ReadsInput(const Options& options, bool input_is_terminal);

// A text as its author sees it, without U+FEFF at the beginning.
std::string WithoutByteOrderMark(std::string text);

// A whole text file, "-" = input_fd. kInput unless it is readable, UTF-8 and of sane size; `what`
// names it in messages, e.g. "prompt file".
StatusOr<std::string> ReadTextFile(const std::string& path, const std::string& what,
                                   int input_fd = 0);

// The folder of a file, where the relative paths in it begin; "" = the current one.
std::string FolderOf(const std::string& path);

// Conversations on disk, of --session, /save and /load; --messages reads them too.
// Writes beside the file and renames, so that an interrupted save leaves the old one. kInternal.
Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path);

// kInput when it is missing or no conversation, or when a picture is missing or has changed. Its
// pictures go to `pictures`; null: they are not read.
StatusOr<Conversation> LoadConversation(const std::string& path, PictureReader* pictures);

}  // namespace kuiper::demo
