// Storage formats of keys and values in the KV cache: names and sizes. Views (kv_view.h) return
// rows in a format, memory plans and storage ask for sizes, and kernel tables are keyed by format.
// Only the row type of a format and its entry here define the stored data. Host and device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/host_device.h"

namespace kuiper {

struct KvFormat {
  // Selects the kernels: the key of VisitKv.
  enum class Kind : uint8_t { kF32, kF16, kBF16, kInt8, kF8E4M3, kF8E5M2 };
  struct Entry {
    Kind kind;
    const char* name;    // name in user options
    DType element_type;  // a row is head_dim contiguous elements of this type
    bool has_scales;     // each row has an FP32 scale that multiplies its elements
  };
  static constexpr Entry kTable[] = {{Kind::kF32, "fp32", DType::kF32, false},
                                     {Kind::kF16, "fp16", DType::kF16, false},
                                     {Kind::kBF16, "bf16", DType::kBF16, false},
                                     {Kind::kInt8, "int8", DType::kI8, true},
                                     {Kind::kF8E4M3, "fp8_e4m3", DType::kF8E4M3, false},
                                     {Kind::kF8E5M2, "fp8_e5m2", DType::kF8E5M2, false}};

  Kind kind = Kind::kF32;

  // Returns the format with elements of this type, if there is one.
  static std::optional<KvFormat> Find(DType type) {
    for (const Entry& entry : kTable) {
      if (entry.element_type == type) return KvFormat{entry.kind};
    }
    return std::nullopt;
  }
  static KvFormat Of(DType type) {
    const std::optional<KvFormat> format = Find(type);
    KU_CHECK(format.has_value(), std::string("the KV cache cannot hold ") + DTypeName(type));
    return *format;
  }
  static std::optional<KvFormat> FromName(std::string_view name) {
    for (const Entry& entry : kTable) {
      if (entry.name == name) return KvFormat{entry.kind};
    }
    return std::nullopt;
  }

  constexpr const Entry& entry() const { return kTable[static_cast<int>(kind)]; }
  const char* name() const { return entry().name; }
  DType element_type() const { return entry().element_type; }
  bool has_scales() const { return entry().has_scales; }
  // Bytes of the unit that strides count in.
  constexpr int64_t unit_bytes() const {
    return static_cast<int64_t>(DTypeBytes(entry().element_type));
  }
  // Elements of a row, which is the key or the value of one token and head.
  constexpr int64_t row_units(int head_dim) const { return head_dim; }
  // Bytes of a row with its scale.
  constexpr int64_t row_bytes(int head_dim) const {
    return row_units(head_dim) * unit_bytes() + (entry().has_scales ? kScaleBytes : 0);
  }
  // Elements of a run: the contiguous rows of one head for the tokens of a page. A run is elements
  // [tokens, head_dim], then scales [tokens]. In formats with scales, both parts begin at multiples
  // of 16 bytes.
  constexpr int64_t run_units(int head_dim, int64_t tokens) const {
    if (!entry().has_scales) return tokens * row_units(head_dim);
    return RoundUpToVector(ScalesInRun(head_dim, tokens) + tokens * kScaleBytes);
  }
  constexpr int64_t run_bytes(int head_dim, int64_t tokens) const {
    return run_units(head_dim, tokens) * unit_bytes();
  }
  // Bytes from the beginning of a run to its scales.
  constexpr int64_t ScalesInRun(int head_dim, int64_t tokens) const {
    return RoundUpToVector(tokens * row_units(head_dim) * unit_bytes());
  }
  // Maximum bytes of a run in addition to its rows.
  constexpr int64_t max_padding_bytes() const { return entry().has_scales ? 2 * kVectorBytes : 0; }
  bool operator==(const KvFormat&) const = default;

 private:
  static constexpr int64_t kScaleBytes = 4, kVectorBytes = 16;
  static constexpr int64_t RoundUpToVector(int64_t bytes) {
    return (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  }
};

// Factor by which a backend must multiply the loaded elements of a row to get their values. Kernels
// apply it once per row: to the score of a key and to the weight of a value. E4M3 has FP16's bit
// layout with a smaller exponent bias: loaded as FP16, it is 256 times too small.
template <typename T>
constexpr float kElementScale = 1.0f;
template <>
inline constexpr float kElementScale<Float8E4M3> = 256.0f;

// A row in memory, used by the backends' loads and stores. A format with more than elements has a
// specialisation and its own stores. Trivial, so that it may be in shared memory.
template <typename T>
struct KvRow {
  using Unit = T;
  static constexpr bool kIsScaled = kElementScale<T> != 1.0f;  // true if Scale() is not 1
  static constexpr bool kHasScale = false;  // true if a scale is stored with the row
  T* data;                                  // [head_dim], from the row's current element on

  KU_HOST_DEVICE bool empty() const { return data == nullptr; }
  KU_HOST_DEVICE float Scale() const { return kElementScale<T>; }
  // Returns the row from element `i` on.
  KU_HOST_DEVICE KvRow operator+(int64_t i) const { return {data + i}; }
};

// INT8: integers in [-127, 127] and a scale derived from the row's largest magnitude (see
// kernels/common/int8_row.h).
template <>
struct KvRow<int8_t> {
  using Unit = int8_t;
  static constexpr bool kIsScaled = true;
  static constexpr bool kHasScale = true;
  int8_t* data;  // [head_dim], from the row's current element on
  float* scale;  // [1], scale of the whole row

  KU_HOST_DEVICE bool empty() const { return data == nullptr; }
  KU_HOST_DEVICE float Scale() const { return *scale; }
  KU_HOST_DEVICE KvRow operator+(int64_t i) const { return {data + i, scale}; }
};

}  // namespace kuiper
