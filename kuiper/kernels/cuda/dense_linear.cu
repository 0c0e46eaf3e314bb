// The launches and the finishing kernel of dense_linear.h. The kernel reads the FP32 sums of a
// panel once and writes the outputs, a thread per output: bound by L2 or DRAM.
#include <algorithm>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cuda/dense_linear.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/linear_parts.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 256;
constexpr int kPanel = 256;  // rows of sums as wide as gate and up of the widest layer

__global__ void __launch_bounds__(kThreads)
    FinishKernel(const __grid_constant__ LinearArgs p, const float* sums, int stride, int columns) {
  const int token = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (column >= columns) return;
  const float* row = sums + static_cast<int64_t>(token) * stride;
  if (p.paired()) {
    p.StoreSwiGlu(token, column, row[column], row[columns + column]);
    return;
  }
  int i = 0;
  while (i + 1 < p.num_parts && column >= p.parts[i + 1].first_column) ++i;
  p.Store(p.parts[i], token, column - p.parts[i].first_column, row[column]);
}

// Whether the products themselves write the output.
bool IsDirect(const Linear& w, Epilogue epilogue) {
  if (epilogue == Epilogue::kSwiGlu) return false;
  return std::all_of(w.parts, w.parts + w.num_parts,
                     [](const Linear::Part& part) { return part.bias.empty(); });
}

bool IsAligned(const Tensor& t) {
  return IsAligned16(t.data) && t.stride[0] * static_cast<int64_t>(DTypeBytes(t.dtype)) % 16 == 0;
}

// Calls body(part, columns of `out` that are its outputs).
template <typename Body>
void ForParts(const Linear& w, const Tensor& out, const Body& body) {
  int64_t column = 0;
  for (int i = 0; i < w.num_parts; ++i) {
    const int64_t end = column + w.parts[i].weight.rows();
    body(w.parts[i], out.Cols(column, end));
    column = end;
  }
}

int64_t StageFloats(const OpsLimits& limits) {
  return int64_t{2} * limits.max_features * kPanel;
}

}  // namespace

size_t DenseLinear::ScratchBytes(const OpsLimits& limits) const {
  return gemm_.workspace_bytes() + static_cast<size_t>(StageFloats(limits)) * sizeof(float);
}

void DenseLinear::SetScratch(void* scratch, const OpsLimits& limits) {
  gemm_.set_workspace(scratch);
  stage_ = reinterpret_cast<float*>(static_cast<char*>(scratch) + gemm_.workspace_bytes());
  stage_floats_ = StageFloats(limits);
  max_rows_ = limits.max_tokens;
}

Status DenseLinear::Prepare(cudaStream_t stream, Ops& memory, const Linear& w, Epilogue epilogue,
                            DType out_type, int64_t out_stride) {
  const bool direct = IsDirect(w, epilogue);
  const int64_t stride = direct ? out_stride : w.out;
  const DType type = direct ? out_type : DType::kF32;
  if (stride * static_cast<int64_t>(DTypeBytes(type)) % 16 != 0) return OkStatus();
  for (int i = 0; i < w.num_parts; ++i) {
    const Tensor& weight = w.parts[i].weight.values;
    if (!IsAligned(weight)) continue;
    const GemmShape shape{.n = static_cast<int>(weight.shape[0]),
                          .k = static_cast<int>(weight.shape[1]),
                          .stride = stride,
                          .type = weight.dtype,
                          .out_type = type,
                          .add = direct && epilogue == Epilogue::kAdd};
    KU_RETURN_IF_ERROR(gemm_.Prepare(stream, memory, weight, shape, max_rows_));
  }
  return OkStatus();
}

bool DenseLinear::Takes(const Tensor& out, const Tensor& x, const Linear& w,
                        Epilogue epilogue) const {
  const bool direct = IsDirect(w, epilogue);
  if (!IsAligned(x) || x.dtype != w.format().numeric_type()) return false;
  if (x.stride[0] != x.shape[1]) return false;  // Prepare tried dense rows
  if (!direct && w.out > stage_floats_) return false;
  const Tensor y = direct ? out : Tensor::Dense(stage_, DType::kF32, {1, w.out}, out.device);
  bool takes = true;
  ForParts(w, y, [&](const Linear::Part& part, const Tensor& columns) {
    takes = takes && IsAligned(part.weight.values) && IsAligned(columns) &&
            gemm_.Has(ShapeOf(part.weight.values, columns, direct && epilogue == Epilogue::kAdd));
  });
  return takes;
}

void DenseLinear::Apply(cudaStream_t stream, Tensor out, Tensor x, const Linear& w,
                        Epilogue epilogue) const {
  if (IsDirect(w, epilogue)) {
    ForParts(w, out, [&](const Linear::Part& part, const Tensor& columns) {
      gemm_.Run(stream, {columns, x, part.weight.values, epilogue == Epilogue::kAdd});
    });
    return;
  }
  const int64_t rows = x.rows();
  const int64_t panel = std::min<int64_t>(rows, stage_floats_ / w.out);
  const int columns = OutputColumns(w, epilogue);
  for (int64_t begin = 0; begin < rows; begin += panel) {
    const int64_t end = std::min(rows, begin + panel);
    const Tensor x_panel = x.Rows(begin, end);
    const Tensor sums = Tensor::Dense(stage_, DType::kF32, {end - begin, w.out}, out.device);
    ForParts(w, sums, [&](const Linear::Part& part, const Tensor& y) {
      gemm_.Run(stream, {y, x_panel, part.weight.values, false});
    });
    const dim3 grid(static_cast<unsigned>(end - begin),
                    static_cast<unsigned>(CeilDiv(columns, kThreads)));
    Launch<FinishKernel>(grid, dim3(kThreads), 0, stream,
                         MakeLinearArgs(out.Rows(begin, end), x_panel, w, epilogue), stage_, w.out,
                         columns);
  }
}

}  // namespace kuiper::KU_GPU
