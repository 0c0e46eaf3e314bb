// SHA-256 (FIPS 180-4): digests that distinguish contents even if an attacker tries to make two of
// them collide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kuiper {

class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void Update(std::span<const uint8_t> bytes);
  // Returns the digest of all bytes so far. The object must not be used afterwards.
  Digest Finish();

 private:
  void Block(const uint8_t* block);  // 64 bytes

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_ = {};  // the first num_bytes_ % 64 bytes of a block
  uint64_t num_bytes_ = 0;
};

// Two lower-case hexadecimal digits a byte.
std::string HexText(std::span<const uint8_t> bytes);

}  // namespace kuiper
