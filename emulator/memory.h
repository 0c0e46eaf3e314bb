// Memory of the emulated device. Every buffer has red zones on both sides. AddressSanitizer guards
// them, and in every build they are checked for stray writes when the buffer is freed. Bytes that
// were never written read as 0xff (NaN). Called by the runtime and by tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kuiper::simt {

enum class MemoryKind { kDevice, kPinnedHost };

// Returns 256-byte aligned memory, or null if none is available.
void* AllocateMemory(size_t bytes, MemoryKind kind);
// Ends the process if p was not allocated or if its red zones were written.
void FreeMemory(void* p);

// True if [p, p + bytes) is within one live buffer of that kind.
bool IsMemory(const void* p, size_t bytes, MemoryKind kind);
// True if p points into a live device buffer.
bool IsDeviceAddress(const void* p);

struct MemoryRange {
  char* begin = nullptr;
  size_t bytes = 0;
  uint64_t id = 0;  // identifies the allocation: an address may be reused
};
// Return the live buffer (device buffer) that p points into; begin is null if there is none.
MemoryRange FindBuffer(const void* p);
MemoryRange FindDeviceBuffer(const void* p);

size_t AllocatedDeviceBytes();

}  // namespace kuiper::simt
