// Images in requests: `data:image/png;base64,...` (RFC 2397), as browsers accept them (the
// standards Fetch, "data: URL processor", and Infra, "forgiving-base64 decode").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper {

// The scheme may be in upper case.
bool IsDataUrl(std::string_view url);

// Returns the bytes. The media type is ignored: the bytes show the format. Blanks and line breaks
// are ignored, %2B is a plus, padding is optional, and the URL-safe alphabet is accepted. kInput if
// `url` is not such a URL or has more than `max_bytes`; `name` is its name in messages.
StatusOr<std::string> DecodeImageUrl(std::string_view url, size_t max_bytes,
                                     const std::string& name);

}  // namespace kuiper
