// Applies the normalisers of a tokenizer.json (NFC, Prepend, Replace) to UTF-8 text, optionally
// tracking the writer of each byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

// The writer of a byte. A byte made from bytes of several writers counts as the user's if any of
// them does, so that it never becomes part of a control token.
enum class Writer : uint8_t { kUser, kTemplate, kNormalizer };

// `text` must be valid UTF-8. Returns a view of `text` if nothing changes, otherwise of `*storage`.
// `writers`, if given, has one entry per byte of `text`, and afterwards of the result.
std::string_view Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string* storage, std::vector<Writer>* writers = nullptr);

// Replaces every occurrence of `from` (not empty), from left to right.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace kuiper
