#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "emulator/runtime_state.h"

// Errors and the device's properties: those of an Orin unless Options say otherwise.

namespace kuiper::simt {

using namespace dialect;  // NOLINT(google-build-using-namespace): defines CUDA's functions

namespace {

thread_local cudaError_t last_error = cudaSuccess;

Pretence PretenceFromEnvironment() {
  Pretence p;
  const char* text = std::getenv("KUIPER_SIMT_PRETEND");
  if (text == nullptr) return p;
  const auto number = [&](const char* key) {
    const size_t length = std::strlen(key);
    return std::strncmp(text, key, length) == 0 ? std::strtoll(text + length, nullptr, 10) : -1;
  };
  if (std::strcmp(text, "no_driver") == 0 || std::strcmp(text, "old_driver") == 0) {
    p.count_error = cudaErrorInsufficientDriver;
    p.driver_version = text[0] == 'n' ? 0 : 11000;
  }
  if (std::strcmp(text, "no_device") == 0) p.count_error = cudaErrorNoDevice;
  if (std::strcmp(text, "no_image") == 0) p.kernel_error = cudaErrorNoKernelImageForDevice;
  if (number("memory:") >= 0) p.total_bytes = static_cast<size_t>(number("memory:")) << 20;
  p.launches_until_fault = number("fault:");
  if (number("driver:") >= 0) p.driver_version = static_cast<int>(number("driver:"));
  return p;
}

}  // namespace

Pretence& CurrentPretence() {
  static Pretence pretence = PretenceFromEnvironment();
  return pretence;
}

bool IsFaulty() {
  return CurrentPretence().launches_until_fault == 0;
}

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

namespace dialect {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
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
    KU_SIMT_NAME(cudaErrorInsufficientDriver)
    KU_SIMT_NAME(cudaErrorInvalidDeviceFunction)
    KU_SIMT_NAME(cudaErrorNoDevice)
    KU_SIMT_NAME(cudaErrorInvalidDevice)
    KU_SIMT_NAME(cudaErrorNoKernelImageForDevice)
    KU_SIMT_NAME(cudaErrorInvalidResourceHandle)
    KU_SIMT_NAME(cudaErrorNotReady)
    KU_SIMT_NAME(cudaErrorLaunchFailure)
    KU_SIMT_NAME(cudaErrorStreamCaptureUnsupported)
    KU_SIMT_NAME(cudaErrorStreamCaptureInvalidated)
    KU_SIMT_NAME(cudaErrorStreamCaptureImplicit)
#undef KU_SIMT_NAME
  }
  return "unknown error";
}

const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = CurrentPretence().count_error == cudaSuccess;
  return Result(CurrentPretence().count_error);
}

cudaError_t cudaSetDevice(int device) {
  if (IsFaulty()) return Result(cudaErrorLaunchFailure);
  return Result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return Result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->major = CurrentOptions().arch / 10;
  properties->minor = CurrentOptions().arch % 10;
  properties->multiProcessorCount = CurrentOptions().num_sms;
  properties->sharedMemPerMultiprocessor = 164 << 10;  // Orin's
  properties->integrated = CurrentPretence().integrated;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CurrentPretence().driver_version;
  return cudaSuccess;
}

}  // namespace dialect
}  // namespace kuiper::simt
