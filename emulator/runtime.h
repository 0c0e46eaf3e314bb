// The part of the CUDA runtime API that the backend uses, with its names and error codes. Streams
// are queues that run when the host waits for them, so that a forgotten wait is noticed. A stream
// that is being captured collects its work as a graph. Copies check that their pointers are on the
// right side. Included through dialect.h. Safe to call from several OS threads; kernels run one at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "emulator/machine.h"

namespace kuiper::simt {

struct Stream;
struct Event;
struct Graph;

namespace dialect {

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureImplicit = 906,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

using cudaStream_t = Stream*;
using cudaEvent_t = Event*;
using cudaGraph_t = Graph*;
using cudaGraphExec_t = Graph*;

// The limits of the emulated device: Options::arch, Options::num_sms.
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount, integrated;
  size_t sharedMemPerMultiprocessor;
};

struct cudaFuncAttributes {};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** p, size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMallocHost(void** p, size_t bytes);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
template <typename T>
cudaError_t cudaMalloc(T** p, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(p), bytes);
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* dst, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);  // NOLINT(google-runtime-int)
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

}  // namespace dialect

dialect::cudaError_t GetKernelAttributes(const void* kernel);
dialect::cudaError_t SetKernelAttribute(const void* kernel, dialect::cudaFuncAttribute attribute,
                                        int value);
// Queues a kernel, or refuses its shape as a real device would.
dialect::cudaError_t QueueKernel(KernelCall call, Stream* stream);

namespace dialect {

template <typename... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*kernel)(P...)) {
  return GetKernelAttributes(reinterpret_cast<const void*>(kernel));
}
template <typename... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return SetKernelAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

}  // namespace dialect

// Properties that the device simulates, for tests of the host. Initially from the environment:
// KUIPER_SIMT_PRETEND=no_driver|old_driver|no_device|no_image|driver:VERSION|memory:MEGABYTES|
// fault:LAUNCHES, where VERSION is CUDA's number, 12020 for 12.2.
struct Pretence {
  dialect::cudaError_t count_error = dialect::cudaSuccess;  // returned by cudaGetDeviceCount
  // 0: no driver is installed. Before 12030 it cannot load a kernel while a stream is captured.
  int driver_version = 13000;
  dialect::cudaError_t kernel_error = dialect::cudaSuccess;   // returned by queries of a kernel
  dialect::cudaError_t capture_error = dialect::cudaSuccess;  // returned by ending a capture
  bool integrated = true;
  size_t total_bytes = size_t{8} << 30;
  size_t used_by_others = 0;
  int64_t launches_until_fault = -1;  // -1: no fault; 0: all later calls fail
};
Pretence& CurrentPretence();

// Kernels are loaded when they are first launched or queried. Returns their number; UnloadKernels
// unloads them all, as in a new process.
int NumLoadedKernels();
void UnloadKernels();

// Counts how often the host waited for the device.
struct HostWaits {
  uint64_t syncs = 0;   // waits for a whole stream or device, or in a blocking copy
  uint64_t events = 0;  // waits for an event that was not reached yet
  uint64_t polled = 0;  // event waits that polled instead of sleeping
  uint64_t idle = 0;    // event waits that left the stream without work
};
HostWaits CurrentHostWaits();

// Lays out the parameters of a kernel one after the other, each aligned.
template <typename... P>
std::vector<char> LayOut(const std::tuple<P...>& parameters) {
  constexpr auto kBegin = [](size_t end, size_t align) {
    return (end + align - 1) / align * align;
  };
  size_t bytes = 0;
  ((bytes = kBegin(bytes, alignof(P)) + sizeof(P)), ...);
  std::vector<char> block(bytes);
  size_t end = 0;
  const auto add = [&](const auto& p) {
    const size_t begin = kBegin(end, alignof(decltype(p)));
    std::memcpy(block.data() + begin, &p, sizeof(p));
    end = begin + sizeof(p);
  };
  std::apply([&](const P&... p) { (add(p), ...); }, parameters);
  return block;
}

template <typename... P, typename... A>
std::tuple<P...> ConvertedTo(void (*)(P...), A&&... args) {
  return std::tuple<P...>(std::forward<A>(args)...);
}

// Arguments are converted and copied now, as in a real launch.
template <auto kKernel, typename... A>
dialect::cudaError_t LaunchKernel(const LaunchShape& shape, Stream* stream, A&&... args) {
  const auto parameters = ConvertedTo(kKernel, std::forward<A>(args)...);
  return QueueKernel({reinterpret_cast<const void*>(kKernel),
                      typeid(std::integral_constant<decltype(kKernel), kKernel>).name(), shape,
                      [parameters] { std::apply(kKernel, parameters); }, LayOut(parameters)},
                     stream);
}

// Like LaunchKernel, for a kernel that represents a vendor library: nvcc does not compile it.
template <auto kKernel, typename... A>
dialect::cudaError_t LaunchLibraryKernel(const LaunchShape& shape, Stream* stream, A&&... args) {
  const auto parameters = ConvertedTo(kKernel, std::forward<A>(args)...);
  return QueueKernel({reinterpret_cast<const void*>(kKernel),
                      nullptr,
                      shape,
                      [parameters] { std::apply(kKernel, parameters); },
                      {}},
                     stream);
}

}  // namespace kuiper::simt
