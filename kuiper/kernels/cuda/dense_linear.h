// Linear layers for prefill rows: one matrix product per part. If the epilogue is not one of
// DenseGemm's, a second pass processes the FP32 sums in panels of rows. Quantised weights are
// converted to dense weights of their numeric type, one panel of rows at a time, in scratch memory;
// each panel is treated as a layer. Decode rows use the kernels of linear.cu, which have a
// different order of summation.
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
  // Call SetScratch first.
  Status Prepare(cudaStream_t stream, Ops& memory, const Linear& w, Epilogue epilogue,
                 DType out_type, int64_t out_stride);
  // True if Apply can compute this with what was prepared; does not depend on the number of rows.
  bool Supports(const Tensor& out, const Tensor& x, const Linear& w, Epilogue epilogue) const;
  void Apply(cudaStream_t stream, const Tensor& out, const Tensor& x, const Linear& w,
             Epilogue epilogue) const;

 private:
  // Some rows of a quantised layer, converted to dense weights.
  struct Panel;
  // Advances `panel` (initially empty) to the layer's next panel; returns false after the last one.
  bool Next(const Linear& w, Epilogue epilogue, Panel& panel) const;
  void Fill(cudaStream_t stream, const Linear& w, const Panel& panel) const;
  // Returns the rows per panel if `num_parts` parts of `rows` rows each are converted together; 0
  // if not even the smallest panel fits into the scratch memory.
  int64_t PanelRows(const Linear& w, int64_t rows, int num_parts) const;
  bool FitsPanels(const Linear& w, Epilogue epilogue) const;

  // Like the public functions, for dense weights.
  Status PrepareDense(cudaStream_t stream, Ops& memory, const Linear& w, Epilogue epilogue,
                      DType out_type, int64_t out_stride);
  bool SupportsDense(const Tensor& out, const Tensor& x, const Linear& w, Epilogue epilogue) const;
  void ApplyDense(cudaStream_t stream, const Tensor& out, const Tensor& x, const Linear& w,
                  Epilogue epilogue) const;

  DenseGemm gemm_;
  float* stage_ = nullptr;
  int64_t stage_floats_ = 0;
  void* panel_ = nullptr;  // dense weights; null unless OpsLimits::quantized
  int64_t panel_bytes_ = 0;
  int max_rows_ = 0;
};

}  // namespace kuiper::KU_GPU
