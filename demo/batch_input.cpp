#include "demo/batch_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kuiper::demo {
namespace {

constexpr char kChatUrl[] = "/v1/chat/completions";
constexpr char kCompletionsUrl[] = "/v1/completions";

Status Bad(const std::string& message) {
  return Status(StatusCode::kInput, message);
}

std::string BodyField(std::string_view name) {
  return "body." + std::string(name);
}

// The URL says what the body is; without one the body does.
StatusOr<bool> IsChat(const JsonNode& line, const JsonNode& body) {
  const JsonNode* method = GivenField(line, "method");
  if (method != nullptr && !(method->IsString() && method->text == "POST")) {
    return Bad("method must be \"POST\"");
  }
  const bool is_chat = GivenField(body, "messages") != nullptr;
  if (is_chat == (GivenField(body, "prompt") != nullptr)) {
    return Bad("body must have either messages or prompt");
  }
  const JsonNode* url = GivenField(line, "url");
  if (url == nullptr || (url->IsString() && url->text == (is_chat ? kChatUrl : kCompletionsUrl))) {
    return is_chat;
  }
  return Bad(std::string("url must be \"") + kChatUrl + "\" for messages and \"" + kCompletionsUrl +
             "\" for a prompt");
}

}  // namespace

std::optional<std::string> CustomIdOf(const JsonNode& line) {
  const JsonNode* id = line.Find("custom_id");
  return id != nullptr && id->IsString() ? std::optional(id->text) : std::nullopt;
}

StatusOr<ChatRequest> ParseBatchLine(const JsonNode& line, const Request& defaults) {
  if (!line.IsObject()) return Bad("the line is not an object");
  if (!CustomIdOf(line).has_value()) return Bad("the line has no custom_id");
  const JsonNode* body = line.Find("body");
  if (body == nullptr || !body->IsObject()) return Bad("the line has no body");
  KU_ASSIGN_OR_RETURN(const bool is_chat, IsChat(line, *body));
  StatusOr<ChatRequest> request = ParseChatRequest(*body, is_chat, defaults);
  if (!request.ok()) return Bad(request.status().message(BodyField));
  return request;
}

BatchInput::~BatchInput() {
  if (fd_ != STDIN_FILENO) close(fd_);
}

StatusOr<std::unique_ptr<BatchInput>> BatchInput::Open(const std::string& path) {
  const int fd = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Bad("cannot open requests file " + path + ": " + std::strerror(errno));
  std::unique_ptr<BatchInput> input(new BatchInput(fd));
  struct stat info = {};
  if (fstat(fd, &info) != 0) return Bad("cannot read " + path + ": " + std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return Bad(path + " is a directory");
  if (!S_ISREG(info.st_mode)) return input;
  const off_t begin = lseek(fd, 0, SEEK_CUR);
  while (input->NextLine().has_value()) ++input->count_;
  if (input->count_ == 0) return Bad(path + " holds no requests");
  if (lseek(fd, begin, SEEK_SET) != begin)
    return Bad("cannot read " + path + ": " + std::strerror(errno));
  input->reader_ = LineReader(fd);
  return input;
}

std::optional<std::string> BatchInput::NextLine() {
  while (std::optional<std::string> line = reader_.Next()) {
    if (line->find_first_not_of(" \t") != std::string::npos) return line;
  }
  return std::nullopt;
}

std::optional<BatchInput::Item> BatchInput::Next() {
  const std::optional<std::string> text = NextLine();
  if (!text.has_value()) return std::nullopt;
  Item item{{++num_read_, std::nullopt}, ParseJson(*text, StatusCode::kInput, "the line")};
  if (!item.json.ok()) return item;
  item.line.custom_id = CustomIdOf(*item.json);
  if (item.line.custom_id.has_value() && !custom_ids_.insert(*item.line.custom_id).second) {
    item.json = Status(StatusCode::kInput, "an earlier line has this custom_id");
  }
  return item;
}

}  // namespace kuiper::demo
