#include "demo/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "demo/console.h"
#include "demo/exit_code.h"

namespace kuiper::demo {
namespace {

using Json = nlohmann::ordered_json;

// OpenAI knows two reasons; the context is a limit of the length as well.
const char* FinishName(FinishReason reason) {
  return reason == FinishReason::kLength || reason == FinishReason::kContext ? "length" : "stop";
}

Json Choice(bool chat, size_t index, const Completion& completion) {
  Json choice = {{"index", index}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", completion.text}};
    if (completion.has_reasoning) choice["message"]["reasoning_content"] = completion.reasoning;
  } else {
    choice["text"] = completion.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = FinishName(completion.finish);
  return choice;
}

std::string Line(const BatchLine& line, Json response, Json error) {
  Json json = {{"id", "batch_req_" + std::to_string(line.number)}};
  json["custom_id"] = line.custom_id.has_value() ? Json(*line.custom_id) : Json(nullptr);
  json["response"] = std::move(response);
  json["error"] = std::move(error);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string BatchAnswerLine(const BatchLine& line, bool chat, const std::string& model,
                            const std::vector<Completion>& choices) {
  const std::string number = std::to_string(line.number);
  const int prompt = choices.at(0).prompt_tokens;
  size_t generated = 0;
  Json list = Json::array();
  for (const Completion& completion : choices) {
    generated += completion.tokens.size();
    list.push_back(Choice(chat, list.size(), completion));
  }
  Json body = {{"id", (chat ? "chatcmpl-" : "cmpl-") + number},
               {"object", chat ? "chat.completion" : "text_completion"},
               {"created", 0},
               {"model", model},
               {"choices", std::move(list)}};
  body["usage"] = {{"prompt_tokens", prompt},
                   {"completion_tokens", generated},
                   {"total_tokens", prompt + generated}};
  const Json response = {
      {"status_code", 200}, {"request_id", "req_" + number}, {"body", std::move(body)}};
  return Line(line, response, nullptr);
}

std::string BatchErrorLine(const BatchLine& line, const Status& status) {
  return Line(line, nullptr,
              {{"code", ErrorName(status.code())}, {"message", status.message(FlagName)}});
}

BatchOutput::BatchOutput(int fd, std::string path, bool regular)
    : fd_(fd), path_(std::move(path)), regular_(regular), finished_(fd) {}

BatchOutput::~BatchOutput() {
  if (fd_ != STDOUT_FILENO) close(fd_);
}

StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path, int input_fd) {
  if (path == "-") {
    return std::unique_ptr<BatchOutput>(new BatchOutput(STDOUT_FILENO, "standard output", false));
  }
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // a pipe or a device
  if (fd < 0) return WriteFailed(path);
  struct stat info = {}, input = {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  std::unique_ptr<BatchOutput> output(new BatchOutput(fd, path, regular));
  if (!regular) return output;
  if (fstat(input_fd, &input) == 0 && input.st_dev == info.st_dev && input.st_ino == info.st_ino) {
    return Status(StatusCode::kInvalidArgument, "--input and --output are the same file");
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kInvalidArgument, path + " is being written by another process");
  }
  KU_RETURN_IF_ERROR(output->CutTornEnd());
  return output;
}

Status BatchOutput::CutTornEnd() {
  off_t end = lseek(fd_, 0, SEEK_END);
  char block[4096];
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(sizeof(block)));
    const ssize_t n = pread(fd_, block, static_cast<size_t>(end - begin), begin);
    if (n != end - begin) return WriteFailed(path_);
    const void* newline = memrchr(block, '\n', static_cast<size_t>(n));
    if (newline != nullptr) {
      end = begin + (static_cast<const char*>(newline) - block) + 1;
      break;
    }
    end = begin;
  }
  if (ftruncate(fd_, end) != 0 || lseek(fd_, 0, SEEK_SET) != 0) return WriteFailed(path_);
  return OkStatus();
}

std::optional<std::string> BatchOutput::NextFinished() {
  return regular_ ? finished_.Next() : std::nullopt;
}

Status BatchOutput::Write(const std::string& lines) {
  for (size_t written = 0; written < lines.size();) {
    const ssize_t n = write(fd_, lines.data() + written, lines.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteFailed(path_);
    written += static_cast<size_t>(n);
  }
  if (regular_ && fdatasync(fd_) != 0) return WriteFailed(path_);
  return OkStatus();
}

}  // namespace kuiper::demo
