// How a kernel begins. On GPUs from sm_90 on, blocks of a stream's next kernel may start and
// prefetch while the previous kernel still runs (programmatic dependent launch; launch.h enables
// it). So every kernel calls AwaitEarlierKernels(), in all its threads, before it accesses memory
// that another kernel writes. Before the call it may read weights and data that only uploads write:
// lengths, tables, positions, slots. This is safe because a kernel enqueued after a copy begins
// when the copy and all earlier work have ended; later kernels begin later still. Keys and values
// of earlier steps may also be read early if AttnMeta::appends says so. After the wait all earlier
// kernels have ended, not only the previous one, because that one has waited, too.
#pragma once

#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

// elementwise.cu: true if the current device runs kernels compiled for this and the driver supports
// capturing such launches.
bool KernelsBeginEarly();

// Waits for the earlier kernels. If a kernel never calls AllowNextKernel, as kernels that write
// weights do not, the next kernel begins when this one has ended.
__device__ __forceinline__ void AwaitEarlierKernelsOnly() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Allows the blocks of the next kernel to start.
__device__ __forceinline__ void AllowNextKernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// Allows the next kernel to start as well; it then waits for this one.
__device__ __forceinline__ void AwaitEarlierKernels() {
  AllowNextKernel();
  AwaitEarlierKernelsOnly();
}

}  // namespace kuiper::KU_GPU
