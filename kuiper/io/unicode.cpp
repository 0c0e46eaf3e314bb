#include "kuiper/io/unicode.h"

#include "kuiper/io/unicode_tables.h"

namespace kuiper {

CharKind KindOf(char32_t c) {
  static constexpr unicode::RunTable<unicode::kNumKinds> kKinds(unicode::kKinds, 8);
  static_assert(kKinds.CoversAll());
  return static_cast<CharKind>(kKinds.At(c));
}

}  // namespace kuiper
