// Helpers of all kernels: conversions between element types and FP32, rows of a matrix whose type
// is known at run time, vector loads and block reductions in a fixed order.
#pragma once

#include "kuiper/base/dtype.h"
#include "kuiper/base/float8.h"
#include "kuiper/base/half.h"
#include "kuiper/kernels/common/int8_row.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/kv_format.h"

namespace kuiper::KU_GPU {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kWarpSize = 32;

__device__ __forceinline__ float Widen(float x) {
  return x;
}
__device__ __forceinline__ float Widen(Half x) {
  return __half2float(__ushort_as_half(x.bits));
}
__device__ __forceinline__ float Widen(BFloat16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
// Converts FP8 values in the upper bytes of 16-bit halves, whose lower bytes are zero, to bits of
// FP16. E5M2 is the upper half of an FP16. E4M3 results are too small by the factor kElementScale;
// NaN stays NaN.
__device__ __forceinline__ uint32_t HalvesOf(uint32_t codes, Float8E5M2) {
  return codes;
}
__device__ __forceinline__ uint32_t HalvesOf(uint32_t codes, Float8E4M3) {
  const uint32_t magnitude = codes & 0x7F007F00u;
  const uint32_t nan = (magnitude + 0x01000100u) & 0x80008000u;
  return (codes & 0x80008000u) | magnitude >> 1 | (nan - (nan >> 5));  // 0x8000 - 0x400 = 0x7C00
}
// Elements of the KV cache, not yet multiplied by kElementScale.
__device__ __forceinline__ float Widen(int8_t x) {
  return static_cast<float>(x);
}
__device__ __forceinline__ float Widen(Float8E4M3 x) {
  return Widen(Half{static_cast<uint16_t>(HalvesOf(static_cast<uint32_t>(x.bits) << 8, x))});
}
__device__ __forceinline__ float Widen(Float8E5M2 x) {
  return Widen(Half{static_cast<uint16_t>(x.bits << 8)});
}

template <typename T>
struct Narrow;
template <>
struct Narrow<float> {
  static __device__ __forceinline__ float From(float x) { return x; }
};
template <>
struct Narrow<Half> {
  static __device__ __forceinline__ Half From(float x) {
    return Half{__half_as_ushort(__float2half_rn(x))};
  }
};
template <>
struct Narrow<BFloat16> {
  static __device__ __forceinline__ BFloat16 From(float x) {
    return BFloat16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  }
};
template <>
struct Narrow<Float8E4M3> {
  static __device__ __forceinline__ Float8E4M3 From(float x) { return ToFloat8E4M3(x); }
};
template <>
struct Narrow<Float8E5M2> {
  static __device__ __forceinline__ Float8E5M2 From(float x) { return ToFloat8E5M2(x); }
};

// Elements of T that a thread loads at once: 16 bytes, or 8 bytes for one-byte elements.
template <typename T>
constexpr int kVector = sizeof(T) == 1 ? 8 : 16 / static_cast<int>(sizeof(T));
template <typename T>
constexpr int kVectorBytes = kVector<T>* static_cast<int>(sizeof(T));

// Unpacks 16 bytes into 8 (FP32: 4) values.
__device__ __forceinline__ void Unpack(const uint4& raw, float (&v)[4], float) {
  v[0] = __uint_as_float(raw.x);
  v[1] = __uint_as_float(raw.y);
  v[2] = __uint_as_float(raw.z);
  v[3] = __uint_as_float(raw.w);
}
template <typename T>
__device__ __forceinline__ void Unpack(const uint4& raw, float (&v)[8], T) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = Widen(T{static_cast<uint16_t>(words[i])});
    v[2 * i + 1] = Widen(T{static_cast<uint16_t>(words[i] >> 16)});
  }
}

// Unpacks four one-byte values.
template <typename T>
__device__ __forceinline__ void UnpackCodes(uint32_t codes, float* v, T type) {
  const uint32_t even = HalvesOf(codes << 8 & 0xFF00FF00u, type);
  const uint32_t odd = HalvesOf(codes & 0xFF00FF00u, type);
  v[0] = Widen(Half{static_cast<uint16_t>(even)});
  v[1] = Widen(Half{static_cast<uint16_t>(odd)});
  v[2] = Widen(Half{static_cast<uint16_t>(even >> 16)});
  v[3] = Widen(Half{static_cast<uint16_t>(odd >> 16)});
}
__device__ __forceinline__ void UnpackCodes(uint32_t codes, float* v, int8_t) {
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = Widen(static_cast<int8_t>(codes >> (8 * i)));
}

template <typename T>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  return static_cast<uint32_t>(Narrow<T>::From(low).bits) |
         static_cast<uint32_t>(Narrow<T>::From(high).bits) << 16;
}

// Loads kCount values from p: one load of kVectorBytes if kCount fills it, otherwise single
// elements.
template <typename T, int kCount>
__device__ __forceinline__ void LoadValues(const T* p, float (&v)[kCount]) {
  if constexpr (kCount == kVector<T> && sizeof(T) == 1) {
    const uint2 raw = *reinterpret_cast<const uint2*>(p);
    UnpackCodes(raw.x, v, T{});
    UnpackCodes(raw.y, v + 4, T{});
  } else if constexpr (kCount == kVector<T>) {
    Unpack(*reinterpret_cast<const uint4*>(p), v, T{});
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = Widen(p[i]);
  }
}

// Elements of rows of the KV cache, not yet multiplied by Scale().
template <typename T>
__device__ __forceinline__ float LoadElement(KvRow<T> row, int i) {
  return Widen(row.data[i]);
}
template <typename T, int kCount>
__device__ __forceinline__ void LoadValues(KvRow<T> row, int i, float (&v)[kCount]) {
  LoadValues(row.data + i, v);
}
// Stores, in a float format, a head that a warp holds as pairs (i, i + half): lane l has pairs l, l
// + 32, ... in `low` and `high`.
template <typename T, int kPairs>
__device__ __forceinline__ void StoreHead(KvRow<T> row, int half, int lane,
                                          const float (&low)[kPairs], const float (&high)[kPairs]) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + j * kWarpSize;
    if (i >= half) continue;
    row.data[i] = Narrow<T>::From(low[j]);
    row.data[half + i] = Narrow<T>::From(high[j]);
  }
}

// A matrix argument of a kernel. `vectors`: rows are 16-byte aligned, so chunks of 8 elements are
// moved with vector instructions.
struct MatrixArg {
  char* data = nullptr;
  int64_t row_bytes = 0;
  DType dtype = DType::kF32;
  bool vectors = false;

  __device__ __forceinline__ char* Row(int64_t row) const { return data + row * row_bytes; }
};

__device__ __forceinline__ float LoadAny(const void* p, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF16:
      return Widen(static_cast<const Half*>(p)[i]);
    case DType::kBF16:
      return Widen(static_cast<const BFloat16*>(p)[i]);
    default:
      return static_cast<const float*>(p)[i];
  }
}

__device__ __forceinline__ void StoreAny(void* p, DType dtype, int64_t i, float x) {
  switch (dtype) {
    case DType::kF16:
      static_cast<Half*>(p)[i] = Narrow<Half>::From(x);
      break;
    case DType::kBF16:
      static_cast<BFloat16*>(p)[i] = Narrow<BFloat16>::From(x);
      break;
    default:
      static_cast<float*>(p)[i] = x;
  }
}

// Loads elements [i, i + 8) of a row, zeros from element n on. i is a multiple of 8.
__device__ __forceinline__ void LoadChunk(const void* row, DType dtype, bool vectors, int i, int n,
                                          float (&v)[8]) {
  if (vectors && i + 8 <= n) {
    if (dtype == DType::kF32) {
      float half[4];
      const uint4* p = reinterpret_cast<const uint4*>(static_cast<const float*>(row) + i);
      Unpack(p[0], half, 0.0f);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = half[j];
      Unpack(p[1], half, 0.0f);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[4 + j] = half[j];
    } else {
      const uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(row) + i);
      if (dtype == DType::kF16) {
        Unpack(raw, v, Half{});
      } else {
        Unpack(raw, v, BFloat16{});
      }
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = i + j < n ? LoadAny(row, dtype, i + j) : 0.0f;
}

__device__ __forceinline__ void StoreChunk(void* row, DType dtype, bool vectors, int i, int n,
                                           const float (&v)[8]) {
  if (vectors && i + 8 <= n) {
    if (dtype == DType::kF32) {
      float4* p = reinterpret_cast<float4*>(static_cast<float*>(row) + i);
      p[0] = make_float4(v[0], v[1], v[2], v[3]);
      p[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
      uint4* p = reinterpret_cast<uint4*>(static_cast<uint16_t*>(row) + i);
      if (dtype == DType::kF16) {
        *p = make_uint4(PackPair<Half>(v[0], v[1]), PackPair<Half>(v[2], v[3]),
                        PackPair<Half>(v[4], v[5]), PackPair<Half>(v[6], v[7]));
      } else {
        *p = make_uint4(PackPair<BFloat16>(v[0], v[1]), PackPair<BFloat16>(v[2], v[3]),
                        PackPair<BFloat16>(v[4], v[5]), PackPair<BFloat16>(v[6], v[7]));
      }
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (i + j < n) StoreAny(row, dtype, i + j, v[j]);
  }
}

// Stores elements [i, i + 8) of a row of the KV cache in a float format, up to element n.
template <typename T>
__device__ __forceinline__ void StoreChunk(KvRow<T> row, bool vectors, int i, int n,
                                           const float (&v)[8]) {
  if constexpr (sizeof(T) > 1) {
    StoreChunk(row.data, DTypeOf<T>::value, vectors, i, n, v);
  } else if (vectors && i + 8 <= n) {
    const auto pack = [&](int at) {
      uint32_t codes = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        codes |= static_cast<uint32_t>(Narrow<T>::From(v[at + j]).bits) << (8 * j);
      }
      return codes;
    };
    *reinterpret_cast<uint2*>(row.data + i) = make_uint2(pack(0), pack(4));
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (i + j < n) row.data[i + j] = Narrow<T>::From(v[j]);
    }
  }
}

// Butterfly reductions: every lane gets the same result, in a fixed order.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(kFullWarp, x, offset);
  }
  return x;
}
__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, offset));
  }
  return x;
}
__device__ __forceinline__ uint32_t WarpMax(uint32_t x) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const uint32_t other = __shfl_xor_sync(kFullWarp, x, offset);
    x = x > other ? x : other;
  }
  return x;
}

// Returns the bits of |x|, the input of CodeScaleOf.
__device__ __forceinline__ uint32_t MagnitudeBits(float x) {
  return __float_as_uint(x) & 0x7FFFFFFFu;
}
__device__ __forceinline__ int8_t NarrowInt8(float x, float inverse) {
  return static_cast<int8_t>(__float2int_rn(x * inverse));
}
// StoreHead in INT8, with the row's scale. Pairs past the end of the head must be zeros.
template <int kPairs>
__device__ __forceinline__ void StoreHead(KvRow<int8_t> row, int half, int lane,
                                          const float (&low)[kPairs], const float (&high)[kPairs]) {
  uint32_t max = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const uint32_t a = MagnitudeBits(low[j]), b = MagnitudeBits(high[j]);
    max = max > a ? max : a;
    max = max > b ? max : b;
  }
  const CodeScale scale = CodeScaleOf(WarpMax(max), kMaxInt8);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = lane + j * kWarpSize;
    if (i >= half) continue;
    row.data[i] = NarrowInt8(low[j], scale.inverse);
    row.data[half + i] = NarrowInt8(high[j], scale.inverse);
  }
  if (lane == 0) *row.scale = scale.scale;
}

// Sum (maximum) over a block of at most 32 whole warps; the warps' results are combined in
// ascending order. `shared` holds 32 floats and may be reused after the next barrier.
__device__ __forceinline__ float BlockSum(float x, float* shared) {
  x = WarpSum(x);
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  float sum = shared[0];
  for (int w = 1; w < warps; ++w) sum += shared[w];
  return sum;
}
__device__ __forceinline__ float BlockMax(float x, float* shared) {
  x = WarpMax(x);
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  float max = shared[0];
  for (int w = 1; w < warps; ++w) max = fmaxf(max, shared[w]);
  return max;
}

}  // namespace kuiper::KU_GPU
