// KU_CUDA_CHECK(call) for calls that fail only through a bug of ours or a lost device: the process
// ends with the call and CUDA's words for the error. Where the outside world decides (no device,
// too little memory) turn the code into a Status instead.
#pragma once

#include <string>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cuda/platform.h"

#define KU_CUDA_CHECK(call)                                                         \
  do {                                                                              \
    const cudaError_t ku_cuda_error = (call);                                       \
    if (ku_cuda_error != cudaSuccess) [[unlikely]] {                                \
      ::kuiper::CheckFailed(__FILE__, __LINE__, #call,                              \
                            ::std::string(cudaGetErrorName(ku_cuda_error)) + ": " + \
                                cudaGetErrorString(ku_cuda_error));                 \
    }                                                                               \
  } while (false)
