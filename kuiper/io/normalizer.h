// The normalisers of a tokenizer.json (NFC, Prepend, Replace) applied to UTF-8 text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

// `text` must be valid UTF-8. The result is a view of `text` when nothing changes, else of
// `*storage`.
std::string_view Normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string* storage);

// Replaces every occurrence of `from` (not empty) from left to right.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace kuiper
