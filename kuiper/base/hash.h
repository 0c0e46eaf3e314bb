// FNV-1a, 64 bit (Fowler, Noll, Vo): the hash with which scripts compare the token ids of two runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kuiper {

constexpr uint64_t kFnv1a64Init = 0xcbf29ce484222325ull;

constexpr uint64_t Fnv1a64Byte(uint8_t byte, uint64_t hash) {
  return (hash ^ byte) * 0x100000001b3ull;
}

// Adds the 4 little-endian bytes of each id to `hash`.
inline uint64_t Fnv1a64(std::span<const int32_t> ids, uint64_t hash = kFnv1a64Init) {
  for (int32_t id : ids) {
    const uint32_t u = static_cast<uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = Fnv1a64Byte(static_cast<uint8_t>(u >> shift), hash);
    }
  }
  return hash;
}

inline uint64_t Fnv1a64OfText(std::string_view text, uint64_t hash = kFnv1a64Init) {
  for (const char c : text) hash = Fnv1a64Byte(static_cast<uint8_t>(c), hash);
  return hash;
}

// 16 hexadecimal digits.
std::string HashText(uint64_t hash);
inline std::string TokenHash(std::span<const int32_t> ids) {
  return HashText(Fnv1a64(ids));
}

}  // namespace kuiper
