#include "kuiper/terminal/input_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "kuiper/base/append_file.h"
#include "kuiper/base/atomic_file.h"
#include "kuiper/base/line_reader.h"

namespace kuiper {
namespace {

constexpr size_t kMaxLines = 1000;
constexpr size_t kMaxLineBytes = size_t{64} << 10;  // longer lines are kept in memory only

// Makes a history entry one line of the file: \n and \\ are escaped as in C.
std::string Escaped(const std::string& line) {
  std::string text;
  for (const char c : line) {
    if (c == '\\' || c == '\n') text += '\\';
    text += c == '\n' ? 'n' : c;
  }
  return text + "\n";
}

std::string Unescaped(const std::string& text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    if (escape) ++i;
    line += escape && text[i] == 'n' ? '\n' : text[i];
  }
  return line;
}

}  // namespace

std::string HistoryPath() {
  const auto directory = [](const char* name, const char* below) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr || value[0] != '/' ? "" : std::string(value) + below;
  };
  std::string state = directory("XDG_STATE_HOME", "");
  if (state.empty()) state = directory("HOME", "/.local/state");
  return state.empty() ? "" : state + "/kuiper/chat_history";
}

InputHistory::InputHistory(std::string path) : path_(std::move(path)) {
  const int fd = path_.empty() ? -1 : open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  LineReader reader(fd);
  while (const std::optional<std::string> line = reader.Next()) lines_.push_back(Unescaped(*line));
  close(fd);
  if (lines_.size() < 2 * kMaxLines) return;
  lines_.erase(lines_.begin(), lines_.end() - kMaxLines);
  std::string newest;
  for (const std::string& line : lines_) newest += Escaped(line);
  AtomicFile file(path_);
  // A failure is ignored: the next start tries again.
  if (file.Write(newest.data(), newest.size()).ok()) (void)file.Commit();
}

Status InputHistory::Add(const std::string& line) {
  if (!lines_.empty() && lines_.back() == line) return OkStatus();
  lines_.push_back(line);
  return path_.empty() || line.size() > kMaxLineBytes ? OkStatus() : Append(Escaped(line));
}

Status InputHistory::Append(const std::string& lines) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return WriteFailed(path_);
  Status status = WriteAll(fd, lines, path_);
  close(fd);
  return status;
}

}  // namespace kuiper
