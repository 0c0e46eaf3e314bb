// Reference rows of the KV cache for the op tests, from the definition of the formats. Each format
// is identified by the type of its elements, and Kept returns what it stores of a row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kuiper/base/float8.h"
#include "kuiper/ops/kv_format.h"
#include "ops_test_util.h"

namespace kuiper::test {

inline std::vector<DType> KvTypes() {
  return {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kF8E5M2};
}

// Returns the type of queries, keys and values for a cache type; caches of other than float types
// are read with any of them.
inline DType ActivationFor(const Ops& ops, DType cache) {
  return ops.ActivationType(IsFloat(cache) ? cache : DType::kF32);
}

// Returns rows of head_dim values after storing them in a cache of this type. INT8: the largest
// magnitude of a row becomes 127; a row with non-finite values is NaN.
inline std::vector<float> Kept(std::vector<float> rows, DType cache, int head_dim) {
  if (cache != DType::kI8) return Rounded(std::move(rows), cache);
  for (size_t first = 0; first < rows.size(); first += head_dim) {
    const auto begin = rows.begin() + static_cast<int64_t>(first), end = begin + head_dim;
    const bool finite = std::all_of(begin, end, [](float x) { return std::isfinite(x); });
    float max = 0;
    std::for_each(begin, end, [&](float x) { max = std::max(max, std::abs(x)); });
    std::transform(begin, end, begin, [&](float x) {
      if (!finite) return kNaN;
      if (max < 0x1p-100f) return 0.0f;
      const auto code = static_cast<int>(std::nearbyint(x * (127.0f / max)));
      return static_cast<float>(code) * (max / 127.0f);
    });
  }
  return rows;
}

// The largest error of storing a row with magnitudes of at most `max`: absolute, and relative.
struct KeepingError {
  double abs, rel;
};
inline KeepingError KeepingErrorOf(DType cache, double max) {
  switch (cache) {
    case DType::kI8:
      return {0.501 * max / 127, 0};
    case DType::kF8E4M3:
      return {0x1p-10, 1.001 * 0x1p-4};
    case DType::kF8E5M2:
      return {0x1p-17, 1.001 * 0x1p-3};
    default:
      return {0, RoundingError(cache)};
  }
}

// Returns the offset of a row in a run, [tokens, head_dim] elements and scales [tokens]. Counts up
// what KvFormat computes.
struct NaiveRun {
  DType cache;
  int head_dim, tokens;

  int64_t RowBytes() const { return int64_t{head_dim} * static_cast<int64_t>(DTypeBytes(cache)); }
  int64_t Row(int token) const { return token * RowBytes(); }
  int64_t Scale(int token) const { return Padded(tokens * RowBytes()) + int64_t{4} * token; }
  int64_t Bytes() const {
    return cache == DType::kI8 ? Padded(Scale(tokens)) : tokens * RowBytes();
  }
  static int64_t Padded(int64_t bytes) { return bytes % 16 == 0 ? bytes : bytes / 16 * 16 + 16; }
};

// Returns the values of a row: `elements` [head_dim], and `scale` if the type has one.
inline std::vector<float> DecodeRow(DType cache, const char* elements, const char* scale,
                                    int head_dim) {
  std::vector<float> values;
  for (int i = 0; i < head_dim; ++i) {
    const char* const p = elements + i * static_cast<int64_t>(DTypeBytes(cache));
    uint16_t half = 0;
    float x = 0;
    switch (cache) {
      case DType::kF32:
        std::memcpy(&x, p, 4);
        break;
      case DType::kF16:
        std::memcpy(&half, p, 2);
        x = ToFloat(Half{half});
        break;
      case DType::kBF16:
        std::memcpy(&half, p, 2);
        x = ToFloat(BFloat16{half});
        break;
      case DType::kF8E4M3:
        x = ToFloat(Float8E4M3{static_cast<uint8_t>(*p)});
        break;
      case DType::kF8E5M2:
        x = ToFloat(Float8E5M2{static_cast<uint8_t>(*p)});
        break;
      default:
        std::memcpy(&x, scale, 4);
        x *= static_cast<float>(static_cast<int8_t>(*p));
    }
    values.push_back(x);
  }
  return values;
}

}  // namespace kuiper::test

#define KU_INSTANTIATE_KV_OPS_TEST(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(                                                       \
      , suite,                                                                    \
      ::testing::Combine(::testing::ValuesIn(::kuiper::test::DevicesUnderTest()), \
                         ::testing::ValuesIn(::kuiper::test::KvTypes())),         \
      ::kuiper::test::DeviceTypeTestName)
