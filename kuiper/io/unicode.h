// Character classes of the splitters of Hugging Face's `tokenizers`. The tables are part of the
// program, so that ids do not depend on the machine's libraries (tools/make_unicode_tables.py).
#pragma once

#include <cstdint>

namespace kuiper {

// \p{L}, \p{M}, \p{N} and \s, which are disjoint.
enum class CharKind : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

// `c` <= U+10FFFF.
CharKind KindOf(char32_t c);

}  // namespace kuiper
