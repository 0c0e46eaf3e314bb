// What the KV cache stores: the formats of a key or a value, their names, and what they take. Views
// (kv_view.h) hand out rows in a format, memory plans and storage ask for bytes, and kernel tables
// are keyed by it. Only the row type of a format and its entry here know what is stored. Host and
// device.
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
  // Which kernels read it: the key of VisitKv.
  enum class Kind : uint8_t { kF32, kF16, kBF16 };
  struct Entry {
    Kind kind;
    const char* name;    // as users choose it
    DType element_type;  // of which a row is head_dim, side by side
  };
  static constexpr Entry kTable[] = {{Kind::kF32, "fp32", DType::kF32},
                                     {Kind::kF16, "fp16", DType::kF16},
                                     {Kind::kBF16, "bf16", DType::kBF16}};

  Kind kind = Kind::kF32;

  // Elements of a float type, as they come.
  static KvFormat Dense(DType type) {
    for (const Entry& entry : kTable) {
      if (entry.element_type == type) return {entry.kind};
    }
    KU_CHECK(false, std::string("the KV cache cannot hold ") + DTypeName(type));
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
  // What strides count in.
  constexpr int64_t unit_bytes() const {
    return static_cast<int64_t>(DTypeBytes(entry().element_type));
  }
  // A row, which is the key or the value of one token and head with all that belongs to it.
  constexpr int64_t row_units(int head_dim) const { return head_dim; }
  constexpr int64_t row_bytes(int head_dim) const { return row_units(head_dim) * unit_bytes(); }
  bool operator==(const KvFormat&) const = default;
};

// A row in memory. The loads and stores of the backends (kernels/*/kv_row*) take it; a format that
// is more than its elements gets a specialisation and loads of its own. Trivial, so that it may lie
// in shared memory.
template <typename T>
struct KvRow {
  using Unit = T;
  T* data;  // [head_dim], from the element on that the row stands at

  KU_HOST_DEVICE bool empty() const { return data == nullptr; }
  // The row from element `i` on.
  KU_HOST_DEVICE KvRow operator+(int64_t i) const { return {data + i}; }
};

}  // namespace kuiper
