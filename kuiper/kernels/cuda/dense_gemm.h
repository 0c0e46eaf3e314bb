// Products of many rows at once, y [M, N] = x [M, K] W^T, by cuBLASLt; plain loops on the emulated
// device. Sums are FP32, never TF32.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/ops.h"

namespace kuiper::KU_GPU {

struct GemmShape {
  int n = 0, k = 0;
  int64_t stride = 0;        // elements from one row of y to the next
  DType type = DType::kF32;  // of x and W
  DType out_type = DType::kF32;
  bool add = false;  // to y
  auto operator<=>(const GemmShape&) const = default;
};

inline GemmShape ShapeOf(const Tensor& weight, const Tensor& out, bool add) {
  return {static_cast<int>(weight.shape[0]),
          static_cast<int>(weight.shape[1]),
          out.stride[0],
          weight.dtype,
          out.dtype,
          add};
}

// y has the shape's out_type; x, W and y are 16-byte aligned, and so are their rows.
struct GemmArgs {
  Tensor out, x, weight;
  bool add = false;
};

class DenseGemm {
 public:
#if defined(KUIPER_SIMT)
  static constexpr size_t kWorkspaceBytes = 0;
#else
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
#endif

  // `model` names the kind of device. With Determinism::kOn only algorithms are taken whose rows
  // were seen not to depend on M. kUnavailable when the library does not work here.
  static StatusOr<DenseGemm> Make(const OpsOptions& options, const std::string& model);
  DenseGemm(DenseGemm&&) noexcept;
  ~DenseGemm();

  void set_workspace(void* workspace) {
    workspace_ = workspace;
  }
  // Chooses the algorithm for products of this shape with up to max_rows rows, once, as
  // gemm_choice.h says: one that the library takes for each number of rows. Takes memory for as
  // long as it runs.
  Status Prepare(cudaStream_t stream, Ops& memory, const Tensor& weight, const GemmShape& shape,
                 int max_rows);
  // Whether Prepare found an algorithm.
  bool Has(const GemmShape& shape) const;
  void Run(cudaStream_t stream, const GemmArgs& args) const;

 private:
  struct Algorithm;
  struct Library;

  explicit DenseGemm(std::unique_ptr<Library> library);
  StatusOr<std::unique_ptr<Algorithm>> Choose(cudaStream_t stream, Ops& memory,
                                              const Tensor& weight, const GemmShape& shape,
                                              int max_rows) const;

  void* workspace_ = nullptr;
  std::unique_ptr<Library> library_;
  std::map<GemmShape, std::unique_ptr<Algorithm>> algorithms_;  // null: none passed
};

}  // namespace kuiper::KU_GPU
