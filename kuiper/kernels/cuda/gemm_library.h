// The interface of a library of matrix products for DenseGemm. It proposes algorithms for a
// product, says which products an algorithm supports, and runs it. The library is cuBLASLt on a GPU
// (cublaslt_gemm.cpp) and plain loops on the emulated device (gemm_loops.cu). Uses no CUDA type,
// because the two have different ones.
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

// out = x W^T, or out += x W^T, with FP32 sums. All tensors are on the device; they and their rows
// are 16-byte aligned.
struct GemmArgs {
  Tensor out;     // [M, N] f32 or of the type of x
  Tensor x;       // [M, K]
  Tensor weight;  // [N, K], of the type of x
  bool add = false;
};

// An algorithm in the library's own encoding, valid only for the same version of the library.
using GemmAlgorithm = std::array<uint64_t, 8>;

class GemmLibrary {
 public:
  virtual ~GemmLibrary() = default;

  // Name and version of the library: its algorithms and their order depend on them.
  virtual std::string Name() const = 0;
  // Bytes of workspace that Multiply needs.
  virtual size_t WorkspaceBytes() const = 0;
  // Returns algorithms for the product that do not split K among blocks, those that the library
  // expects to be fastest first; may be empty. Reads only shapes, strides and types.
  virtual std::vector<GemmAlgorithm> Propose(const GemmArgs& args) const = 0;
  // True if the algorithm supports this product. Computes nothing.
  virtual bool Supports(const GemmAlgorithm& algorithm, const GemmArgs& args) const = 0;
  // True if algorithms must be tried: the library does not guarantee that Takes is right, nor that
  // the bits of a row are independent of the other rows.
  virtual bool NeedsTrial() const = 0;
  // Queues the product on `stream`, a cudaStream_t. `workspace` is 256-byte aligned. If the library
  // refuses, returns kInternal with its error text.
  virtual Status Multiply(const GemmAlgorithm& algorithm, const GemmArgs& args, void* workspace,
                          void* stream) const = 0;
};

// Opens the library of each kind of device; kUnavailable if it does not work here.
namespace cuda {
StatusOr<std::unique_ptr<GemmLibrary>> OpenGemmLibrary();
}  // namespace cuda
namespace simt_gpu {
StatusOr<std::unique_ptr<GemmLibrary>> OpenGemmLibrary();
}  // namespace simt_gpu

}  // namespace kuiper
