// Tests whether the bits of a matrix product's rows depend on how many and which other rows it has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

namespace kuiper {

// product(first, count) computes rows [first, first + count) of the outputs as a product of their
// own and returns them, `row_bytes` each. Returns true if each of several such products is bitwise
// equal to the same rows of the product of all `max_rows` rows.
inline bool RowsKeepTheirBits(
    int max_rows, size_t row_bytes,
    const std::function<std::vector<char>(int first, int count)>& product) {
  const std::vector<char> all = product(0, max_rows);
  for (const int count : {1, 7, 16, 64, 100, 257}) {
    if (count >= max_rows) break;
    for (const int first : {0, std::min(5, max_rows - count)}) {
      const std::vector<char> some = product(first, count);
      if (std::memcmp(some.data(), all.data() + first * row_bytes, count * row_bytes) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace kuiper
