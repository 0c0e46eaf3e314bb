// Global memory accesses with a cache hint; the hint never changes the values.
#pragma once

#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

// Loads 16 bytes that are read once and stay constant while the kernel runs (weights), bypassing
// L1. Volatile, so that the compiler does not move the load after later code.
__device__ __forceinline__ uint4 LoadStreamed(const void* p) {
#if defined(KUIPER_SIMT)
  return *static_cast<const uint4*>(p);
#else
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
#endif
}

}  // namespace kuiper::KU_GPU
