// Element types of tensors. There is no "unknown" type: an absent tensor is an empty Tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kuiper/base/float8.h"
#include "kuiper/base/half.h"

namespace kuiper {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kU8, kI8, kF8E4M3, kF8E5M2 };

constexpr size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
  }
  return 0;
}

// "FP32", "FP16", "BF16", ... as log lines spell them.
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "FP32";
    case DType::kF16:
      return "FP16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "INT8";
    case DType::kF8E4M3:
      return "FP8 E4M3";
    case DType::kF8E5M2:
      return "FP8 E5M2";
  }
  return "";
}

// Types in which activations and weights are computed; FP8 values are only stored.
constexpr bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Maps a C++ element type to its DType.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kF32> {};
template <>
struct DTypeOf<Half> : std::integral_constant<DType, DType::kF16> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::kBF16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::kI32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::kI64> {};
template <>  // bit patterns share the signed type's storage
struct DTypeOf<uint64_t> : std::integral_constant<DType, DType::kI64> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::kU8> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, DType::kI8> {};
template <>
struct DTypeOf<Float8E4M3> : std::integral_constant<DType, DType::kF8E4M3> {};
template <>
struct DTypeOf<Float8E5M2> : std::integral_constant<DType, DType::kF8E5M2> {};

}  // namespace kuiper
