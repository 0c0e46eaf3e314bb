// The normalisers of a tokenizer.json (NFC, Prepend, Replace) applied to UTF-8 text, with or
// without an account of who wrote which byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

// The writer of a byte. A byte made from bytes of several writers counts as the user's, so that it
// never becomes a control token.
enum class Writer : uint8_t { kUser, kTemplate, kNormalizer };

// `text` must be valid UTF-8. The result is a view of `text` when nothing changes, else of
// `*storage`. `writers`, where given, has one entry per byte of `text`, then of the result.
std::string_view Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string* storage, std::vector<Writer>* writers = nullptr);

// Replaces every occurrence of `from` (not empty) from left to right.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace kuiper
