// Host memory of the CPU backend: lazily touched pages of the OS, and how much is left.
#pragma once

#include <cstddef>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"

namespace kuiper::cpu {

// Anonymous pages: zero bytes, page-aligned, they cost memory only when touched.
// kResourceExhausted when `bytes` is more than FreeMemory() or the OS refuses.
StatusOr<Buffer> AllocatePages(size_t bytes);

// MemAvailable of the machine, or what the control group (container) has left if that is less.
size_t FreeMemory();

}  // namespace kuiper::cpu
