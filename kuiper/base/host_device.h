// KU_HOST_DEVICE marks a function that both kernels and the host call.
#pragma once

#if defined(__CUDACC__)
#define KU_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KU_HOST_DEVICE inline
#endif
