// The vector types of CUDA, with its names, layout and alignment.
#pragma once

#include <cstdint>

namespace kuiper::simt::dialect {

#define KU_SIMT_VECTOR(name, T)                                     \
  struct alignas(2 * sizeof(T)) name##2 {                           \
    T x, y;                                                         \
  };                                                                \
  struct name##3 {                                                  \
    T x, y, z;                                                      \
  };                                                                \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { \
    T x, y, z, w;                                                   \
  };                                                                \
  inline name##2 make_##name##2(T x, T y) {                         \
    return {x, y};                                                  \
  }                                                                 \
  inline name##3 make_##name##3(T x, T y, T z) {                    \
    return {x, y, z};                                               \
  }                                                                 \
  inline name##4 make_##name##4(T x, T y, T z, T w) {               \
    return {x, y, z, w};                                            \
  }

KU_SIMT_VECTOR(char, int8_t)
KU_SIMT_VECTOR(uchar, uint8_t)
KU_SIMT_VECTOR(short, int16_t)
KU_SIMT_VECTOR(ushort, uint16_t)
KU_SIMT_VECTOR(int, int32_t)
KU_SIMT_VECTOR(uint, uint32_t)
KU_SIMT_VECTOR(longlong, long long)            // NOLINT(google-runtime-int)
KU_SIMT_VECTOR(ulonglong, unsigned long long)  // NOLINT(google-runtime-int)
KU_SIMT_VECTOR(float, float)
KU_SIMT_VECTOR(double, double)
#undef KU_SIMT_VECTOR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)  // NOLINT
      : x(x_), y(y_), z(z_) {}
};

// Set by the scheduler whenever it resumes a thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

}  // namespace kuiper::simt::dialect
