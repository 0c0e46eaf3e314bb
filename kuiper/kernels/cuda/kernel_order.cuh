// How a kernel begins. On GPUs from sm_90 on, blocks of the next kernel of a stream may come and
// read ahead while the one before it still runs (programmatic dependent launch; launch.h asks for
// it). So every kernel calls AwaitEarlierKernels(), in all its threads, before it reads or writes
// memory that another kernel writes. Before that it may read weights and what only uploads write:
// lengths, tables, positions, slots. A kernel behind a copy begins when the copy and all before it
// have ended, and the kernels behind it begin later still. Keys and values of earlier steps are
// such memory where AttnMeta::appends says so. A kernel that waits has all earlier kernels behind
// it, not just the last one, since that one has waited, too.
#pragma once

#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

// elementwise.cu: whether the current device runs kernels that were compiled for that.
bool KernelsBeginEarly();

// Waits. Where nothing lets the next kernel come, as in kernels that write weights, it begins when
// this one has ended.
__device__ __forceinline__ void AwaitEarlierKernelsAlone() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Lets the blocks of the next kernel come, too.
__device__ __forceinline__ void LetNextKernelCome() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// The next kernel begins as well, and then waits for this one.
__device__ __forceinline__ void AwaitEarlierKernels() {
  LetNextKernelCome();
  AwaitEarlierKernelsAlone();
}

}  // namespace kuiper::KU_GPU
