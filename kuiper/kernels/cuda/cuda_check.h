// KU_CUDA_CHECK(call) is for calls that fail only because of a bug here or a lost device. It ends
// the process with exit code 8, printing the call and CUDA's error text; a context with a fault
// cannot be repaired. If the environment decides (no device, too little memory), return a Status
// instead.
//
// KU_CUDA_TRY(call) is for launches, copies and waits, which a mistake of the calling program can
// also make fail. It does the same, except inside FirstError: there execution continues, and
// FirstError returns the first error.
#pragma once

#include <string>
#include <utility>

#include "kuiper/base/fatal.h"
#include "kuiper/kernels/cuda/platform.h"

namespace kuiper::KU_GPU {

[[noreturn]] inline void DeviceFault(const char* file, int line, const char* call,
                                     cudaError_t error) {
  Fatal(kDeviceExitCode, std::string("CUDA error at ") + file + ":" + std::to_string(line) + ": " +
                             call + ": " + cudaGetErrorName(error) + ": " +
                             cudaGetErrorString(error));
}

// The first error of this thread's innermost FirstError; null outside FirstError.
inline thread_local cudaError_t* first_error = nullptr;

inline bool IsKept(cudaError_t error) {
  if (first_error == nullptr) return false;
  if (*first_error == cudaSuccess) *first_error = error;
  return true;
}

template <typename F>
cudaError_t FirstError(const F& body) {
  cudaError_t error = cudaSuccess;
  cudaError_t* const outer = std::exchange(first_error, &error);
  body();
  first_error = outer;
  return error;
}

}  // namespace kuiper::KU_GPU

#define KU_CUDA_CHECK(call)                                                    \
  do {                                                                         \
    const cudaError_t ku_cuda_error = (call);                                  \
    if (ku_cuda_error != cudaSuccess) [[unlikely]] {                           \
      ::kuiper::KU_GPU::DeviceFault(__FILE__, __LINE__, #call, ku_cuda_error); \
    }                                                                          \
  } while (false)

#define KU_CUDA_TRY(call)                                                                        \
  do {                                                                                           \
    const cudaError_t ku_cuda_error = (call);                                                    \
    if (ku_cuda_error != cudaSuccess && !::kuiper::KU_GPU::IsKept(ku_cuda_error)) [[unlikely]] { \
      ::kuiper::KU_GPU::DeviceFault(__FILE__, __LINE__, #call, ku_cuda_error);                   \
    }                                                                                            \
  } while (false)
