// Linear layers for the rows of prompts: a matrix product for each part and, where its epilogue is
// not one of DenseGemm, a pass over the FP32 sums in panels of rows. Rows of decode steps are for
// the kernels of linear.cu, whose order of summation is another.
#pragma once

#include <cstddef>
#include <utility>

#include "kuiper/kernels/cuda/dense_gemm.h"

namespace kuiper::KU_GPU {

class DenseLinear {
 public:
  explicit DenseLinear(DenseGemm gemm) : gemm_(std::move(gemm)) {}

  size_t ScratchBytes(const OpsLimits& limits) const;
  void SetScratch(void* scratch, const OpsLimits& limits);
  // Needs its scratch memory.
  Status Prepare(cudaStream_t stream, Ops& memory, const Linear& w, Epilogue epilogue,
                 DType out_type, int64_t out_stride);
  // Whether Apply can; does not depend on the number of rows.
  bool Takes(const Tensor& out, const Tensor& x, const Linear& w, Epilogue epilogue) const;
  void Apply(cudaStream_t stream, Tensor out, Tensor x, const Linear& w, Epilogue epilogue) const;

 private:
  DenseGemm gemm_;
  float* stage_ = nullptr;
  int64_t stage_floats_ = 0;
  int max_rows_ = 0;
};

}  // namespace kuiper::KU_GPU
