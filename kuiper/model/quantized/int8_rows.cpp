#include "kuiper/model/quantized/int8_rows.h"

#include <algorithm>
#include <cmath>

#include "kuiper/base/check.h"
#include "kuiper/model/convert.h"

namespace kuiper {
namespace {

constexpr int kGroup = 128;
constexpr float kLargestCode = 127.0f;

}  // namespace

WeightFormat Int8RowsFormat() {
  return {.kind = WeightFormat::Kind::kInt8,
          .scale_type = DType::kF32,
          .group_columns = kGroup,
          .group_rows = 1};
}

bool QuantizeRows(const char* from, DType dtype, int64_t rows, int64_t in, char* codes,
                  float* scales) {
  const float middle = static_cast<float>(Int8RowsFormat().default_zero());
  const auto element = static_cast<int64_t>(DTypeBytes(dtype));
  float values[kGroup];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < in; begin += kGroup) {
      const int64_t n = std::min<int64_t>(kGroup, in - begin);
      KU_CHECK(ConvertFloats(values, DType::kF32, from, dtype, n));
      from += n * element;
      float largest = 0.0f;
      bool finite = true;
      for (int64_t i = 0; i < n; ++i) {
        largest = std::max(largest, std::abs(values[i]));
        finite &= std::isfinite(values[i]);
      }
      if (!finite) return false;
      const float scale = largest / kLargestCode;
      *scales++ = scale;
      for (int64_t i = 0; i < n; ++i) {
        // The scale of a group of tiny values may round to 0; the whole group then becomes zero.
        const float steps = scale > 0.0f ? std::nearbyint(values[i] / scale) : 0.0f;
        const float code = std::clamp(steps, -kLargestCode, kLargestCode) + middle;
        *codes++ = static_cast<char>(static_cast<unsigned char>(code));
      }
    }
  }
  return true;
}

}  // namespace kuiper
