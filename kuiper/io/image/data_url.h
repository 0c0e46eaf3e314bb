// Pictures in requests: `data:image/png;base64,...` (RFC 2397), as browsers take them (the
// standards Fetch, "data: URL processor", and Infra, "forgiving-base64 decode").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper {

// In capital letters, too.
bool IsDataUrl(std::string_view url);

// The bytes. The type does not matter: what they are is seen in them. Blanks and line breaks do not
// count, %2B is a plus, padding may be absent, and the alphabet may be that of URLs. kInput when
// `url` is something else or has more than `max_bytes`; `name` is what the message calls it.
StatusOr<std::string> DecodeImageUrl(std::string_view url, size_t max_bytes,
                                     const std::string& name);

}  // namespace kuiper
