// Where the prompt of a run comes from: --prompt, --file, --messages, standard input, or the
// default question. Knows nothing of models or tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "demo/options.h"
#include "kuiper/base/status.h"
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

}  // namespace kuiper::demo
