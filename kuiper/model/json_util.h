// JSON text from files that may be hostile: bounded nesting, byte offsets in messages, no
// exceptions. Used by the .cpp files of this folder only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper {

// kModel "`name`: invalid JSON at byte N" or "... nested deeper than ..." when the text is not
// JSON.
StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& name);

// A string from a file, safe inside a one-line message: quoted, control bytes escaped, shortened.
std::string Quoted(std::string_view text);

// The text of a small file; kModel when it cannot be read or is larger than max_bytes.
StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace kuiper
