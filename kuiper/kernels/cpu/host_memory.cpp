#include "kuiper/kernels/cpu/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "kuiper/base/process_limits.h"
#include "kuiper/base/text.h"

namespace kuiper::cpu {
namespace {

std::atomic<size_t> allocated_bytes = 0;

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
constexpr size_t kHugePage = size_t{2} << 20;

size_t BlockAlignment(size_t bytes) {
  constexpr size_t kLine = 64;
  return bytes >= kHugePage ? kHugePage : kLine;
}

// Maps anonymous pages that begin at a multiple of `alignment`, a power of two.
StatusOr<Buffer> Map(size_t bytes, size_t alignment) {
  if (bytes == 0) return Buffer();
  const size_t free = FreeMemory();
  if (bytes > free) {
    return Status(
        StatusCode::kResourceExhausted,
        "cannot allocate " + Megabytes(bytes) + " of memory: " + Megabytes(free) + " is available");
  }
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (bytes + page - 1) / page * page;
  const size_t more = bytes >= alignment ? std::max(alignment, page) - page : 0;
  void* const mapped = mmap(nullptr, size + more, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + Megabytes(bytes) + " of memory");
  }
  char* const begin = static_cast<char*>(mapped);
  const size_t ahead =
      more == 0 ? 0 : (alignment - reinterpret_cast<uintptr_t>(begin) % alignment) % alignment;
  if (ahead > 0) munmap(begin, ahead);
  if (more > ahead) munmap(begin + ahead + size, more - ahead);
  allocated_bytes += bytes;
  return Buffer(begin + ahead, bytes, Device{}, [](void* p, size_t n) {
    munmap(p, n);
    allocated_bytes -= n;
  });
}

}  // namespace

size_t BlocksSize(size_t bytes) {
  const size_t alignment = BlockAlignment(bytes);
  return std::max<size_t>((bytes + alignment - 1) / alignment, 1) * alignment;
}

StatusOr<Buffer> AllocateBlocks(size_t bytes) {
  const size_t alignment = BlockAlignment(bytes);
  bytes = BlocksSize(bytes);
  void* data = std::aligned_alloc(alignment, bytes);
  if (data == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for " + Megabytes(bytes) + " of linear layer scratch",
                  "lower the number of tokens per step");
  }
#ifdef MADV_HUGEPAGE
  constexpr size_t kPage = 4096;
  if (alignment > kPage) madvise(data, bytes, MADV_HUGEPAGE);  // best effort
#endif
  allocated_bytes += bytes;
  return Buffer(data, bytes, Device{}, [](void* p, size_t n) {
    std::free(p);
    allocated_bytes -= n;
  });
}

size_t L2CacheBytes() {
  static const size_t bytes = [] {
    long found = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    found = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return found > 0 ? static_cast<size_t>(found) : size_t{512} << 10;
  }();
  return bytes;
}

size_t AllocatedBytes() {
  return allocated_bytes;
}

size_t FreeMemory() {
  const std::optional<size_t> kilobytes = ReadKey("/proc/meminfo", "MemAvailable:");
  return std::min(kilobytes ? *kilobytes * 1024 : kUnlimited, FreeInControlGroups());
}

StatusOr<Buffer> AllocatePages(size_t bytes) {
  return Map(bytes, 1);
}

StatusOr<Buffer> AllocateHugePages(size_t bytes) {
  KU_ASSIGN_OR_RETURN(Buffer buffer, Map(bytes, kHugePage));
#ifdef MADV_HUGEPAGE
  if (bytes >= kHugePage) madvise(buffer.data(), bytes, MADV_HUGEPAGE);  // best effort
#endif
  return buffer;
}

}  // namespace kuiper::cpu
