// Readers of the generated tables in unicode_tables.inc, evaluated at compile time. Used by
// unicode.cpp and nfc.cpp only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace kuiper::unicode {

#include "kuiper/io/unicode_tables.inc"

constexpr char32_t kNumCodePoints = 0x110000;

// Reads the numbers that tools/make_unicode_tables.py writes: base 32 with the digits 0-9 A-Z a-z +
// -, the most significant digit first. All but the last digit of a number are 32 higher.
class NumberReader {
 public:
  constexpr explicit NumberReader(std::string_view text) : text_(text) {}

  constexpr uint32_t Next() {
    uint32_t value = 0;
    while (true) {
      const int digit = Digit(text_[pos_++]);
      value = value << 5 | (digit & 31);
      if (digit < 32) return value;
    }
  }
  // n >= 0 is written as 2 n, n < 0 as -2 n - 1.
  static constexpr int32_t Signed(uint32_t value) {
    return static_cast<int32_t>(value >> 1) ^ -static_cast<int32_t>(value & 1);
  }

 private:
  static constexpr int Digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    if (c >= 'a' && c <= 'z') return c - 'a' + 36;
    return c == '+' ? 62 : 63;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

// A small value for every code point, stored as runs; an index entry per 64 code points finds the
// run.
template <int kNumRuns>
class RunTable {
 public:
  // `text` holds length * scale + value of each run.
  constexpr RunTable(std::string_view text, uint32_t scale) {
    NumberReader reader(text);
    char32_t start = 0;
    for (int i = 0; i < kNumRuns; ++i) {
      const uint32_t run = reader.Next();
      starts_[i] = start;
      values_[i] = static_cast<uint8_t>(run % scale);
      start += run / scale;
      for (char32_t block = (starts_[i] + 63) / 64; block * 64 < start; ++block) {
        first_[block] = static_cast<uint16_t>(i);
      }
    }
    starts_[kNumRuns] = start;
  }

  constexpr uint8_t At(char32_t c) const {
    int i = first_[c / 64];
    while (starts_[i + 1] <= c) ++i;
    return values_[i];
  }
  constexpr bool CoversAll() const { return starts_[kNumRuns] == kNumCodePoints; }

 private:
  std::array<char32_t, kNumRuns + 1> starts_ = {};
  std::array<uint8_t, kNumRuns> values_ = {};
  std::array<uint16_t, kNumCodePoints / 64> first_ = {};
};

// `code` decomposes canonically into `first` `second` (0: none).
struct Decomposition {
  char32_t code = 0, first = 0, second = 0;
  bool composes = false;  // NFC composes the two into `code`
};

// Returns the decompositions, sorted by code.
constexpr std::array<Decomposition, kNumDecompositions> ReadDecompositions() {
  std::array<Decomposition, kNumDecompositions> all = {};
  NumberReader reader(kDecompositions);
  char32_t code = 0, first = 0, second = 0;
  for (Decomposition& entry : all) {
    code += reader.Next();
    const uint32_t to_first = reader.Next();
    first += NumberReader::Signed(to_first >> 1);
    entry = {code, first};
    if ((to_first & 1) == 0) continue;
    const uint32_t to_second = reader.Next();
    second += NumberReader::Signed(to_second >> 1);
    entry.second = second;
    entry.composes = (to_second & 1) != 0;
  }
  return all;
}

}  // namespace kuiper::unicode
