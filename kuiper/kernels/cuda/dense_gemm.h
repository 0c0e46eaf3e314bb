// Matrix products of many rows, y [M, N] = x [M, K] W^T, by the algorithms of a GemmLibrary.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/gemm_choice.h"
#include "kuiper/kernels/cuda/gemm_library.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/ops.h"

namespace kuiper::KU_GPU {

struct GemmShape {
  int n = 0, k = 0;
  int64_t stride = 0;        // elements from one row of y to the next
  DType type = DType::kF32;  // type of x and W
  DType out_type = DType::kF32;
  bool add = false;  // adds the product to y
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

class DenseGemm {
 public:
  // `model` describes the kind of device. With Determinism::kOn, only algorithms are used whose
  // rows do not depend on M, as the library guarantees or a trial shows.
  DenseGemm(std::unique_ptr<GemmLibrary> library, const OpsOptions& options,
            const std::string& model);

  size_t workspace_bytes() const { return library_->WorkspaceBytes(); }
  void set_workspace(void* workspace) { workspace_ = workspace; }
  // Chooses the algorithm for products of this shape with up to max_rows rows, once, as
  // gemm_choice.h describes. The library must support it for each number of rows. Allocates memory
  // while it runs.
  Status Prepare(cudaStream_t stream, Ops& memory, const Tensor& weight, const GemmShape& shape,
                 int max_rows);
  // True if Prepare found an algorithm.
  bool Has(const GemmShape& shape) const;
  void Run(cudaStream_t stream, const GemmArgs& args) const;

 private:
  StatusOr<std::optional<GemmAlgorithm>> Choose(cudaStream_t stream, Ops& memory,
                                                const Tensor& weight, const GemmShape& shape,
                                                int max_rows);

  std::unique_ptr<GemmLibrary> library_;
  std::string name_;  // device and library
  bool check_rows_;
  GemmTiming timing_ = GemmTiming::kNever;
  GemmChoices choices_{GemmChoices::DefaultPath()};
  void* workspace_ = nullptr;
  std::map<GemmShape, std::optional<GemmAlgorithm>> algorithms_;  // no value: none is usable
};

}  // namespace kuiper::KU_GPU
