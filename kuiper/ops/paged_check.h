// Checks arguments of the operator API's callers and the memory of their cache; for
// paged_attention.cpp and paged_kv.cpp. Errors name the argument, its value, and what is allowed.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/ops/paged_attention.h"

namespace kuiper::paged {

constexpr int kMaxHeadSize = 1024;
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int kSlabShift = 30;  // one slab holds every page

Status Invalid(const std::string& message);
Status InRange(const char* name, int64_t value, int64_t low, int64_t high);
// Checks an array of 32-bit numbers.
template <typename T>
Status CheckArray(const char* name, const T* numbers) {
  static_assert(sizeof(T) == 4);
  if (numbers == nullptr) return Invalid(std::string(name) + " is null");
  if (reinterpret_cast<uintptr_t>(numbers) % sizeof(T) == 0) return OkStatus();
  return Invalid(std::string(name) + " is not aligned to 4 bytes");
}
// Check rows of head_size elements, and a stride between them of at least `low` elements.
Status CheckElements(const char* name, const void* data, DType dtype, int head_size);
Status CheckStride(const char* name, int64_t stride, int64_t low, DType dtype, int head_size);
// Checks that it is a float type.
Status CheckDType(const char* name, DType dtype);
Status CheckCache(const PagedKv& kv);

}  // namespace kuiper::paged
