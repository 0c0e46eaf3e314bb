// Measures read and copy bandwidth of the device. A block moves 16 KB: 64 bytes per thread in four
// independent 16-byte loads that are contiguous across the block, so only DRAM limits it. The
// loaded values feed a store that never runs with this buffer content, so the loads are not
// optimised away.
#include <algorithm>
#include <limits>

#include "kuiper/base/clock.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/make_cuda_ops.h"
#include "kuiper/kernels/cuda/memory_access.cuh"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 4;
constexpr size_t kBlockBytes = size_t{kThreads} * kLoads * 16;
constexpr int kFill = 0x5a;

__global__ void __launch_bounds__(kThreads) ReadBandwidthKernel(uint4* sink, const uint4* in) {
  AwaitEarlierKernels();
  const uint4* p = in + static_cast<int64_t>(blockIdx.x) * (kThreads * kLoads) + threadIdx.x;
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const uint4 v = LoadStreamed(p + i * kThreads);
    sum |= v.x ^ v.y ^ v.z ^ v.w;  // zero, as all words are equal
  }
  if (sum != 0) sink[0].x = sum;
}

__global__ void __launch_bounds__(kThreads) CopyBandwidthKernel(uint4* out, const uint4* in) {
  AwaitEarlierKernels();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kLoads) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    out[first + i * kThreads] = LoadStreamed(in + first + i * kThreads);
  }
}

// Returns the seconds per launch. The first launch is not timed; it also waits for the fill.
template <auto kKernel>
double SecondsPerLaunch(uint4* out, const uint4* in, unsigned blocks, int repetitions) {
  Launch<kKernel>(dim3(blocks), dim3(kThreads), 0, nullptr, out, in);
  KU_CUDA_CHECK(cudaDeviceSynchronize());
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < repetitions; ++i) {
    Launch<kKernel>(dim3(blocks), dim3(kThreads), 0, nullptr, out, in);
  }
  KU_CUDA_CHECK(cudaDeviceSynchronize());
  return SecondsSince(begin) / repetitions;
}

}  // namespace

StatusOr<DeviceRates> MeasureRates(Device device, size_t bytes, int repetitions) {
  // Checks the device and owns the memory.
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeCudaOps(device, {}));
  const size_t most = size_t{std::numeric_limits<int32_t>::max()} * kBlockBytes;
  const size_t blocks = std::clamp(bytes, kBlockBytes, most) / kBlockBytes;
  const size_t size = blocks * kBlockBytes;
  KU_ASSIGN_OR_RETURN(const Buffer in, ops->device().Allocate(size));
  KU_ASSIGN_OR_RETURN(const Buffer out, ops->device().Allocate(size));
  KU_CUDA_CHECK(cudaMemset(in.data(), kFill, size));
  KU_CUDA_CHECK(cudaMemset(out.data(), 0, size));
  auto* const to = static_cast<uint4*>(out.data());
  const auto* const from = static_cast<const uint4*>(in.data());
  const auto grid = static_cast<unsigned>(blocks);
  const double read = SecondsPerLaunch<ReadBandwidthKernel>(to, from, grid, repetitions);
  const double copy = SecondsPerLaunch<CopyBandwidthKernel>(to, from, grid, repetitions);
  return DeviceRates{static_cast<double>(size) / read, 2.0 * static_cast<double>(size) / copy};
}

}  // namespace kuiper::KU_GPU
