// Small text functions: reading files, and formatting values for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// Makes a string from a file safe for a one-line message: quoted, control bytes escaped, shortened.
std::string Quoted(std::string_view text);

// True for a git-lfs pointer: the few lines of text that git leaves in place of a large file.
bool IsLfsPointer(std::string_view text);
Status LfsPointer(const std::string& path, StatusCode code);

// Returns the bytes of a file; an error with `code` if it cannot be read, is larger than max_bytes
// or is a git-lfs pointer. `kind` describes the file if it cannot be opened: "", or a word and a
// space.
StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes, StatusCode code,
                                   const std::string& kind = "");
// Returns the value of a line "<key> <number>", in the file's unit; nullopt if there is none.
std::optional<size_t> ReadKey(const std::string& path, const std::string& key);

// Returns `text` with each %XX replaced by its byte (RFC 3986, 2.1).
std::string PercentDecoded(std::string_view text);

std::string Megabytes(size_t bytes);
// "1 token", "2 tokens".
std::string Counted(int64_t count, const std::string& noun);

// Returns how many letters to change, add, remove or swap with a neighbour turn `a` into `b`.
int EditDistance(std::string_view a, std::string_view b);
// Returns the name that `word` was probably meant to be, for "did you mean"; "" if none is near. A
// prefix of a name counts as one wrong letter.
std::string NearestName(std::string_view word, const std::vector<std::string_view>& names);
// Returns the end of a message about `word`: "; did you mean --name?", with `prefix` before the
// name; "" if none is near.
std::string DidYouMean(std::string_view word, const std::vector<std::string_view>& names,
                       std::string_view prefix = "");

}  // namespace kuiper
