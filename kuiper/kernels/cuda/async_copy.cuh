// cp.async: copies from global to shared memory that run while the thread computes. Use:
//   CopyAsync(&tile[i], src);   Starts a copy; both addresses are aligned to the bytes copied.
//   CommitCopies();             Makes the copies since the last call one group.
//   WaitCopies<1>();            Waits until all groups but the newest are complete for THIS thread.
//   __syncthreads();            Makes them visible to the other threads.
// The destination is undefined from CopyAsync to WaitCopies. Before CopyAsync, all threads must
// have finished reading its old contents. A thread waits for all its groups before it exits.
#pragma once

#include <cstdint>

#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

#if defined(KUIPER_SIMT)

// Copies 16 or 8 bytes.
template <int kBytes = 16>
void CopyAsync(void* shared, const void* global, KU_SIMT_SITE) {
  static_assert(kBytes == 16 || kBytes == 8);
  ::kuiper::simt::StartCopy(shared, global, kBytes, kBytes, {"CopyAsync", file_, line_});
}
// Copies 16 bytes if `valid`, else writes zeros; `global` is then not read but must be aligned.
inline void CopyAsyncOrZero(void* shared, const void* global, bool valid, KU_SIMT_SITE) {
  ::kuiper::simt::StartCopy(shared, global, 16, valid ? 16 : 0, {"CopyAsyncOrZero", file_, line_});
}
inline void CommitCopies() {
  ::kuiper::simt::CommitCopies();
}
template <int kGroupsLeft>
void WaitCopies() {
  static_assert(kGroupsLeft >= 0);
  ::kuiper::simt::WaitCopies(kGroupsLeft);
}

#else

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Bypasses L1, leaving it to other data.
__device__ __forceinline__ void CopyAsyncOrZero(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
// Only copies of 16 bytes can bypass L1.
template <int kBytes = 16>
__device__ __forceinline__ void CopyAsync(void* shared, const void* global) {
  static_assert(kBytes == 16 || kBytes == 8);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(SharedAddress(shared)),
                 "l"(global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n" ::"r"(SharedAddress(shared)),
                 "l"(global)
                 : "memory");
  }
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int kGroupsLeft>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroupsLeft) : "memory");
}

#endif

}  // namespace kuiper::KU_GPU
