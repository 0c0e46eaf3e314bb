// Unicode normalisation form C as Hugging Face's `tokenizers` computes it: characters newer than
// its tables (Unicode 9) do not change or move.
#pragma once

#include <string>
#include <string_view>

namespace kuiper {

// True if it is certain from single characters that Nfc does not change `text` (valid UTF-8).
bool IsSurelyNfc(std::string_view text);

// Returns the shortest prefix of `text` (not empty) whose NFC does not depend on what follows.
std::string_view NfcPart(std::string_view text);

// `text` must be valid UTF-8.
std::string Nfc(std::string_view text);

}  // namespace kuiper
