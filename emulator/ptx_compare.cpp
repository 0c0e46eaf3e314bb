#include "emulator/ptx_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/half.h"
#include "emulator/machine.h"

namespace kuiper::simt::ptx {
namespace {

// Bounds for results that contain an exp, which is the C library's here and ex2.approx in PTX.
// 16-bit values are rounded once more, so they may differ by one unit.
constexpr double kBound32 = 1e-4, kBound16 = 0x1p-7;

// exp is approximate on a device; all other operations are specified to the bit.
bool IsApproximate(const Kernel& kernel) {
  return std::any_of(kernel.text.begin(), kernel.text.end(), [](const std::string& text) {
    return text.find(".approx") != std::string::npos;
  });
}

uint32_t WordAt(const char* p, size_t at, size_t bytes) {
  uint32_t word = 0;
  std::memcpy(&word, p + at, std::min(bytes - at, sizeof word));
  return word;
}

// a - b| divided by the larger magnitude, at least 4e-3. Values far below 1 need this minimum: for
// y near -5, y (1 + erf(y)) has the rounding error of 1 times that y.
double Difference(double a, double b) {
  return std::fabs(a - b) / std::max({std::fabs(a), std::fabs(b), 4e-3});
}

template <typename Format>
double Difference16(uint32_t a, uint32_t b) {
  const auto half = [](uint32_t word, int n) {
    return double{Format::Decode(static_cast<uint16_t>(word >> (16 * n)))};
  };
  return std::max(Difference(half(a, 0), half(b, 0)), Difference(half(a, 1), half(b, 1)));
}

// True if two words are close as a float or as two 16-bit values. Integers, which read as numbers
// near zero, must be equal.
bool AreClose(uint32_t a, uint32_t b) {
  if (a == b) return true;
  constexpr uint32_t kSmallestFloat = 0x00800000;
  if ((a & 0x7fffffff) < kSmallestFloat && (b & 0x7fffffff) < kSmallestFloat) return false;
  return Difference(std::bit_cast<float>(a), std::bit_cast<float>(b)) <= kBound32 ||
         Difference16<HalfFormat>(a, b) <= kBound16 ||
         Difference16<BFloat16Format>(a, b) <= kBound16;
}

}  // namespace

void Compare(const Kernel& kernel, const Contents& before, const std::function<void()>& run_other) {
  Contents ptx;
  for (const auto& [p, bytes] : before) {
    ptx[p].assign(p, p + bytes.size());
    std::memcpy(p, bytes.data(), bytes.size());
  }
  run_other();
  const bool approximate = IsApproximate(kernel);
  for (const auto& [p, bytes] : ptx) {
    if (std::memcmp(p, bytes.data(), bytes.size()) == 0) continue;
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const uint32_t a = WordAt(bytes.data(), at, bytes.size()), b = WordAt(p, at, bytes.size());
      if (a == b || (approximate && AreClose(a, b))) continue;
      char words[64];
      std::snprintf(words, sizeof words, "0x%08x from PTX, 0x%08x from C++", a, b);
      Die(kernel.file + ": results differ in byte " + std::to_string(at) + " of a buffer of " +
          std::to_string(bytes.size()) + ": " + words + "\n  in " + kernel.name);
    }
  }
}

}  // namespace kuiper::simt::ptx
