// Launch<kernel>(grid, block, shared_bytes, stream, args...) starts every kernel, instead of
// <<<>>>: the emulated device gets the kernel's name from its type. Arguments are converted to the
// kernel's parameter types and copied at once. A shape that the device refuses is a bug and ends
// the process, except in ComputeDevice::Capture and Enqueue, which return the error.
//
// A kernel that needs more than 48 KB of shared memory calls AllowSharedMemory(kernel, bytes) once
// before its first launch. Blocks may run in any order and one at a time, so a kernel must not wait
// for another block (the last block to arrive may finish the work). A kernel may be started before
// the previous one has ended, so it begins as kernel_order.cuh requires.
#pragma once

#include <cstddef>
#include <utility>

#include "kuiper/kernels/cuda/cuda_check.h"
#include "kuiper/kernels/cuda/kernel_order.cuh"
#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

template <auto kKernel, typename... A>
void Launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A&&... args) {
#if defined(KUIPER_SIMT)
  KU_CUDA_TRY(::kuiper::simt::LaunchKernel<kKernel>({grid, block, shared_bytes}, stream,
                                                    std::forward<A>(args)...));
#else
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute begins_early{};
  begins_early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  begins_early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &begins_early;
  config.numAttrs = KernelsBeginEarly() ? 1 : 0;
  KU_CUDA_TRY(cudaLaunchKernelEx(&config, kKernel, std::forward<A>(args)...));
#endif
}

template <typename... P>
void AllowSharedMemory(void (*kernel)(P...), size_t bytes) {
  KU_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
}

}  // namespace kuiper::KU_GPU
