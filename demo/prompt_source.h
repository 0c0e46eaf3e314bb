// Reads the prompt of a run: --prompt, --file, --messages, standard input, or the default question.
// Independent of models and tokens.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "demo/options.h"
#include "kuiper/base/status.h"
#include "kuiper/io/messages_json.h"

namespace kuiper::demo {

// Exactly one of `text` and `messages` is set, except in a chat, where both may be absent.
struct PromptInput {
  std::optional<std::string> text = {};  // one user message
  ParsedMessages messages = {};          // content of --messages; empty if it was not given
  bool is_default = false;               // nothing was given: the default question
  std::vector<ContentPart> media = {};   // images and videos of the user message
  std::string folder = {};               // base folder of relative paths in `messages`
};

// Does not read standard input in a chat, where its lines are the turns. Returns kInput for a
// prompt that is empty, missing or not UTF-8.
StatusOr<PromptInput> ReadPrompt(const Options& options, int input_fd, bool input_is_terminal);

// True if ReadPrompt reads standard input.
bool ReadsInput(const Options& options, bool input_is_terminal);

}  // namespace kuiper::demo
