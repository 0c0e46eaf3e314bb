// Texts that people hand over, in files and on standard input: read whole, with limits.
#pragma once

#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

// A text as its author sees it, without U+FEFF at the beginning.
std::string WithoutByteOrderMark(std::string text);

// All bytes of a file. kInput unless it is readable and of sane size; `name` names it in messages.
StatusOr<std::string> ReadAllBytes(int fd, const std::string& name);
// The same without that mark.
StatusOr<std::string> ReadAllText(int fd, const std::string& name);
// kInput for a text that is empty or not UTF-8.
Status CheckText(const std::string& text, const std::string& name);

// A whole text file, "-" = input_fd, that passes both. `what` names it in messages, e.g. "prompt
// file". `keep_mark`: U+FEFF at the beginning of a file stays.
StatusOr<std::string> ReadTextInput(const std::string& path, const std::string& what,
                                    int input_fd = 0, bool keep_mark = false);

// The folder of a file, where the relative paths in it begin; "" = the current one.
std::string FolderOf(const std::string& path);

}  // namespace kuiper
