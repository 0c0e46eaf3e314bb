// CUDA C++ for an ordinary C++ compiler. A .cu file that includes kuiper/kernels/cuda/platform.h
// and is compiled with KUIPER_SIMT gets this header instead of the CUDA headers and runs on the
// CPU. CUDA's names are in kuiper::simt::dialect, so that a program may contain both compilations.
#pragma once

#include "emulator/half.h"
#include "emulator/intrinsics.h"
#include "emulator/machine.h"
#include "emulator/runtime.h"
#include "emulator/shared_memory.h"
#include "emulator/tensor_core.h"
#include "emulator/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

// Declares a shared variable: the same bytes for every thread of the block.
#define KU_SIMT_SHARED(name, ...)                                                            \
  static const char name##_key = 0;                                                          \
  auto& name = *static_cast<std::type_identity_t<__VA_ARGS__>*>(                             \
      ::kuiper::simt::SharedVariable(&name##_key, sizeof(std::type_identity_t<__VA_ARGS__>), \
                                     alignof(std::type_identity_t<__VA_ARGS__>)))

using namespace kuiper::simt::dialect;  // NOLINT(google-build-using-namespace): CUDA names are
                                        // global
