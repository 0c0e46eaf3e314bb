#include "kuiper/kernels/cuda/async_copy.cuh"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/mma.cuh"
#include "kuiper/kernels/cuda/platform.h"
#include "test/simt/broken.h"

namespace kuiper::KU_GPU {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

__global__ void ReadPastBufferKernel(float* out, const float* in, int n, bool fixed) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n || (i == n && !fixed)) out[0] = in[i];
}

__global__ void WritePastBufferKernel(float* out, int n, bool fixed) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n || (i == n && !fixed)) out[i] = 1;
}

__global__ void ReadPastSharedVariableKernel(float* out, bool fixed) {
  KU_SHARED(a, float[32]);
  const unsigned t = threadIdx.x;
  a[t] = 1;
  __syncthreads();
  const float* next = a + t + 1;
  out[t] = t < 31 || !fixed ? *next : 0.0f;
}

__global__ void ReadPastDynamicSharedKernel(float* out) {
  KU_DYNAMIC_SHARED(float, a);
  a[threadIdx.x] = 1;
  out[threadIdx.x] = a[threadIdx.x];
}

__global__ void CopyAsyncPastBufferKernel(float* out, const float* in, int n, bool fixed) {
  KU_SHARED(a, float[128]);
  const int i = 4 * static_cast<int>(threadIdx.x);
  CopyAsyncOrZero(&a[i], in + (fixed && i >= n ? 0 : i), i < n || !fixed);
  CommitCopies();
  WaitCopies<0>();
  out[threadIdx.x] = a[i];
}

__global__ void ReverseKernel(float* out, const float* in, bool fixed) {
  KU_SHARED(a, float[256]);
  a[threadIdx.x] = in[threadIdx.x];
  if (fixed) __syncthreads();
  out[threadIdx.x] = a[255 - threadIdx.x];
}

__global__ void LeftNeighbourKernel(float* out, const float* in, bool fixed) {
  KU_SHARED(a, float[256]);
  a[threadIdx.x] = in[threadIdx.x];
  if (fixed) __syncthreads();
  out[threadIdx.x] = threadIdx.x > 0 ? a[threadIdx.x - 1] : in[0];
}

// The second round overwrites data that other threads may still read.
__global__ void ReuseKernel(float* out, bool fixed) {
  KU_SHARED(a, float[128]);
  float v = static_cast<float>(threadIdx.x);
  for (int i = 0; i < 2; ++i) {
    a[threadIdx.x] = v;
    __syncthreads();
    v += a[(threadIdx.x + 64) % 128];
    if (fixed) __syncthreads();
  }
  out[threadIdx.x] = v;
}

__global__ void ExchangeKernel(float* out, bool fixed) {
  KU_SHARED(a, float[32]);
  a[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (fixed) __syncwarp();
  out[threadIdx.x] = a[threadIdx.x ^ 1];
}

__global__ void AddKernel(float* out, bool fixed) {
  KU_SHARED(sum, float);
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (fixed) {
    atomicAdd(&sum, 1.0f);
  } else {
    sum += 1.0f;
  }
  __syncthreads();
  if (threadIdx.x == 0) *out = sum;
}

__global__ void BlocksKernel(float* out, bool fixed) {
  out[threadIdx.x + (fixed ? blockIdx.x * blockDim.x : 0)] = 7.0f;
}

__global__ void LoadMatrixOrderKernel(float* out, bool fixed) {
  KU_SHARED(a, uint16_t[8][8]);
  for (unsigned i = threadIdx.x; i < 64; i += 32) a[i / 8][i % 8] = static_cast<uint16_t>(i);
  if (fixed) __syncwarp();
  uint32_t r[4];
  LoadMatrix(r, a[threadIdx.x % 8]);
  out[threadIdx.x] = static_cast<float>(r[0] & 0xffffu);
}

__global__ void CopyWaitKernel(float* out, const float* in, bool fixed) {
  KU_SHARED(a, float[128]);
  const unsigned i = 4 * threadIdx.x;
  CopyAsync(&a[i], in + i);
  CommitCopies();
  if (fixed) WaitCopies<0>();
  __syncthreads();
  for (unsigned j = 0; j < 4; ++j) out[i + j] = a[i + j];
}

__global__ void OthersCopyKernel(float* out, const float* in, bool fixed) {
  KU_SHARED(a, float[128]);
  const unsigned i = 4 * threadIdx.x;
  CopyAsync(&a[i], in + i);
  CommitCopies();
  WaitCopies<0>();
  if (fixed) __syncthreads();
  for (unsigned j = 0; j < 4; ++j) out[i + j] = a[(i + j + 4) % 128];
}

// The copy of the next tile starts while other threads may still read this one.
__global__ void CopyIntoUsedKernel(float* out, const float* in, bool fixed) {
  KU_SHARED(a, float[128]);
  const unsigned i = 4 * threadIdx.x;
  for (unsigned j = 0; j < 4; ++j) a[i + j] = in[i + j];
  __syncthreads();
  for (unsigned j = 0; j < 4; ++j) out[i + j] = a[127 - i - j];
  if (fixed) __syncthreads();
  CopyAsync(&a[i], in + 128 + i);
  CommitCopies();
  WaitCopies<0>();
}

__global__ void UninitialisedKernel(float* out, bool fixed) {
  KU_SHARED(a, float[32]);
  if (threadIdx.x < 31 || fixed) a[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = a[threadIdx.x];
}

__global__ void DivergentBarrierKernel(float* out, bool fixed) {
  if (threadIdx.x < 16 || fixed) __syncthreads();
  out[threadIdx.x] = __shfl_sync(kAllLanes, 1.0f, 0);
}

__global__ void TwoLinesKernel(float* out, bool fixed) {
  if (threadIdx.x < 16 || fixed) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void DivergentShuffleKernel(float* out, bool fixed) {
  if (threadIdx.x % 2 == 0 || fixed) {
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0f, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 2.0f, 1);
  }
}

__global__ void ForeignMaskKernel(float* out, bool fixed) {
  out[threadIdx.x] = __shfl_sync(fixed ? kAllLanes : 0x0000ffffu, 1.0f, 0);
}

__global__ void MisalignedKernel(float* out, bool fixed) {
  KU_SHARED(a, uint16_t[8][12]);
  for (unsigned i = threadIdx.x; i < 96; i += 32) a[i / 12][i % 12] = 1;
  __syncwarp();
  uint32_t r[4];
  const unsigned row = threadIdx.x % 8;  // rows are 24 bytes apart
  LoadMatrix(r, fixed ? &a[0][0] + row / 2 * 24 : a[row]);
  out[threadIdx.x] = static_cast<float>(r[0]);
}

__global__ void FromGlobalKernel(float* out, const float* in, bool fixed) {
  KU_SHARED(a, float[8][4]);
  a[threadIdx.x / 4][threadIdx.x % 4] = in[threadIdx.x];
  __syncwarp();
  uint32_t r[4];
  LoadMatrix(r, fixed ? a[threadIdx.x % 8] : in + threadIdx.x % 8 * 4);
  out[threadIdx.x] = static_cast<float>(r[0]);
}

template <auto kKernel, typename... A>
void Run(int grid, int block, size_t shared_bytes, A... args) {
  Launch<kKernel>(dim3(static_cast<unsigned>(grid)), dim3(static_cast<unsigned>(block)),
                  shared_bytes, nullptr, args...);
  KU_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace kuiper::KU_GPU

namespace kuiper::simt_test {

using namespace kuiper::KU_GPU;  // NOLINT(google-build-using-namespace): the kernels above

void ReadPastBuffer(float* out, const float* in, int n, bool fixed) {
  Run<ReadPastBufferKernel>((n + 32) / 32, 32, 0, out, in, n, fixed);
}
void WritePastBuffer(float* out, int n, bool fixed) {
  Run<WritePastBufferKernel>((n + 32) / 32, 32, 0, out, n, fixed);
}
void ReadPastSharedVariable(float* out, bool fixed) {
  Run<ReadPastSharedVariableKernel>(1, 32, 0, out, fixed);
}
void ReadPastDynamicShared(float* out, bool fixed) {
  Run<ReadPastDynamicSharedKernel>(1, 32, (fixed ? 32 : 31) * sizeof(float), out);
}
void CopyAsyncPastBuffer(float* out, const float* in, int n, bool fixed) {
  Run<CopyAsyncPastBufferKernel>(1, n / 4 + 1, 0, out, in, n, fixed);
}
void ReverseWithoutBarrier(float* out, const float* in, bool fixed) {
  Run<ReverseKernel>(1, 256, 0, out, in, fixed);
}
void LeftNeighbourWithoutBarrier(float* out, const float* in, bool fixed) {
  Run<LeftNeighbourKernel>(1, 256, 0, out, in, fixed);
}
void ReuseWithoutBarrier(float* out, bool fixed) {
  Run<ReuseKernel>(1, 128, 0, out, fixed);
}
void ExchangeWithoutSyncWarp(float* out, bool fixed) {
  Run<ExchangeKernel>(1, 32, 0, out, fixed);
}
void AddWithoutAtomic(float* out, bool fixed) {
  Run<AddKernel>(1, 128, 0, out, fixed);
}
void BlocksWriteTheSame(float* out, bool fixed) {
  Run<BlocksKernel>(4, 32, 0, out, fixed);
}
void LoadMatrixWithoutSyncWarp(float* out, bool fixed) {
  Run<LoadMatrixOrderKernel>(1, 32, 0, out, fixed);
}
void ReadWithoutCopyWait(float* out, const float* in, bool fixed) {
  Run<CopyWaitKernel>(1, 32, 0, out, in, fixed);
}
void ReadOthersCopyWithoutBarrier(float* out, const float* in, bool fixed) {
  Run<OthersCopyKernel>(1, 32, 0, out, in, fixed);
}
void CopyIntoUsedTile(float* out, const float* in, bool fixed) {
  Run<CopyIntoUsedKernel>(1, 32, 0, out, in, fixed);
}
void ReadUninitialisedShared(float* out, bool fixed) {
  Run<UninitialisedKernel>(1, 32, 0, out, fixed);
}
void DivergentBarrier(float* out, bool fixed) {
  Run<DivergentBarrierKernel>(1, 32, 0, out, fixed);
}
void BarriersOnTwoLines(float* out, bool fixed) {
  Run<TwoLinesKernel>(1, 32, 0, out, fixed);
}
void DivergentShuffle(float* out, bool fixed) {
  Run<DivergentShuffleKernel>(1, 32, 0, out, fixed);
}
void ShuffleWithForeignMask(float* out, bool fixed) {
  Run<ForeignMaskKernel>(1, 32, 0, out, fixed);
}
void LoadMatrixMisaligned(float* out, bool fixed) {
  Run<MisalignedKernel>(1, 32, 0, out, fixed);
}
void LoadMatrixFromGlobal(float* out, const float* in, bool fixed) {
  Run<FromGlobalKernel>(1, 32, 0, out, in, fixed);
}

}  // namespace kuiper::simt_test
