// Small texts: what files hold, and how values look in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// A string from a file, safe inside a one-line message: quoted, control bytes escaped, shortened.
std::string Quoted(std::string_view text);

// What git leaves in place of a large file until git-lfs brings it: a few lines of text.
bool IsLfsPointer(std::string_view text);
Status LfsPointer(const std::string& path, StatusCode code);

// The bytes of a file; an error of this code when it cannot be read, is larger than max_bytes or is
// such a pointer. `kind` names it where it cannot be opened: "", or a word with a space behind it.
StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes, StatusCode code,
                                   const std::string& kind = "");
// The value of a line "<key> <number>", in the file's unit. Absent when there is none.
std::optional<size_t> ReadKey(const std::string& path, const std::string& key);

// `text` with %XX as the bytes they stand for (RFC 3986, 2.1); others stay.
std::string PercentDecoded(std::string_view text);

std::string Megabytes(size_t bytes);
// "1 token", "2 tokens".
std::string Counted(int64_t count, const std::string& noun);

// Letters to change, add, leave out or swap with their neighbour to make one of the other.
int EditDistance(std::string_view a, std::string_view b);
// The name that `word` was probably meant to be, for "did you mean"; "" when none is near. The
// beginning of a name is as good as one wrong letter.
std::string NearestName(std::string_view word, const std::vector<std::string_view>& names);
// The end of a message about `word`: "; did you mean --name?", with `prefix` before the name; ""
// when none is near.
std::string DidYouMean(std::string_view word, const std::vector<std::string_view>& names,
                       std::string_view prefix = "");

}  // namespace kuiper
