// Memory of the emulated device: every buffer stands alone between red zones that AddressSanitizer
// guards and that are checked for stray writes when the buffer is freed, in every build. Bytes
// nobody has written read as 0xff (NaN). Called by the runtime and by tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kuiper::simt {

enum class MemoryKind { kDevice, kPinnedHost };

// Null if there is no memory. 256-byte aligned.
void* AllocateMemory(size_t bytes, MemoryKind kind);
// Ends the process if p was not allocated or if its red zones were written.
void FreeMemory(void* p);

// Whether [p, p + bytes) lies within one live buffer of that kind.
bool IsMemory(const void* p, size_t bytes, MemoryKind kind);
// Whether p points into any live device buffer.
bool IsDeviceAddress(const void* p);

struct MemoryRange {
  char* begin = nullptr;
  size_t bytes = 0;
  uint64_t id = 0;  // of the allocation: an address may be given out again
};
// The live buffer, or device buffer, that p points into; null begin if there is none.
MemoryRange FindBuffer(const void* p);
MemoryRange FindDeviceBuffer(const void* p);

size_t AllocatedDeviceBytes();

}  // namespace kuiper::simt
