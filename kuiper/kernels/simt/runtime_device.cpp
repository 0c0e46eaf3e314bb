#include <cstdio>
#include <utility>

#include "kuiper/kernels/simt/runtime_state.h"

// Errors and what the device says about itself: an Orin, but for the number of multiprocessors.

namespace kuiper::simt {

using namespace dialect;  // NOLINT(google-build-using-namespace): defines CUDA's functions

namespace {

constexpr size_t kTotalBytes = size_t{8} << 30;

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

namespace dialect {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define KU_SIMT_NAME(name) \
  case name:               \
    return #name;
    KU_SIMT_NAME(cudaSuccess)
    KU_SIMT_NAME(cudaErrorInvalidValue)
    KU_SIMT_NAME(cudaErrorMemoryAllocation)
    KU_SIMT_NAME(cudaErrorInvalidConfiguration)
    KU_SIMT_NAME(cudaErrorInvalidMemcpyDirection)
    KU_SIMT_NAME(cudaErrorInsufficientDriver)
    KU_SIMT_NAME(cudaErrorNoDevice)
    KU_SIMT_NAME(cudaErrorInvalidDevice)
    KU_SIMT_NAME(cudaErrorNoKernelImageForDevice)
    KU_SIMT_NAME(cudaErrorInvalidResourceHandle)
    KU_SIMT_NAME(cudaErrorNotReady)
    KU_SIMT_NAME(cudaErrorStreamCaptureUnsupported)
    KU_SIMT_NAME(cudaErrorStreamCaptureInvalidated)
#undef KU_SIMT_NAME
  }
  return "unknown error";
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return Result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return Result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->totalGlobalMem = kTotalBytes;
  properties->sharedMemPerBlock = kStaticSharedBytes;
  properties->sharedMemPerBlockOptin = kMaxSharedBytes;
  properties->sharedMemPerMultiprocessor = kMaxSharedBytes + 1024;
  properties->major = 8;
  properties->minor = 7;
  properties->multiProcessorCount = CurrentOptions().num_sms;
  properties->maxThreadsPerMultiProcessor = 1536;
  properties->l2CacheSize = 4 << 20;
  properties->integrated = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrIntegrated:
      *value = p.integrated;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return Result(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return cudaDriverGetVersion(version);
}

}  // namespace dialect
}  // namespace kuiper::simt
