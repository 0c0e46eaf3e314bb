// Host memory of the CPU backend, and how much is left.
#pragma once

#include <cstddef>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"

namespace kuiper::cpu {

// Anonymous pages: zero bytes, page-aligned, they cost memory only when touched.
// kResourceExhausted when `bytes` is more than FreeMemory() or the OS refuses.
StatusOr<Buffer> AllocatePages(size_t bytes);
// The same in huge pages, as many as fit and the system gives: for memory that is used as a whole
// and read in order, which huge pages make faster.
StatusOr<Buffer> AllocateHugePages(size_t bytes);

// Memory that is read in blocks: in huge pages if it is large, because a block that is scattered
// over 4 KiB pages conflicts with itself in L2. BlocksSize is what it takes.
StatusOr<Buffer> AllocateBlocks(size_t bytes);
size_t BlocksSize(size_t bytes);

// Bytes of a core's L2 cache, or half a MiB where the system does not say.
size_t L2CacheBytes();

// Bytes that were given out here and not freed.
size_t AllocatedBytes();

// MemAvailable of the machine, or what the control group (container) has left if that is less.
size_t FreeMemory();

}  // namespace kuiper::cpu
