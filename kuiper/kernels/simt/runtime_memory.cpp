#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kuiper/kernels/simt/memory.h"
#include "kuiper/kernels/simt/runtime_state.h"

// Allocation and copies. A copy between the device and pinned memory happens when its stream runs;
// pageable memory is read at once and written before the call returns, as on a real device.

namespace kuiper::simt {

using namespace dialect;  // NOLINT(google-build-using-namespace): defines CUDA's functions

namespace {

size_t FreeDeviceBytes() {
  const size_t used = AllocatedDeviceBytes() + CurrentPretence().used_by_others;
  return CurrentPretence().total_bytes - std::min(used, CurrentPretence().total_bytes);
}

bool IsPinned(const void* p) {
  return IsMemory(p, 1, MemoryKind::kPinnedHost);
}

// A device pointer must cover the whole copy; a host pointer must not be a device pointer.
bool DirectionFits(const void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  const auto fits = [bytes](const void* p, bool device) {
    return device ? IsMemory(p, bytes, MemoryKind::kDevice) : !IsDeviceAddress(p);
  };
  return fits(dst, kind == cudaMemcpyHostToDevice) && fits(src, kind == cudaMemcpyDeviceToHost);
}

cudaError_t Allocate(void** p, size_t bytes, MemoryKind kind) {
  const Lock lock(Device().mutex);
  *p = nullptr;
  if (BreaksAnyCapture()) return Result(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  if (kind == MemoryKind::kDevice && bytes > FreeDeviceBytes())
    return Result(cudaErrorMemoryAllocation);
  *p = AllocateMemory(bytes, kind);
  return *p == nullptr ? Result(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t Free(void* p, MemoryKind kind) {
  const Lock lock(Device().mutex);
  if (p == nullptr) return cudaSuccess;
  if (BreaksAnyCapture()) return Result(cudaErrorStreamCaptureUnsupported);
  if (!IsMemory(p, 1, kind)) return Result(cudaErrorInvalidValue);
  DrainAll();
  FreeMemory(p);
  return cudaSuccess;
}

}  // namespace

namespace dialect {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  return Allocate(p, bytes, MemoryKind::kDevice);
}

cudaError_t cudaFree(void* p) {
  return Free(p, MemoryKind::kDevice);
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return Allocate(p, bytes, MemoryKind::kPinnedHost);
}

cudaError_t cudaFreeHost(void* p) {
  return Free(p, MemoryKind::kPinnedHost);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const Lock lock(Device().mutex);
  *total_bytes = CurrentPretence().total_bytes;
  *free_bytes = FreeDeviceBytes();
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  const Lock lock(Device().mutex);
  if (BreaksAnyCapture()) return Result(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  if (!DirectionFits(dst, src, bytes, kind)) return Result(cudaErrorInvalidValue);
  ++Device().waits.syncs;
  Drain(Device().default_stream);
  std::memmove(dst, src, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(Device().mutex);
  if (bytes == 0) return cudaSuccess;
  if (!DirectionFits(dst, src, bytes, kind)) return Result(cudaErrorInvalidValue);
  const bool captured = Get(stream).capture != nullptr;
  const bool pageable_source = !IsDeviceAddress(src) && !IsPinned(src);
  const bool pageable_target = !IsDeviceAddress(dst) && !IsPinned(dst);
  if (pageable_source && !captured) {
    const auto* first = static_cast<const char*>(src);
    auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
    Queue(stream, [dst, staged] { std::memcpy(dst, staged->data(), staged->size()); });
  } else {
    Queue(stream, [dst, src, bytes] { std::memmove(dst, src, bytes); });
  }
  if (pageable_target && !captured) {
    ++Device().waits.syncs;
    Drain(Get(stream));
  }
  return cudaSuccess;
}

cudaError_t cudaMemset(void* dst, int value, size_t bytes) {
  const Lock lock(Device().mutex);
  if (BreaksAnyCapture()) return Result(cudaErrorStreamCaptureUnsupported);
  const cudaError_t error = cudaMemsetAsync(dst, value, bytes, nullptr);
  ++Device().waits.syncs;
  Drain(Device().default_stream);
  return error;
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(Device().mutex);
  if (bytes == 0) return cudaSuccess;
  if (!IsMemory(dst, bytes, MemoryKind::kDevice)) return Result(cudaErrorInvalidValue);
  return Queue(stream, [dst, value, bytes] { std::memset(dst, value, bytes); });
}

}  // namespace dialect
}  // namespace kuiper::simt
