// Reads texts that users provide in files and on standard input: as a whole, with limits.
#pragma once

#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

// Removes U+FEFF at the beginning, which the author of a text does not see.
std::string WithoutByteOrderMark(std::string text);

// Reads all bytes of a file. kInput if it cannot be read or is too large; `name` names it in
// messages.
StatusOr<std::string> ReadAllBytes(int fd, const std::string& name);
// Does what ReadAllBytes does and removes a byte order mark.
StatusOr<std::string> ReadAllText(int fd, const std::string& name);
// Returns kInput if the text is empty or not UTF-8.
Status CheckText(const std::string& text, const std::string& name);

// Reads a whole text file ("-" = input_fd) and checks it with CheckText. `what` names it in
// messages, e.g. "prompt file". `keep_mark`: keeps U+FEFF at the beginning of a file.
StatusOr<std::string> ReadTextInput(const std::string& path, const std::string& what,
                                    int input_fd = 0, bool keep_mark = false);

// Returns the folder of a file, to which relative paths in it refer; "" = the current folder.
std::string FolderOf(const std::string& path);

}  // namespace kuiper
