#include "demo/prompt_source.h"

#include "kuiper/chat/messages_file.h"
#include "kuiper/io/text_input.h"

namespace kuiper::demo {
namespace {

// Removes one trailing line break, which belongs to the file and not to the message.
void RemoveLineEnd(std::string* text) {
  if (text->ends_with('\n')) text->pop_back();
  if (text->ends_with('\r')) text->pop_back();
}

std::string DefaultPrompt(const std::vector<ContentPart>& media) {
  if (media.empty()) return "你好，请介绍一下你自己！";
  const bool is_video = media.back().kind == ContentPart::Kind::kVideo;
  return is_video ? "Describe this video." : "Describe this image.";
}

}  // namespace

bool ReadsInput(const Options& options, bool input_is_terminal) {
  const auto is_input = [](const std::optional<std::string>& path) { return path == "-"; };
  if (is_input(options.messages_file) || is_input(options.prompt_file)) return true;
  return !options.messages_file && !options.prompt_file && !options.prompt &&
         options.task != Task::kChat && !input_is_terminal;
}

StatusOr<PromptInput> ReadPrompt(const Options& options, int input_fd, bool input_is_terminal) {
  PromptInput input;
  if (options.messages_file.has_value()) {
    KU_ASSIGN_OR_RETURN(input.messages,
                        ReadMessagesFile(*options.messages_file, options.media, input_fd));
    input.folder = FolderOf(*options.messages_file);
    return input;
  }
  input.media = options.media;
  if (options.prompt.has_value()) {
    KU_RETURN_IF_ERROR(CheckText(*options.prompt, "--prompt"));
    input.text = options.prompt;
    return input;
  }
  std::string name = "standard input";
  if (options.prompt_file.has_value()) {
    const bool is_file = *options.prompt_file != "-";
    KU_ASSIGN_OR_RETURN(input.text,
                        ReadTextInput(*options.prompt_file, "prompt file", input_fd, options.raw));
    if (options.raw && is_file) return input;
    if (is_file) name = "prompt file " + *options.prompt_file;
  } else if (options.task == Task::kChat) {
    return input;
  } else if (!input_is_terminal) {
    KU_ASSIGN_OR_RETURN(input.text, ReadAllText(input_fd, name));
  }
  if (!input.text.has_value() || input.text->empty()) {
    input.text = DefaultPrompt(options.media);
    input.is_default = true;
    return input;
  }
  RemoveLineEnd(&*input.text);
  KU_RETURN_IF_ERROR(CheckText(*input.text, name));
  return input;
}

}  // namespace kuiper::demo
