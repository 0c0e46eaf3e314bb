// A quantised matrix by its definition, element by element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kuiper/base/half.h"
#include "kuiper/ops/ops.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::test {

inline float FloatAt(const Tensor& t, int64_t i) {
  if (t.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(t.data) + 4 * i, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(t.data) + 2 * i, sizeof bits);
  return t.dtype == DType::kF16 ? ToFloat(Half{bits}) : ToFloat(BFloat16{bits});
}

inline float E4M3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>((code & 0x80) != 0 ? -magnitude : magnitude);
}

inline unsigned CodeAt(const WeightMatrix& m, int64_t row, int64_t column) {
  const auto* codes = static_cast<const unsigned char*>(m.values.data) + row * m.values.shape[1];
  if (m.format.code_bits() == 8) return codes[column];
  return codes[column / 2] >> (column % 2 * 4) & 15;
}

// [out, in] in FP32.
inline std::vector<float> ValuesOf(const WeightMatrix& m) {
  const WeightFormat& f = m.format;
  const int64_t in = m.values.shape[1] * 8 / f.code_bits();
  std::vector<float> values;
  for (int64_t row = 0; row < m.rows(); ++row) {
    for (int64_t column = 0; column < in; ++column) {
      const int64_t group = column / f.group_columns;
      const float scale = FloatAt(m.scales, row / f.group_rows * m.scales.shape[1] + group);
      const unsigned code = CodeAt(m, row, column);
      const int zero =
          m.zeros.empty()
              ? f.middle_code()
              : static_cast<const unsigned char*>(m.zeros.data)[row * m.zeros.shape[1] + group];
      values.push_back((f.kind == WeightFormat::Kind::kE4M3
                            ? E4M3(code)
                            : static_cast<float>(static_cast<int>(code) - zero)) *
                       scale);
    }
  }
  return values;
}

inline std::vector<char> Download(Ops& ops, const Tensor& t) {
  if (t.empty()) return {};
  std::vector<char> bytes(static_cast<size_t>(t.bytes()));
  Tensor host = t;
  host.data = bytes.data();
  host.device = Device{};
  ops.device().Download(host, t);
  ops.device().Sync();
  return bytes;
}

}  // namespace kuiper::test
