// How a kernel begins. On GPUs from sm_90 on, the next kernel of a stream is set up and may read
// ahead what never changes while the one before it still runs (programmatic dependent launch;
// launch.h asks for it). So every kernel calls AwaitEarlierKernels(), in all its threads, before it
// reads or writes memory that any other kernel writes; only weights may be touched before. A kernel
// that waits has all earlier kernels behind it, not just the last one, since that one has waited,
// too.
#pragma once

#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

// elementwise.cu: whether the current device runs kernels that were compiled for that.
bool KernelsBeginEarly();

// For kernels that write weights: the next kernel begins when this one has ended.
__device__ __forceinline__ void AwaitEarlierKernelsAlone() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Lets the next kernel begin as well, which then waits for this one.
__device__ __forceinline__ void AwaitEarlierKernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
  AwaitEarlierKernelsAlone();
}

}  // namespace kuiper::KU_GPU
