#include "kuiper/base/hash.h"

#include <cinttypes>
#include <cstdio>

namespace kuiper {

std::string HashText(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash);
  return text;
}

}  // namespace kuiper
