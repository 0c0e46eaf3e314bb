// Host memory of the CPU backend, and how much memory is free.
#pragma once

#include <cstddef>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"

namespace kuiper::cpu {

// Allocates anonymous pages: zero-filled, page-aligned, and taking memory only once touched.
// kResourceExhausted if `bytes` is more than FreeMemory() or the OS refuses.
StatusOr<Buffer> AllocatePages(size_t bytes);
// Does what AllocatePages does, with huge pages where they fit and the system provides them. For
// memory that is used as a whole and read in order, which huge pages make faster.
StatusOr<Buffer> AllocateHugePages(size_t bytes);

// Allocates memory that is read in blocks. Large memory is in huge pages, because a block that is
// scattered over 4 KiB pages conflicts with itself in L2. BlocksSize returns the bytes it takes.
StatusOr<Buffer> AllocateBlocks(size_t bytes);
size_t BlocksSize(size_t bytes);

// Returns the bytes of a core's L2 cache, or half a MiB if the system does not report it.
size_t L2CacheBytes();

// Returns the bytes that were allocated here and not freed.
size_t AllocatedBytes();

// Returns MemAvailable of the machine, or what its control group (container) has left if that is
// less.
size_t FreeMemory();

}  // namespace kuiper::cpu
