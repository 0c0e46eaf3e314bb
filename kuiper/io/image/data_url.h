// Pictures in requests: `data:image/png;base64,...` (RFC 2397, base64 of RFC 4648).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper {

// The bytes. Strict: the standard alphabet, padded, nothing else in between. kInput when `url` is
// something else or has more than `max_bytes`; `name` is what the message calls it.
StatusOr<std::string> DecodeImageUrl(std::string_view url, size_t max_bytes,
                                     const std::string& name);

}  // namespace kuiper
