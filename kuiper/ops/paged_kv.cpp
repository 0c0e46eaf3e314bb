// The caches of the operator API: their layouts and their checks.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>

#include "kuiper/ops/kv_view.h"
#include "kuiper/ops/paged_check.h"

namespace kuiper {
namespace paged {
namespace {

constexpr int kMaxPageSize = 256;

// Returns the alignment for the kernels' widest loads: 16 bytes, or 8 elements if that is less, or
// two elements.
int64_t AlignmentOf(int head_size, DType dtype) {
  const auto bytes = static_cast<int64_t>(DTypeBytes(dtype));
  return head_size % 8 == 0 ? std::min<int64_t>(16, 8 * bytes) : 2 * bytes;
}

// Checks a stride of at least `low` elements.
Status CheckMultiple(const char* name, int64_t stride, int64_t low, int64_t multiple) {
  KU_RETURN_IF_ERROR(InRange(name, stride, low, std::numeric_limits<int64_t>::max() / 16));
  if (stride % multiple == 0) return OkStatus();
  return Invalid(std::string(name) + " is " + std::to_string(stride) +
                 "; it must be a multiple of " + std::to_string(multiple) + " elements");
}

struct Dimension {
  const char* name;
  int64_t stride, extent;
};

// Checks that each stride exceeds the extent of the smaller ones. A row is `row` elements; the
// second dimension is that of tokens.
Status CheckStrides(std::array<Dimension, 3> dims, int row, int64_t multiple) {
  KU_RETURN_IF_ERROR(InRange(dims[1].name, dims[1].stride, row, kMaxInt));
  std::sort(dims.begin(), dims.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  int64_t reached = row;
  for (const Dimension& dim : dims) {
    const int64_t low = dim.extent == 1 ? 0 : reached;
    KU_RETURN_IF_ERROR(CheckMultiple(dim.name, dim.stride, low, multiple));
    reached += (dim.extent - 1) * dim.stride;
  }
  return OkStatus();
}

Status CheckCacheType(DType dtype) {
  if (KvFormat::Find(dtype).has_value()) return OkStatus();
  return Invalid(std::string("kv.dtype is ") + DTypeName(dtype) +
                 "; it must be FP32, FP16, BF16, INT8, FP8 E4M3 or FP8 E5M2");
}

}  // namespace

Status Invalid(const std::string& message) {
  return Status(StatusCode::kInvalidArgument, "paged attention: " + message);
}

Status InRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return Invalid(std::string(name) + " is " + std::to_string(value) + "; it must be in [" +
                 std::to_string(low) + ", " + std::to_string(high) + "]");
}

Status CheckElements(const char* name, const void* data, DType dtype, int head_size) {
  if (data == nullptr) return Invalid(std::string(name) + " is null");
  const int64_t alignment = AlignmentOf(head_size, dtype);
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) == 0) return OkStatus();
  return Invalid(std::string(name) + " is not aligned to " + std::to_string(alignment) + " bytes");
}

Status CheckStride(const char* name, int64_t stride, int64_t low, DType dtype, int head_size) {
  return CheckMultiple(name, stride, low,
                       AlignmentOf(head_size, dtype) / static_cast<int64_t>(DTypeBytes(dtype)));
}

Status CheckDType(const char* name, DType dtype) {
  if (IsFloat(dtype)) return OkStatus();
  return Invalid(std::string(name) + " is " + DTypeName(dtype) + "; it must be FP32, FP16 or BF16");
}

namespace {

Status CheckScales(const PagedKv& kv) {
  if (!KvFormat::Of(kv.dtype).has_scales()) {
    if (kv.k_scales == nullptr && kv.v_scales == nullptr) return OkStatus();
    return Invalid(std::string("scales are given, and kv.dtype is ") + DTypeName(kv.dtype) +
                   ", which has none");
  }
  KU_RETURN_IF_ERROR(CheckArray("kv.k_scales", kv.k_scales));
  KU_RETURN_IF_ERROR(CheckArray("kv.v_scales", kv.v_scales));
  return CheckStrides({{{"kv.scale_page_stride", kv.scale_page_stride, kv.num_pages},
                        {"kv.scale_token_stride", kv.scale_token_stride, kv.page_size},
                        {"kv.scale_head_stride", kv.scale_head_stride, kv.kv_heads}}},
                      1, 1);
}

}  // namespace

Status CheckCache(const PagedKv& kv) {
  KU_RETURN_IF_ERROR(CheckCacheType(kv.dtype));
  KU_RETURN_IF_ERROR(InRange("kv.head_size", kv.head_size, 2, kMaxHeadSize));
  if (kv.head_size % (kv.head_size <= 256 ? 2 : 8) != 0) {
    return Invalid("kv.head_size is " + std::to_string(kv.head_size) +
                   "; it must be even, and a multiple of 8 above 256");
  }
  KU_RETURN_IF_ERROR(InRange("kv.page_size", kv.page_size, 1, kMaxPageSize));
  if (!std::has_single_bit(static_cast<unsigned>(kv.page_size))) {
    return Invalid("kv.page_size is " + std::to_string(kv.page_size) +
                   "; it must be a power of two");
  }
  KU_RETURN_IF_ERROR(InRange("kv.num_pages", kv.num_pages, 1,
                             std::min(kMaxInt / kv.page_size, (int64_t{1} << kSlabShift) - 1)));
  KU_RETURN_IF_ERROR(InRange("kv.kv_heads", kv.kv_heads, 1, kMaxInt / kv.head_size));
  KU_RETURN_IF_ERROR(CheckElements("kv.k", kv.k, kv.dtype, kv.head_size));
  KU_RETURN_IF_ERROR(CheckElements("kv.v", kv.v, kv.dtype, kv.head_size));
  if (kv.k == kv.v) return Invalid("kv.v is the same pointer as kv.k");
  const int64_t multiple =
      AlignmentOf(kv.head_size, kv.dtype) / static_cast<int64_t>(DTypeBytes(kv.dtype));
  KU_RETURN_IF_ERROR(CheckStrides({{{"kv.page_stride", kv.page_stride, kv.num_pages},
                                    {"kv.token_stride", kv.token_stride, kv.page_size},
                                    {"kv.head_stride", kv.head_stride, kv.kv_heads}}},
                                  kv.head_size, multiple));
  return CheckScales(kv);
}

}  // namespace paged

namespace {

// An invalid type is refused by the call that gets the cache.
KvFormat FormatOrDefault(DType dtype) {
  return KvFormat::Find(dtype).value_or(KvFormat{});
}

}  // namespace

PagedKv PagedKv::TokenMajor(void* k, void* v, DType dtype, int num_pages, int page_size,
                            int kv_heads, int head_size) {
  PagedKv kv{k, v, dtype, num_pages, page_size, kv_heads, head_size};
  kv.head_stride = head_size;
  kv.token_stride = int64_t{1} * kv_heads * head_size;
  kv.page_stride = page_size * kv.token_stride;
  return kv;
}

PagedKv PagedKv::HeadMajor(void* kv_data, DType dtype, int num_pages, int page_size, int kv_heads,
                           int head_size) {
  const KvFormat format = FormatOrDefault(dtype);
  char* const keys = static_cast<char*>(kv_data);
  char* const values = keys + format.run_bytes(head_size, page_size);
  PagedKv kv{keys, values, dtype, num_pages, page_size, kv_heads, head_size};
  const KvStrides s = KvStrides::OfPages(format, 1, kv_heads, head_size, page_size, 0);
  kv.token_stride = s.token_stride;
  kv.head_stride = s.head_stride;
  kv.page_stride = s.page_stride;
  if (!format.has_scales()) return kv;
  const int64_t in_run = format.ScalesInRun(head_size, page_size);
  kv.k_scales = reinterpret_cast<float*>(keys + in_run);
  kv.v_scales = reinterpret_cast<float*>(values + in_run);
  const KvStrides scales = s.ScalesOfPages(format, page_size);
  kv.scale_token_stride = scales.token_stride;
  kv.scale_head_stride = scales.head_stride;
  kv.scale_page_stride = scales.page_stride;
  return kv;
}

int64_t PagedKv::HeadMajorBytes(DType dtype, int num_pages, int page_size, int kv_heads,
                                int head_size) {
  return int64_t{2} * num_pages * kv_heads * FormatOrDefault(dtype).run_bytes(head_size, page_size);
}

PagedKv PagedKv::HeadMajor(void* k, void* v, DType dtype, int num_pages, int page_size,
                           int kv_heads, int head_size) {
  PagedKv kv{k, v, dtype, num_pages, page_size, kv_heads, head_size};
  kv.token_stride = head_size;
  kv.head_stride = int64_t{1} * page_size * head_size;
  kv.page_stride = kv_heads * kv.head_stride;
  return kv;
}

PagedKv PagedKv::WithScales(float* keys, float* values) const {
  PagedKv kv = *this;
  const bool token_major = token_stride > head_stride;
  kv.k_scales = keys;
  kv.v_scales = values;
  kv.scale_token_stride = token_major ? kv_heads : 1;
  kv.scale_head_stride = token_major ? 1 : page_size;
  kv.scale_page_stride = int64_t{1} * page_size * kv_heads;
  return kv;
}

}  // namespace kuiper
