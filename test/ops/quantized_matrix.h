// Quantised matrices for tests: codes, zero points and scales as numbers, and their bytes on a
// device. The meaning of a code is implemented here again, from the formats' definitions.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kuiper/ops/linear.h"
#include "ops_test_util.h"

namespace kuiper::test {

// E4M3 of OCP's 8-bit formats: 4 bits of exponent with bias 7, 3 of fraction.
inline double E4M3(int code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

inline WeightFormat Quantized(WeightFormat::Kind kind, DType operand_type, int group_columns,
                              DType scale_type = DType::kF16, int group_rows = 1) {
  return {.kind = kind,
          .operand_type = operand_type,
          .scale_type = scale_type,
          .group_columns = group_columns,
          .group_rows = group_rows};
}

// Returns a random code of the format that is a number: for E4M3, not NaN.
inline int RandomCode(const WeightFormat& format, std::mt19937& rng) {
  const int code = static_cast<int>(rng() >> 8) & ((1 << format.code_bits()) - 1);
  const bool is_nan = format.kind == WeightFormat::Kind::kE4M3 && (code & 127) == 127;
  return is_nan ? 0 : code;
}

struct QuantizedNumbers {
  WeightFormat format;
  int rows = 0, columns = 0;
  std::vector<uint8_t> codes;  // [rows, columns]
  std::vector<float> scales;   // [row_groups, column_groups]
  std::vector<uint8_t> zeros;  // [rows, column_groups] or empty

  double Value(int row, int column) const {
    const int64_t groups = format.column_groups(columns), group = column / format.group_columns;
    const double scale = scales[row / format.group_rows * groups + group];
    const int code = codes[int64_t{1} * row * columns + column];
    if (format.kind == WeightFormat::Kind::kE4M3) return E4M3(code) * scale;
    const int middle = format.kind == WeightFormat::Kind::kInt4 ? 8 : 128;
    return (code - (zeros.empty() ? middle : zeros[row * groups + group])) * scale;
  }
};

// Returns random codes and zero points, and scales that make values of about 1.
inline QuantizedNumbers RandomQuantized(const WeightFormat& format, int rows, int columns,
                                        bool with_zeros, uint32_t seed) {
  std::mt19937 rng(seed);
  QuantizedNumbers n{format, rows, columns, {}, {}, {}};
  for (int64_t i = 0; i < int64_t{1} * rows * columns; ++i) {
    n.codes.push_back(static_cast<uint8_t>(RandomCode(format, rng)));
  }
  const float unit = format.kind == WeightFormat::Kind::kInt4 ? 0x1p-3f : 0x1p-7f;
  for (int64_t i = 0; i < format.row_groups(rows) * format.column_groups(columns); ++i) {
    const float scale = unit * (0.5f + static_cast<float>(rng() % 1024) / 1024.0f);
    n.scales.push_back(Rounded(scale, format.scale_type));
  }
  if (with_zeros) {
    for (int64_t i = 0; i < rows * format.column_groups(columns); ++i) {
      n.zeros.push_back(static_cast<uint8_t>(RandomCode(format, rng)));
    }
  }
  return n;
}

// The numbers on a device; codes begin `offset` bytes after an aligned address.
class QuantizedOnDevice {
 public:
  QuantizedOnDevice(Ops& ops, const QuantizedNumbers& n, int offset = 0)
      : format_(n.format),
        rows_(n.rows),
        offset_(offset),
        bytes_(ops, Pack(n, offset)),
        scales_(ops, n.format.scale_type, static_cast<int>(n.format.row_groups(n.rows)),
                static_cast<int>(n.format.column_groups(n.columns)), n.scales),
        zeros_(ops, n.zeros, n.rows),
        has_zeros_(!n.zeros.empty()) {}

  WeightMatrix matrix() const {
    const Tensor bytes = bytes_.tensor();
    const int64_t row_bytes = (bytes.shape[0] - offset_) / rows_;
    return {format_,
            Tensor::Dense(static_cast<char*>(bytes.data) + offset_, DType::kU8, {rows_, row_bytes},
                          bytes.device),
            scales_.tensor(), has_zeros_ ? zeros_.matrix() : Tensor()};
  }

 private:
  static std::vector<uint8_t> Pack(const QuantizedNumbers& n, int offset) {
    std::vector<uint8_t> bytes(static_cast<size_t>(offset), 0xff);
    if (n.format.code_bits() == 8) {
      bytes.insert(bytes.end(), n.codes.begin(), n.codes.end());
    } else {
      for (size_t i = 0; i < n.codes.size(); i += 2) {
        bytes.push_back(static_cast<uint8_t>(n.codes[i] | n.codes[i + 1] << 4));
      }
    }
    return bytes;
  }

  WeightFormat format_;
  int rows_, offset_;
  Array<uint8_t> bytes_;
  Matrix scales_;
  Array<uint8_t> zeros_;
  bool has_zeros_;
};

}  // namespace kuiper::test
