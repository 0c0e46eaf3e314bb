// The launches and the finishing kernel of dense_linear.h. The kernel reads the FP32 sums of a
// panel once and writes the outputs, one thread per output: bound by L2 or DRAM.
#include <algorithm>
#include <numeric>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cuda/dense_linear.h"
#include "kuiper/kernels/cuda/dequantize.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/linear_parts.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 256;
constexpr int kPanel = 256;  // rows of sums, for gate and up of the widest layer

__global__ void __launch_bounds__(kThreads)
    FinishKernel(const __grid_constant__ LinearArgs p, const float* sums, int stride, int columns) {
  AwaitEarlierKernels();
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
  const int part_row = column - p.parts[i].first_column;
  if (IsGelu(p.epilogue)) {
    p.StoreGelu(p.parts[i], token, part_row, row[column]);
  } else {
    p.Store(p.parts[i], token, part_row, row[column]);
  }
}

// True if the products themselves write the output.
bool IsDirect(const Linear& w, Epilogue epilogue) {
  if (epilogue == Epilogue::kSwiGlu || IsGelu(epilogue)) return false;
  return std::all_of(w.parts, w.parts + w.num_parts,
                     [](const Linear::Part& part) { return part.bias.empty(); });
}

bool IsAligned(const Tensor& t) {
  return IsAligned16(t.data) && t.stride[0] * static_cast<int64_t>(DTypeBytes(t.dtype)) % 16 == 0;
}

// Calls body(part, columns of `out` that the part computes).
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

// Bytes of a matrix of the widest layer, limited to what gives a product enough rows to fill a
// device.
int64_t PanelBytes(const OpsLimits& limits) {
  constexpr int64_t kMost = int64_t{32} << 20;
  const int64_t features = limits.max_features;
  return limits.quantized ? std::min(kMost, 4 * features * features) : 0;
}

}  // namespace

// Rows [begin, begin + rows) of one part of a quantised layer, or of gate and up.
struct DenseLinear::Panel {
  int first_part = 0;
  int64_t begin = 0, rows = 0;
  int64_t column = 0;  // first column of the layer's output
  Linear dense;        // in scratch memory

  Tensor OutputOf(const Tensor& out) const { return out.Cols(column, column + rows); }
};

size_t DenseLinear::ScratchBytes(const OpsLimits& limits) const {
  return gemm_.workspace_bytes() + static_cast<size_t>(StageFloats(limits)) * sizeof(float) +
         static_cast<size_t>(PanelBytes(limits));
}

void DenseLinear::SetScratch(void* scratch, const OpsLimits& limits) {
  gemm_.set_workspace(scratch);
  stage_ = reinterpret_cast<float*>(static_cast<char*>(scratch) + gemm_.workspace_bytes());
  stage_floats_ = StageFloats(limits);
  panel_bytes_ = PanelBytes(limits);
  panel_ = panel_bytes_ == 0 ? nullptr : stage_ + stage_floats_;
  max_rows_ = limits.max_tokens;
}

// Uses the minimum number of panels, of about the same size. Rows that share scales stay together.
int64_t DenseLinear::PanelRows(const Linear& w, int64_t rows, int num_parts) const {
  const WeightFormat format = w.format();
  const int64_t step = std::lcm(128, format.group_rows);
  const int64_t row_bytes =
      int64_t{num_parts} * w.in * static_cast<int64_t>(DTypeBytes(format.numeric_type()));
  const int64_t most = panel_bytes_ / row_bytes / step * step;
  if (most == 0) return 0;
  const int64_t panels = CeilDiv(rows, most);
  return CeilDiv(CeilDiv(rows, panels), step) * step;
}

bool DenseLinear::FitsPanels(const Linear& w, Epilogue epilogue) const {
  return PanelRows(w, 1, epilogue == Epilogue::kSwiGlu ? 2 : 1) > 0;
}

bool DenseLinear::Next(const Linear& w, Epilogue epilogue, Panel& panel) const {
  const int together = epilogue == Epilogue::kSwiGlu ? 2 : 1;
  panel.begin += panel.rows;
  panel.column += panel.rows;
  while (panel.begin >= w.parts[panel.first_part].weight.rows()) {
    panel.begin = 0;
    panel.first_part += together;
    if (panel.first_part >= w.num_parts) return false;
  }
  const Linear::Part* parts = w.parts + panel.first_part;
  const int64_t rows = parts[0].weight.rows();
  const int64_t end = std::min(rows, panel.begin + PanelRows(w, rows, together));
  panel.rows = end - panel.begin;
  panel.dense = {};
  panel.dense.in = w.in;
  panel.dense.out = together * static_cast<int>(panel.rows);
  panel.dense.num_parts = together;
  char* next = static_cast<char*>(panel_);
  for (int i = 0; i < together; ++i) {
    Linear::Part& part = panel.dense.parts[i];
    part.weight = DenseWeight(Tensor::Dense(next, w.format().numeric_type(), {panel.rows, w.in},
                                            parts[i].weight.values.device));
    if (!parts[i].bias.empty()) part.bias = parts[i].bias.Rows(panel.begin, end);
    next += part.weight.bytes();
  }
  return true;
}

void DenseLinear::Fill(cudaStream_t stream, const Linear& w, const Panel& panel) const {
  for (int i = 0; i < panel.dense.num_parts; ++i) {
    Dequantize(stream, w.parts[panel.first_part + i].weight, panel.begin,
               panel.dense.parts[i].weight.values);
  }
}

// Trials need weights, so each panel is filled.
Status DenseLinear::Prepare(cudaStream_t stream, Ops& memory, const Linear& w, Epilogue epilogue,
                            DType out_type, int64_t out_stride) {
  if (!w.format().is_quantized()) {
    return PrepareDense(stream, memory, w, epilogue, out_type, out_stride);
  }
  if (!FitsPanels(w, epilogue)) return OkStatus();
  for (Panel panel; Next(w, epilogue, panel);) {
    Fill(stream, w, panel);
    KU_RETURN_IF_ERROR(PrepareDense(stream, memory, panel.dense, epilogue, out_type, out_stride));
  }
  return OkStatus();
}

Status DenseLinear::PrepareDense(cudaStream_t stream, Ops& memory, const Linear& w,
                                 Epilogue epilogue, DType out_type, int64_t out_stride) {
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

bool DenseLinear::Supports(const Tensor& out, const Tensor& x, const Linear& w,
                           Epilogue epilogue) const {
  if (!w.format().is_quantized()) return SupportsDense(out, x, w, epilogue);
  if (!FitsPanels(w, epilogue)) return false;
  for (Panel panel; Next(w, epilogue, panel);) {
    if (!SupportsDense(panel.OutputOf(out), x, panel.dense, epilogue)) return false;
  }
  return true;
}

bool DenseLinear::SupportsDense(const Tensor& out, const Tensor& x, const Linear& w,
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

void DenseLinear::Apply(cudaStream_t stream, const Tensor& out, const Tensor& x, const Linear& w,
                        Epilogue epilogue) const {
  if (!w.format().is_quantized()) return ApplyDense(stream, out, x, w, epilogue);
  for (Panel panel; Next(w, epilogue, panel);) {
    Fill(stream, w, panel);
    ApplyDense(stream, panel.OutputOf(out), x, panel.dense, epilogue);
  }
}

void DenseLinear::ApplyDense(cudaStream_t stream, const Tensor& out, const Tensor& x,
                             const Linear& w, Epilogue epilogue) const {
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
