#include "kuiper/kernels/cpu/cpu_peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kuiper/kernels/cpu/linear/kernel.h"

namespace kuiper::cpu {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double MeasureReadBandwidth(ThreadPool& pool, const void* data, size_t bytes) {
  const auto read = LinearKernelSets().front().read;
  constexpr size_t kPage = 4096;
  std::atomic<int> sink{0};  // keeps the reads from being optimised away
  const double start = Now();
  pool.RunOnEach([&](int index, int count) {
    const size_t share = (bytes / count + kPage - 1) / kPage * kPage;
    const size_t begin = std::min(bytes, share * index);
    const size_t end = std::min(bytes, begin + share);
    sink += static_cast<int>(read(static_cast<const uint8_t*>(data) + begin, end - begin) > 0);
  });
  return static_cast<double>(bytes) / (Now() - start);
}

double MeasurePeakFlops(ThreadPool& pool, WeightFormat weights, double seconds) {
  const LinearKernel& kernel = LinearKernelSets().front()[weights];
  // The burst ends with its slowest thread, as a linear layer does. A step takes about 10 us.
  constexpr int64_t kStep = 2000;
  std::atomic<int64_t> steps{0};
  const double start = Now();
  pool.RunOnEach([&](int, int) {
    do {
      kernel.burst(kStep);
      steps.fetch_add(1, std::memory_order_relaxed);
    } while (Now() - start < seconds);
  });
  const double elapsed = Now() - start;
  return static_cast<double>(steps) * kStep * kernel.flops_per_burst_iteration / elapsed;
}

}  // namespace kuiper::cpu
