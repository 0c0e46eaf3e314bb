// Kernels that use every wrapper of kernels/cuda once. They are compiled for the emulated device
// and, if nvcc is available, for a GPU. The same tests run on both, which compares the emulation of
// the tensor cores with the hardware. All pointers are to memory of that device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kuiper/base/half.h"

namespace kuiper::simt_test {

struct Wrappers {
  // Null if there is no device.
  void* (*allocate)(size_t bytes);
  void (*release)(void* p);
  void (*upload)(void* device, const void* host, size_t bytes);
  void (*download)(void* host, const void* device, size_t bytes);

  // out [grid, 128] = in [grid, 128], reversed within the block, moved by asynchronous copies;
  // values from num_valid on read as zero.
  void (*reverse_async)(float* out, const float* in, int grid, int num_valid);
  // d [16, 8] += a [16, 16] * b through shared memory, ldmatrix and mma; b is stored as [8, 16], or
  // as [16, 8] if `transposed`.
  void (*multiply_half)(float* d, const Half* a, const Half* b, bool transposed);
  void (*multiply_bfloat16)(float* d, const BFloat16* a, const BFloat16* b, bool transposed);
  // Registers of every lane after ldmatrix of four matrices, twice: in [2, 32, 8], out [2, 4, 32].
  void (*load_matrices)(uint32_t* out, const uint16_t* in, bool transposed);
  // Sum of n values over the blocks of a grid, finished by the last to arrive; partial [grid],
  // ticket [1] is 0 before and after. `fence` false leaves out a fence that is needed.
  void (*grid_sum)(float* out, float* partial, unsigned* ticket, const float* in, int n, int grid,
                   bool fence);
  // out [n] = a [n] * b [n] + c [n] of packed pairs, n at most 1024.
  void (*fma_pairs_half)(uint32_t* out, const uint32_t* a, const uint32_t* b, const uint32_t* c,
                         int n);
  void (*fma_pairs_bfloat16)(uint32_t* out, const uint32_t* a, const uint32_t* b, const uint32_t* c,
                             int n);
  // out [n] = 2 * in [n] with 100 KB of shared memory and streamed loads; n a multiple of 4.
  void (*double_in_shared)(float* out, const float* in, int n);
};

}  // namespace kuiper::simt_test

namespace kuiper::simt_gpu {
simt_test::Wrappers GetWrappers();
}
namespace kuiper::cuda {
simt_test::Wrappers GetWrappers();
}
