// Linear layers for the rows of prompts: a matrix product for each part and, where its epilogue is
// not one of DenseGemm, a pass over the FP32 sums in panels of rows. Quantised weights become dense
// ones of the type of their factors, a panel of rows at a time in scratch memory, which is a layer
// of its own. Rows of decode steps are for the kernels of linear.cu, whose order of summation is
// another.
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
  // Whether Apply can, of what was prepared; does not depend on the number of rows.
  bool Takes(const Tensor& out, const Tensor& x, const Linear& w, Epilogue epilogue) const;
  void Apply(cudaStream_t stream, const Tensor& out, const Tensor& x, const Linear& w,
             Epilogue epilogue) const;

 private:
  // Rows of a quantised layer, dense.
  struct Panel;
  // Makes `panel`, at first an empty one, the next of the layer; false behind the last.
  bool Next(const Linear& w, Epilogue epilogue, Panel& panel) const;
  void Fill(cudaStream_t stream, const Linear& w, const Panel& panel) const;
  // The rows of the panels of `num_parts` parts with `rows` rows each; 0: not enough fit.
  int64_t PanelRows(const Linear& w, int64_t rows, int num_parts) const;
  bool FitsPanels(const Linear& w, Epilogue epilogue) const;

  // As the public ones, for dense weights.
  Status PrepareDense(cudaStream_t stream, Ops& memory, const Linear& w, Epilogue epilogue,
                      DType out_type, int64_t out_stride);
  bool TakesDense(const Tensor& out, const Tensor& x, const Linear& w, Epilogue epilogue) const;
  void ApplyDense(cudaStream_t stream, const Tensor& out, const Tensor& x, const Linear& w,
                  Epilogue epilogue) const;

  DenseGemm gemm_;
  float* stage_ = nullptr;
  int64_t stage_floats_ = 0;
  void* panel_ = nullptr;  // dense weights; null unless the limits say that some are quantised
  int64_t panel_bytes_ = 0;
  int max_rows_ = 0;
};

}  // namespace kuiper::KU_GPU
