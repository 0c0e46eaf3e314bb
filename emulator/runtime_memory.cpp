#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulator/memory.h"
#include "emulator/runtime_state.h"

// Allocation and copies. A copy between the device and pinned memory runs when its stream runs;
// until then the host must not access that memory. As on a real device, pageable memory is read at
// once and written before the call returns.

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

// A device or pinned buffer must cover the whole copy; a host pointer must not be a device pointer.
bool DirectionFits(const void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  const auto fits = [bytes](const void* p, bool device) {
    if (device) return IsMemory(p, bytes, MemoryKind::kDevice);
    return !IsDeviceAddress(p) && (!IsPinned(p) || IsMemory(p, bytes, MemoryKind::kPinnedHost));
  };
  return fits(dst, kind == cudaMemcpyHostToDevice) && fits(src, kind == cudaMemcpyDeviceToHost);
}

uint64_t HashOf(const char* p, size_t bytes) {
  uint64_t hash = bytes;
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, p + i, std::min(sizeof word, bytes - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// A copy from or to pinned memory, starting with the call. While it waits, other copies to the same
// buffer may change the memory, but the host must not.
class PinnedCopy {
 public:
  PinnedCopy(void* dst, const void* src, size_t bytes)
      : dst_(dst),
        src_(src),
        bytes_(bytes),
        writes_(IsPinned(dst)),
        pinned_(static_cast<const char*>(writes_ ? dst : src)),
        buffer_(FindBuffer(pinned_)) {
    CopiesTo& others = Device().copies_to[buffer_.id];
    watched_ = others.waiting == 0;
    done_before_ = others.done;
    if (watched_) hash_ = HashOf(pinned_, bytes_);
    if (writes_) ++others.waiting;
  }
  void Run() const {
    CopiesTo& others = Device().copies_to[buffer_.id];
    if (watched_ && others.done == done_before_ && HashOf(pinned_, bytes_) != hash_) {
      Die("the host wrote to pinned memory while a copy " + std::string(writes_ ? "to" : "from") +
          " it was under way: " + std::to_string(bytes_) + " bytes from byte " +
          std::to_string(pinned_ - buffer_.begin) + " of a buffer of " +
          std::to_string(buffer_.bytes));
    }
    std::memmove(dst_, src_, bytes_);
    if (!writes_) return;
    --others.waiting;
    ++others.done;
  }

 private:
  void* dst_;
  const void* src_;
  size_t bytes_;
  bool writes_;
  const char* pinned_;
  MemoryRange buffer_;
  bool watched_;
  uint64_t done_before_;
  uint64_t hash_ = 0;
};

cudaError_t Allocate(void** p, size_t bytes, MemoryKind kind) {
  const Lock lock(Device().mutex);
  *p = nullptr;
  if (IsFaulty()) return Result(cudaErrorLaunchFailure);
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
  if (IsFaulty()) return Result(cudaErrorLaunchFailure);
  if (BreaksAnyCapture()) return Result(cudaErrorStreamCaptureUnsupported);
  if (!IsMemory(p, 1, kind)) return Result(cudaErrorInvalidValue);
  DrainAll();
  Device().copies_to.erase(FindBuffer(p).id);
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
  const bool to_device = kind == cudaMemcpyHostToDevice;
  const bool pinned = IsPinned(to_device ? src : dst);
  const auto queued = [=]() -> Work {
    if (pinned) return [copy = PinnedCopy(dst, src, bytes)] { copy.Run(); };
    if (!to_device) return [=] { std::memcpy(dst, src, bytes); };
    const auto* first = static_cast<const char*>(src);
    const auto staged = std::make_shared<std::vector<char>>(first, first + bytes);
    return [=] { std::memcpy(dst, staged->data(), bytes); };
  };
  Queue(stream, Node{queued, {FindBuffer(dst), FindBuffer(src)}});
  if (!to_device && !pinned && Get(stream).capture == nullptr) {
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
  Work set = [dst, value, bytes] { std::memset(dst, value, bytes); };
  return Queue(stream, Node{[set = std::move(set)] { return set; }, {FindBuffer(dst)}});
}

}  // namespace dialect
}  // namespace kuiper::simt
