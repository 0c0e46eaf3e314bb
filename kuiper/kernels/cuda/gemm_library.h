// A library of matrix products as DenseGemm sees it: it proposes algorithms for a product, says
// which products an algorithm takes, and runs it. cuBLASLt on a GPU (cublaslt_gemm.cpp), plain
// loops on the emulated device (gemm_loops.cu). Names no type of CUDA, because the two have
// different ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"

namespace kuiper {

// out = x W^T, or out += x W^T, with FP32 sums. All are on the device and 16-byte aligned, and so
// are their rows.
struct GemmArgs {
  Tensor out;     // [M, N] f32 or of the type of x
  Tensor x;       // [M, K]
  Tensor weight;  // [N, K], of the type of x
  bool add = false;
};

// An algorithm in the library's own words, which no other version of it needs to understand.
using GemmAlgorithm = std::array<uint64_t, 8>;

class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;

  // With the version: what its algorithms and their order depend on.
  virtual std::string Name() const = 0;
  // How much memory Multiply needs besides its arguments.
  virtual size_t WorkspaceBytes() const = 0;
  // Algorithms for the product that do not split K among blocks, those that the library expects to
  // be fastest first; may be none. It reads shapes, strides and types only.
  virtual std::vector<GemmAlgorithm> Propose(const GemmArgs& args) const = 0;
  // Whether the algorithm computes this product; it computes nothing.
  virtual bool Takes(const GemmAlgorithm& algorithm, const GemmArgs& args) const = 0;
  // Whether an algorithm has to be tried: the library promises neither that what Takes says holds
  // nor that the bits of a row do not depend on the other rows.
  virtual bool NeedsTrial() const = 0;
  // Queues the product on `stream`, a cudaStream_t. `workspace` is 256-byte aligned. kInternal with
  // the library's words when it refuses.
  virtual Status Multiply(const GemmAlgorithm& algorithm, const GemmArgs& args, void* workspace,
                          void* stream) const = 0;
};

// The library of each kind of device; kUnavailable when it does not work here.
namespace cuda {
StatusOr<std::unique_ptr<GemmLibrary>> OpenGemmLibrary();
}  // namespace cuda
namespace simt_gpu {
StatusOr<std::unique_ptr<GemmLibrary>> OpenGemmLibrary();
}  // namespace simt_gpu

}  // namespace kuiper
