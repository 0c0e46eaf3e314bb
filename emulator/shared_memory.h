// Shared memory of the running block of the emulated device, and asynchronous copies into it. Bytes
// that were never written read as 0xff, which is NaN in every floating point format. Under
// AddressSanitizer only the variables of the running block may be accessed.
#pragma once

#include <cstddef>

#include "emulator/machine.h"

namespace kuiper::simt {

// ---- called by the scheduler --------------------------------------------------------------------

// Provides fresh shared memory for the next block, at most `limit` bytes including its variables.
void BeginBlockMemory(size_t dynamic_bytes, size_t limit);
// Call after the last block: releases the memory that TSan builds kept for each block.
void EndKernelMemory();
// Completes every outstanding copy of a thread that exits.
void FinishCopies(int thread);

// ---- called by the dialect ----------------------------------------------------------------------

// Returns the variable identified by `key`; every thread of the block gets the same bytes.
void* SharedVariable(const void* key, size_t bytes, size_t align);
void* DynamicShared();
// Ends the process unless the bytes are shared memory and aligned for an access of that size.
void CheckSharedAddress(const void* p, size_t bytes, const Site& site);

// cp.async: from the start to the wait the destination holds 0xff. At the latest when the thread
// waits for the copy's group, it receives `src_bytes` bytes of src followed by zeros.
void StartCopy(void* dst, const void* src, int dst_bytes, int src_bytes, const Site& site);
void CommitCopies();
void WaitCopies(int groups_left);

}  // namespace kuiper::simt
