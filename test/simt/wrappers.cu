#include "kuiper/kernels/cuda/async_copy.cuh"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/memory_access.cuh"
#include "kuiper/kernels/cuda/mma.cuh"
#include "kuiper/kernels/cuda/platform.h"
#include "test/simt/wrappers.h"

namespace kuiper::KU_GPU {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

// Block of 16 threads, each moving 8 values.
__global__ void ReverseAsyncKernel(float* out, const float* in, int num_valid) {
  KU_SHARED(tile, float[128]);
  AwaitEarlierKernels();
  const int t = static_cast<int>(threadIdx.x), base = static_cast<int>(blockIdx.x) * 128;
  const float* src = in + base + 8 * t;
  const bool valid = base + 8 * t < num_valid;
  CopyAsyncOrZero(&tile[8 * t], valid ? src : in, valid);
  CommitCopies();
  if (valid && t % 2 == 0) {
    CopyAsync(&tile[8 * t + 4], src + 4);
  } else if (valid) {
    CopyAsync<8>(&tile[8 * t + 4], src + 4);
    CopyAsync<8>(&tile[8 * t + 6], src + 6);
  } else {
    for (int i = 4; i < 8; ++i) tile[8 * t + i] = 0;
  }
  CommitCopies();
  WaitCopies<1>();
  const float first = tile[8 * t];  // own copies of the older group are complete
  WaitCopies<0>();
  __syncthreads();
  for (int i = 0; i < 8; ++i) out[base + 127 - (8 * t + i)] = i == 0 ? first : tile[8 * t + i];
}

template <typename T>
__global__ void __launch_bounds__(32)
    MultiplyTileKernel(float* d, const T* a, const T* b, bool transposed) {
  KU_SHARED(a_tile, T[16][16 + 8]);
  KU_SHARED(b_tile, T[16][16 + 8]);
  AwaitEarlierKernels();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) a_tile[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) {
    if (transposed) {
      b_tile[i / 8][i % 8] = b[i];  // [k][n]
    } else {
      b_tile[i / 16][i % 16] = b[i];  // [n][k]
    }
  }
  __syncwarp();
  uint32_t af[4], bf[4];
  LoadMatrix(af, &a_tile[lane % 16][lane / 16 * 8]);
  if (transposed) {
    LoadMatrixTransposed(bf, &b_tile[lane % 16][0]);
  } else {
    LoadMatrix(bf, &b_tile[lane % 8][lane / 8 % 2 * 8]);
  }
  float acc[4];
  const auto element = [&](int r) { return (lane / 4 + 8 * (r / 2)) * 8 + 2 * (lane % 4) + r % 2; };
  for (int r = 0; r < 4; ++r) acc[r] = d[element(r)];
  Mma<T>(acc, af, {bf[0], bf[1]});
  for (int r = 0; r < 4; ++r) d[element(r)] = acc[r];
}

// Uses one tile twice in a loop: a load must stay between the barriers around it.
template <bool kTransposed>
__device__ void LoadTwice(uint32_t* out, const uint16_t* in, uint16_t (&tile)[32][8], int lane) {
#pragma unroll 1
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 8; ++i) tile[lane][i] = in[256 * n + 8 * lane + i];
    __syncwarp();
    uint32_t r[4];
    if constexpr (kTransposed) {
      LoadMatrixTransposed(r, tile[lane]);
    } else {
      LoadMatrix(r, tile[lane]);
    }
    for (int i = 0; i < 4; ++i) out[32 * (4 * n + i) + lane] = r[i];
    __syncwarp();
  }
}

__global__ void LoadTilesKernel(uint32_t* out, const uint16_t* in, bool transposed) {
  KU_SHARED(tile, uint16_t[32][8]);
  AwaitEarlierKernels();
  const int lane = static_cast<int>(threadIdx.x);
  if (transposed) {
    LoadTwice<true>(out, in, tile, lane);
  } else {
    LoadTwice<false>(out, in, tile, lane);
  }
}

template <typename T>
__global__ void FmaPairsKernel(uint32_t* out, const uint32_t* a, const uint32_t* b,
                               const uint32_t* c) {
  AwaitEarlierKernels();
  const int i = static_cast<int>(threadIdx.x);
  out[i] = FmaPairs<T>(a[i], b[i], c[i]);
}

__global__ void GridSumKernel(float* out, float* partial, unsigned* ticket, const float* in, int n,
                              bool fence) {
  KU_SHARED(is_last, bool);
  AwaitEarlierKernels();
  float sum = 0;
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += threads)
    sum += in[i];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(kAllLanes, sum, d);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    if (fence) __threadfence();
    is_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    if (fence) __threadfence();
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  float total = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
  *out = total;
  *ticket = 0;
}

__global__ void DoubleKernel(float* out, const float* in, int n) {
  KU_DYNAMIC_SHARED(float, buffer);
  AwaitEarlierKernels();
  for (int i = 4 * static_cast<int>(threadIdx.x); i < n; i += 4 * static_cast<int>(blockDim.x)) {
    const uint4 v = LoadStreamed(in + i);
    buffer[i] = 2 * __uint_as_float(v.x);
    buffer[i + 1] = 2 * __uint_as_float(v.y);
    buffer[i + 2] = 2 * __uint_as_float(v.z);
    buffer[i + 3] = 2 * __uint_as_float(v.w);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    out[i] = buffer[i];
}

void* Allocate(size_t bytes) {
  void* p = nullptr;
  return cudaMalloc(&p, bytes) == cudaSuccess ? p : nullptr;
}

void Release(void* p) {
  KU_CUDA_CHECK(cudaFree(p));
}

void Upload(void* device, const void* host, size_t bytes) {
  KU_CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

void Download(void* host, const void* device, size_t bytes) {
  KU_CUDA_CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

template <auto kKernel, typename... A>
void Run(int grid, int block, size_t shared_bytes, A... args) {
  Launch<kKernel>(dim3(static_cast<unsigned>(grid)), dim3(static_cast<unsigned>(block)),
                  shared_bytes, nullptr, args...);
  KU_CUDA_CHECK(cudaDeviceSynchronize());
}

void ReverseAsync(float* out, const float* in, int grid, int num_valid) {
  Run<ReverseAsyncKernel>(grid, 16, 0, out, in, num_valid);
}

template <typename T>
void MultiplyTile(float* d, const T* a, const T* b, bool transposed) {
  Run<MultiplyTileKernel<T>>(1, 32, 0, d, a, b, transposed);
}

void LoadTiles(uint32_t* out, const uint16_t* in, bool transposed) {
  Run<LoadTilesKernel>(1, 32, 0, out, in, transposed);
}

template <typename T>
void FmaOfPairs(uint32_t* out, const uint32_t* a, const uint32_t* b, const uint32_t* c, int n) {
  Run<FmaPairsKernel<T>>(1, n, 0, out, a, b, c);
}

void GridSum(float* out, float* partial, unsigned* ticket, const float* in, int n, int grid,
             bool fence) {
  Run<GridSumKernel>(grid, 32, 0, out, partial, ticket, in, n, fence);
}

void DoubleInShared(float* out, const float* in, int n) {
  constexpr size_t kBytes = 100 * 1024;
  AllowSharedMemory(DoubleKernel, kBytes);
  Run<DoubleKernel>(1, 64, kBytes, out, in, n);
}

}  // namespace

simt_test::Wrappers GetWrappers() {
  return {Allocate,
          Release,
          Upload,
          Download,
          ReverseAsync,
          MultiplyTile<Half>,
          MultiplyTile<BFloat16>,
          LoadTiles,
          GridSum,
          FmaOfPairs<Half>,
          FmaOfPairs<BFloat16>,
          DoubleInShared};
}

}  // namespace kuiper::KU_GPU
