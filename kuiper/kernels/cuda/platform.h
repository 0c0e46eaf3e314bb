// The only header through which .cu files use CUDA. nvcc gets the CUDA headers. A compilation with
// KUIPER_SIMT gets the emulated device, so that the same file runs on the CPU (docs/simt.md).
//
// A kernel file puts everything into namespace kuiper::KU_GPU, which differs between the two, so
// that one program can contain both. Shared memory is declared with the macros below, because a
// bare __shared__ does not compile in both. PTX is used through async_copy.cuh, memory_access.cuh
// and mma.cuh, launches through launch.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(KUIPER_SIMT)

#include "emulator/dialect.h"

#define KU_GPU simt_gpu
// KU_SHARED(tile, float[32][33]); declares an uninitialised, 16-byte aligned shared variable.
#define KU_SHARED(name, ...) KU_SIMT_SHARED(name, __VA_ARGS__)
// KU_DYNAMIC_SHARED(float, base); names the dynamic shared memory of the launch, 16-byte aligned.
#define KU_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(::kuiper::simt::DynamicShared())

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define KU_GPU cuda
#define KU_SHARED(name, ...) __shared__ __align__(16) std::type_identity_t<__VA_ARGS__> name
#define KU_DYNAMIC_SHARED(T, name)                                       \
  extern __shared__ __align__(16) unsigned char kuiper_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(kuiper_dynamic_shared)

#endif
