// Shared memory of the running block of the emulated device, and asynchronous copies into it.
// Bytes nobody has written read as 0xff, which is NaN in every floating point format; under
// AddressSanitizer only the variables of the running block may be touched.
#pragma once

#include <cstddef>

#include "emulator/machine.h"

namespace kuiper::simt {

// ---- called by the scheduler --------------------------------------------------------------------

// Fresh shared memory for the next block; with its variables at most `limit` bytes.
void BeginBlockMemory(size_t dynamic_bytes, size_t limit);
// After the last block: gives back what TSan builds kept apart.
void EndKernelMemory();
// Lands every outstanding copy of a thread that exits.
void FinishCopies(int thread);

// ---- called by the dialect ----------------------------------------------------------------------

// The variable that `key` stands for; its bytes are the same for every thread of the block.
void* SharedVariable(const void* key, size_t bytes, size_t align);
void* DynamicShared();
// Ends the process unless the bytes are shared memory and aligned for an access of that size.
void CheckSharedAddress(const void* p, size_t bytes, const Site& site);

// cp.async: between the start and the wait the destination holds 0xff. It gets `src_bytes` bytes of
// src and zeros after them at the latest when the thread waits for the copy's group.
void StartCopy(void* dst, const void* src, int dst_bytes, int src_bytes, const Site& site);
void CommitCopies();
void WaitCopies(int groups_left);

}  // namespace kuiper::simt
