// KU_CUDA_CHECK(call) for calls that fail only through a bug of ours or a lost device: the process
// ends with the call, CUDA's words for the error and exit code 8; a context with a fault cannot be
// repaired. Where the outside world decides (no device, too little memory) turn the code into a
// Status instead.
#pragma once

#include <string>

#include "kuiper/base/fatal.h"
#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

[[noreturn]] inline void DeviceFault(const char* file, int line, const char* call,
                                     cudaError_t error) {
  Fatal(kDeviceExitCode, std::string("CUDA error at ") + file + ":" + std::to_string(line) + ": " +
                             call + ": " + cudaGetErrorName(error) + ": " +
                             cudaGetErrorString(error));
}

}  // namespace kuiper::KU_GPU

#define KU_CUDA_CHECK(call)                                                    \
  do {                                                                         \
    const cudaError_t ku_cuda_error = (call);                                  \
    if (ku_cuda_error != cudaSuccess) [[unlikely]] {                           \
      ::kuiper::KU_GPU::DeviceFault(__FILE__, __LINE__, #call, ku_cuda_error); \
    }                                                                          \
  } while (false)
