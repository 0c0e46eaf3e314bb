// Unicode's normalisation form C as Hugging Face's `tokenizers` computes it: characters that are
// younger than its tables (Unicode 9) stay as and where they are.
#pragma once

#include <string>
#include <string_view>

namespace kuiper {

// Whether Nfc leaves `text` (valid UTF-8) alone, as far as a look at single characters can tell.
bool IsSurelyNfc(std::string_view text);

// The shortest beginning of `text` (not empty) whose NFC does not depend on what follows it.
std::string_view NfcPart(std::string_view text);

// `text` must be valid UTF-8.
std::string Nfc(std::string_view text);

}  // namespace kuiper
