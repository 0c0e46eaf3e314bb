// A quantised matrix by its definition, element by element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kuiper/base/half.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
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

// A matrix in host memory in the layout of files, even if CpuLinear::Prepack has rearranged it into
// panels. A panel has as many rows as the kernels have columns, with their words of four bytes,
// scales and zero points interleaved.
class InRows {
 public:
  explicit InRows(const WeightMatrix& m) : matrix_(m) {
    if (!m.is_prepacked) return;
    matrix_.is_prepacked = false;
    matrix_.values.data = UndoPanels(m.values, 4);
    matrix_.scales.data = UndoPanels(m.scales, static_cast<int64_t>(DTypeBytes(m.scales.dtype)));
    if (!m.zeros.empty()) matrix_.zeros.data = UndoPanels(m.zeros, 1);
  }
  const WeightMatrix& matrix() const { return matrix_; }

 private:
  void* UndoPanels(const Tensor& t, int64_t word_bytes) {
    const int64_t panel_rows = cpu::LinearKernelSets().front()[matrix_.format].integer.columns;
    std::vector<char>& rows = memory_.emplace_back(static_cast<size_t>(t.bytes()));
    const int64_t row_bytes = t.bytes() / t.shape[0];
    const char* from = static_cast<const char*>(t.data);
    for (int64_t panel = 0; panel < t.shape[0]; panel += panel_rows) {
      for (int64_t at = 0; at < row_bytes; at += word_bytes) {
        for (int64_t row = panel; row < panel + panel_rows; ++row, from += word_bytes) {
          std::memcpy(rows.data() + row * row_bytes + at, from, static_cast<size_t>(word_bytes));
        }
      }
    }
    return rows.data();
  }

  std::vector<std::vector<char>> memory_;
  WeightMatrix matrix_;
};

inline unsigned CodeAt(const WeightMatrix& m, int64_t row, int64_t column) {
  const auto* codes = static_cast<const unsigned char*>(m.values.data) + row * m.values.shape[1];
  if (m.format.code_bits() == 8) return codes[column];
  return codes[column / 2] >> (column % 2 * 4) & 15;
}

// [out, in] in FP32.
inline std::vector<float> ValuesOf(const WeightMatrix& stored) {
  const InRows rows(stored);
  const WeightMatrix& m = rows.matrix();
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
              ? f.default_zero()
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
