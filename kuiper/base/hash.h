// FNV-1a, 64 bit (Fowler, Noll, Vo): the key by which scripts compare two runs' token ids.
#pragma once

#include <cstdint>
#include <span>

namespace kuiper {

constexpr uint64_t kFnv1a64Init = 0xcbf29ce484222325ull;

// Folds the 4 little-endian bytes of each id into `hash`.
inline uint64_t Fnv1a64(std::span<const int32_t> ids, uint64_t hash = kFnv1a64Init) {
  for (int32_t id : ids) {
    const uint32_t u = static_cast<uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) {
      hash ^= (u >> shift) & 0xFFu;
      hash *= 0x100000001b3ull;
    }
  }
  return hash;
}

}  // namespace kuiper
