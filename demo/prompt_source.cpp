#include "demo/prompt_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "kuiper/base/atomic_file.h"
#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/conversation_json.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;

// Less the byte order mark that some editors write at the beginning.
StatusOr<std::string> ReadAll(int fd, const std::string& name) {
  std::string text;
  char block[1 << 16];
  while (true) {
    const ssize_t n = read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return InputError("cannot read " + name + ": " + std::strerror(errno));
    if (n == 0) return WithoutByteOrderMark(std::move(text));
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kMaxBytes) return InputError(name + " is larger than 64 MB");
  }
}

// One trailing line break belongs to the file, not to the message.
void RemoveLineEnd(std::string* text) {
  if (text->ends_with('\n')) text->pop_back();
  if (text->ends_with('\r')) text->pop_back();
}

Status CheckText(const std::string& text, const std::string& name) {
  if (text.empty()) return InputError(name + " is empty");
  if (!IsValidUtf8(text)) return InputError(name + " is not valid UTF-8");
  return OkStatus();
}

// Images without a path, as {"type": "image"} is one, are those of the flags, in their order.
Status FillPictures(const std::vector<ContentPart>& media, std::vector<Message>* messages) {
  size_t next = 0;
  for (Message& message : *messages) {
    for (ContentPart& part : message.parts) {
      if (part.kind == ContentPart::Kind::kText || !part.text.empty()) continue;
      if (next < media.size() && media[next].kind != part.kind) {
        const bool image = part.kind == ContentPart::Kind::kImage;
        return InputError(image
                              ? "the messages have the place of an image where a video was given"
                              : "the messages have the place of a video where an image was given");
      }
      if (next < media.size()) part = media[next];
      ++next;
    }
  }
  if (next == media.size()) return OkStatus();
  return InputError(
      "the messages have places for " + Counted(static_cast<int64_t>(next), "picture") + ", and " +
      std::to_string(media.size()) + (media.size() == 1 ? " was" : " were") + " given");
}

std::string DefaultPrompt(const std::vector<ContentPart>& media) {
  if (media.empty()) return "你好，请介绍一下你自己！";
  const bool is_video = media.back().kind == ContentPart::Kind::kVideo;
  return is_video ? "Describe this video." : "Describe this image.";
}

StatusOr<PromptInput> ReadMessages(const std::string& path, const Options& options, int input_fd) {
  KU_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(path, "messages file", input_fd));
  const auto parse = [&]() -> StatusOr<ParsedMessages> {
    KU_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(json, StatusCode::kInput, "messages"));
    KU_RETURN_IF_ERROR(CheckMessagesFields(root));
    return ParseMessages(root);
  };
  StatusOr<ParsedMessages> messages = parse();
  if (!messages.ok()) return InputError(path + ": " + messages.status().message());
  KU_RETURN_IF_ERROR(FillPictures(options.media, &messages->messages));
  return PromptInput{.messages = std::move(*messages), .folder = FolderOf(path)};
}

}  // namespace

std::string FolderOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

StatusOr<std::string> ReadTextFile(const std::string& path, const std::string& what, int input_fd) {
  const bool is_input = path == "-";
  const std::string name = is_input ? "standard input" : what + " " + path;
  const int fd = is_input ? input_fd : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return InputError("cannot open " + name + ": " + std::strerror(errno));
  StatusOr<std::string> text = ReadAll(fd, name);
  if (!is_input) close(fd);
  if (!text.ok()) return text;
  KU_RETURN_IF_ERROR(CheckText(*text, name));
  return text;
}

std::string WithoutByteOrderMark(std::string text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

bool ReadsInput(const Options& options, bool input_is_terminal) {
  const auto is_input = [](const std::optional<std::string>& path) { return path == "-"; };
  if (is_input(options.messages_file) || is_input(options.prompt_file)) return true;
  return !options.messages_file && !options.prompt_file && !options.prompt &&
         options.task != Task::kChat && !input_is_terminal;
}

StatusOr<PromptInput> ReadPrompt(const Options& options, int input_fd, bool input_is_terminal) {
  PromptInput input;
  if (options.messages_file.has_value()) {
    return ReadMessages(*options.messages_file, options, input_fd);
  }
  input.media = options.media;
  if (options.prompt.has_value()) {
    KU_RETURN_IF_ERROR(CheckText(*options.prompt, "--prompt"));
    input.text = options.prompt;
    return input;
  }
  std::string name = "standard input";
  if (options.prompt_file.has_value()) {
    KU_ASSIGN_OR_RETURN(input.text, ReadTextFile(*options.prompt_file, "prompt file", input_fd));
    if (*options.prompt_file != "-") name = "prompt file " + *options.prompt_file;
  } else if (options.task == Task::kChat) {
    return input;
  } else if (!input_is_terminal) {
    KU_ASSIGN_OR_RETURN(input.text, ReadAll(input_fd, name));
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

Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path) {
  const std::string text = ConversationJson(conversation, model);
  AtomicFile file(path);
  KU_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.Commit();
}

StatusOr<Conversation> LoadConversation(const std::string& path, PictureReader* pictures) {
  KU_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, "conversation"));
  StatusOr<Conversation> conversation = ParseConversation(text);
  Status status = conversation.status();
  if (status.ok() && pictures != nullptr) {
    status = conversation->ReadPictures(FolderOf(path), pictures);
  }
  if (status.ok()) return conversation;
  return Status(status.code(), path + ": " + status.message(), status.hint());
}

}  // namespace kuiper::demo
