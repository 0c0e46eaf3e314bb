#include "kuiper/io/text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;

}  // namespace

std::string WithoutByteOrderMark(std::string text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  return text;
}

StatusOr<std::string> ReadAllBytes(int fd, const std::string& name) {
  std::string text;
  char block[1 << 16];
  while (true) {
    const ssize_t n = read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return InputError("cannot read " + name + ": " + std::strerror(errno));
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kMaxBytes) return InputError(name + " is larger than 64 MB");
  }
}

StatusOr<std::string> ReadAllText(int fd, const std::string& name) {
  KU_ASSIGN_OR_RETURN(std::string text, ReadAllBytes(fd, name));
  return WithoutByteOrderMark(std::move(text));
}

Status CheckText(const std::string& text, const std::string& name) {
  if (text.empty()) return InputError(name + " is empty");
  if (!IsValidUtf8(text)) return InputError(name + " is not valid UTF-8");
  return OkStatus();
}

StatusOr<std::string> ReadTextInput(const std::string& path, const std::string& what, int input_fd,
                                    bool keep_mark) {
  const bool is_input = path == "-";
  const std::string name = is_input ? "standard input" : what + " " + path;
  const int fd = is_input ? input_fd : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return InputError("cannot open " + name + ": " + std::strerror(errno));
  StatusOr<std::string> text =
      keep_mark && !is_input ? ReadAllBytes(fd, name) : ReadAllText(fd, name);
  if (!is_input) close(fd);
  if (!text.ok()) return text;
  KU_RETURN_IF_ERROR(CheckText(*text, name));
  return text;
}

std::string FolderOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace kuiper
