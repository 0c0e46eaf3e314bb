// The linear layer: converts the activations. The products are in streamed.cpp (few tokens),
// token_panel.cpp and blocked.cpp (many tokens) and integer.cpp (integer activations).
#include "kuiper/kernels/cpu/linear/cpu_linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/host_memory.h"
#include "kuiper/kernels/cpu/linear/job.h"

namespace kuiper::cpu {
namespace {

constexpr int kMaxSubWords = 2048 / sizeof(float);  // words per row and sub-block

// Converted activations take at most 4 bytes per element, in whole K slices of at most 32 elements
// and whole vectors of tokens. A panel adds up to two cache lines per lane.
size_t ActivationBytes(int tokens, int in) {
  return 4 * CeilDiv<size_t>(in, 32) * 32 * (tokens + kSumLanes - 1) +
         (CeilDiv<size_t>(in, kSumLanes * kFoldChunks) + 1) * kSumLanes * 2 * kLine;
}

// Returns the workspace bytes of a thread.
size_t SliceBytes(int tokens, int in) {
  return std::max({BlockedScratchBytes(tokens, in), PanelScratchBytes(), IntegerScratchBytes(in)});
}

// Streamed: converts tokens [begin, end).
void ConvertTokens(const LinearJob& job, const Tensor& x, int begin, int end) {
  for (int k0 = 0; k0 < job.in(); k0 += job.sub_k()) {
    for (int t = begin; t < end; ++t) {
      job.kernel.convert(x.row<float>(t) + k0, std::min(job.sub_k(), job.in() - k0), job.X(k0, t));
    }
  }
}

// Converts one token over a K block to its column `to` of a tile of OuterArgs::rows.
void ConvertForOuter(const LinearJob& job, const float* x, int elements, int tile_rows,
                     uint32_t* to) {
  alignas(64) uint32_t words[kMaxSubWords];
  const size_t lane_stride = job.Words(elements) / kSumLanes * tile_rows;
  const int step = job.kernel.chunk * job.kernel.sub_chunks;
  for (int k = 0; k < elements; k += step) {
    const int here = std::min(step, elements - k);
    job.kernel.convert(x + k, here, reinterpret_cast<uint8_t*>(words));
    const size_t steps = job.Words(here) / kSumLanes;
    SpreadWords(words, steps, tile_rows, lane_stride, to);
    to += steps * tile_rows;
  }
}

void ConvertTile(const LinearJob& job, const Tensor& x, int tile) {
  const int begin = job.TileBegin(tile), rows = job.TileRows(tile);
  for (int k0 = 0; k0 < job.in(); k0 += job.fold_k()) {
    auto* const to = reinterpret_cast<uint32_t*>(job.XTile(k0, tile));
    for (int m = 0; m < rows; ++m) {
      ConvertForOuter(job, x.row<float>(begin + m) + k0, job.FoldEnd(k0) - k0, rows, to + m);
    }
  }
}

// Packs the i-th group of token_panel.vector tokens, of which the last may be smaller, as columns
// of the activation panel, for all K blocks.
void ConvertVector(const LinearJob& job, const Tensor& x, int i) {
  const TokenPanelKernel& kernel = job.kernel.token_panel;
  const int first = i * kernel.vector;
  const int tokens = std::min(kernel.vector, job.panel_tokens() - first);
  for (int k0 = 0; k0 < job.in(); k0 += job.fold_k()) {
    const float* rows[kSumLanes];
    for (int t = 0; t < tokens; ++t) rows[t] = x.row<float>(first + t) + k0;
    kernel.pack(rows, tokens, job.FoldEnd(k0) - k0, job.columns(),
                job.Panel(k0) + first * sizeof(float), job.PanelStride(k0));
  }
}

void ConvertPanel(ThreadPool& pool, const LinearJob& job, const Tensor& x) {
  const LinearJob rest = job.Rest();
  const int items = job.vectors() + (rest.tokens > 0 ? 1 : 0);
  ForEachOf(pool, job, items, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (i < job.vectors()) {
        ConvertVector(job, x, i);
      } else {
        ConvertTokens(rest, x.Rows(job.panel_tokens(), job.tokens), 0, rest.tokens);
      }
    }
  });
}

void Convert(ThreadPool& pool, const LinearJob& job, const Tensor& x) {
  if (job.has_panel()) return ConvertPanel(pool, job, x);
  if (job.streamed()) {
    return ForEachOf(pool, job, job.tokens, 4,
                     [&](int begin, int end) { ConvertTokens(job, x, begin, end); });
  }
  ForEachOf(pool, job, job.tiles(), 1, [&](int begin, int end) {
    for (int tile = begin; tile < end; ++tile) ConvertTile(job, x, tile);
  });
}

// Packs a matrix into panels in place, one panel at a time, through a copy.
void PrepackRows(ThreadPool& pool, const LinearKernel& kernel, int in, WeightMatrix* matrix) {
  const int rows = kernel.outer_columns, fold_k = kernel.chunk * kFoldChunks;
  const size_t row_bytes = static_cast<size_t>(matrix->format.RowBytes(in));
  const size_t panel_bytes = rows * row_bytes;
  std::vector<uint8_t> copies(pool.size() * panel_bytes);
  pool.RunRanges(matrix->rows() / rows, 1, [&](int64_t panel, int64_t, int thread) {
    auto* const values = static_cast<uint8_t*>(matrix->values.data) + panel * panel_bytes;
    uint8_t* const copy = copies.data() + thread * panel_bytes;
    memcpy(copy, values, panel_bytes);
    for (int k0 = 0; k0 < in; k0 += fold_k) {
      const int elements = std::min(fold_k, in - k0);
      const size_t lane_bytes = kernel.PackedWords(elements) / kSumLanes * rows * sizeof(float);
      const auto at = static_cast<size_t>(matrix->format.RowBytes(k0));
      kernel.pack({copy + at, row_bytes}, rows, elements, values + at * rows, lane_bytes);
    }
  });
  matrix->is_prepacked = true;
}

// Transposes [rows][columns] to [columns][rows] in place, through a copy.
template <typename T>
void TransposeRows(uint8_t* data, int rows, int64_t columns, uint8_t* copy) {
  memcpy(copy, data, rows * columns * sizeof(T));
  const T* const from = reinterpret_cast<const T*>(copy);
  T* to = reinterpret_cast<T*>(data);
  for (int64_t column = 0; column < columns; ++column) {
    for (int row = 0; row < rows; ++row) *to++ = from[row * columns + column];
  }
}

// Does what PrepackRows does, for codes that are multiplied by integers.
void PrepackCodes(ThreadPool& pool, const IntegerKernel& kernel, int in, WeightMatrix* matrix) {
  const int rows = kernel.columns;
  const int64_t row_bytes = matrix->format.RowBytes(in);
  std::vector<uint32_t> copies(pool.size() * rows * row_bytes / sizeof(uint32_t));
  pool.RunRanges(matrix->rows() / rows, 1, [&](int64_t panel, int64_t, int thread) {
    auto* const copy = reinterpret_cast<uint8_t*>(copies.data()) + thread * rows * row_bytes;
    for (const Tensor& t : {matrix->values, matrix->scales, matrix->zeros}) {
      if (t.empty()) continue;
      const int64_t bytes = t.bytes() / t.shape[0];  // bytes of a row; the codes have the most
      uint8_t* const data = static_cast<uint8_t*>(t.data) + panel * rows * bytes;
      if (t.data == matrix->values.data || t.dtype == DType::kF32) {
        TransposeRows<uint32_t>(data, rows, bytes / 4, copy);
      } else if (t.dtype == DType::kU8) {
        TransposeRows<uint8_t>(data, rows, bytes, copy);
      } else {
        TransposeRows<uint16_t>(data, rows, bytes / 2, copy);
      }
    }
  });
  matrix->is_prepacked = true;
}

// True if a matrix can be prepacked.
bool FitsPanels(const LinearKernel& kernel, int in, const WeightMatrix& w) {
  if (w.is_prepacked || reinterpret_cast<uintptr_t>(w.values.data) % kLine != 0) return false;
  if (kernel.integer.prepacked[0][1] != nullptr) {
    const int64_t groups = w.format.column_groups(in);
    return w.rows() % kernel.integer.columns == 0 && w.format.group_rows == 1 &&
           (groups == 1 || groups == CeilDiv(in, w.format.unit_columns()));
  }
  return kernel.prepacked.max_single_rows > 0 && in % kernel.packed_chunk == 0 &&
         !w.format.is_quantized() && w.rows() % kernel.outer_columns == 0;
}

}  // namespace

CpuLinear::CpuLinear(ThreadPool& pool, std::string_view instruction_set) : pool_(pool) {
  for (const LinearKernelSet& set : LinearKernelSets()) {
    if (instruction_set.empty() || instruction_set == set.name) {
      kernels_ = &set;
      return;
    }
  }
  KU_CHECK(false, "this machine cannot run " + std::string(instruction_set));
}

size_t CpuLinear::ScratchBytes(int max_tokens, int max_features) const {
  return BlocksSize(ActivationBytes(max_tokens, max_features)) +
         BlocksSize(SliceBytes(max_tokens, max_features) * pool_.size());
}

Status CpuLinear::Reserve(int max_tokens, int max_features) {
  max_tokens = std::max(max_tokens, max_tokens_);
  max_features = std::max(max_features, max_features_);
  if (max_tokens == max_tokens_ && max_features == max_features_) return OkStatus();
  const size_t slice_bytes = SliceBytes(max_tokens, max_features);
  KU_ASSIGN_OR_RETURN(Buffer activations,
                      AllocateBlocks(ActivationBytes(max_tokens, max_features)));
  KU_ASSIGN_OR_RETURN(Buffer workspace, AllocateBlocks(slice_bytes * pool_.size()));
  activations_ = std::move(activations);
  workspace_ = std::move(workspace);
  workspace_slice_ = slice_bytes;
  max_tokens_ = max_tokens;
  max_features_ = max_features;
  return OkStatus();
}

void CpuLinear::Apply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue) {
  const int tokens = static_cast<int>(x.rows());
  KU_CHECK(tokens <= max_tokens_ && w.in <= max_features_, "Reserve was called with less");
  if (tokens == 0) return;
  const LinearJob job{(*kernels_)[w.format()],
                      w,
                      epilogue,
                      out.ptr<float>(),
                      static_cast<size_t>(out.stride[0]),
                      static_cast<uint8_t*>(activations_.data()),
                      tokens};
  const Workspace workspace{static_cast<uint8_t*>(workspace_.data()), workspace_slice_};
  if (job.has_integers()) return ApplyInteger(pool_, job, x, workspace);
  Convert(pool_, job, x);
  const auto apply = job.streamed()    ? ApplyStreamed
                     : job.has_panel() ? ApplyTokenPanel
                                       : ApplyBlocked;
  apply(pool_, job, workspace);
}

void CpuLinear::Prepack(Linear* w) {
  const LinearKernel& kernel = (*kernels_)[w->format()];
  for (int part = 0; part < w->num_parts; ++part) {
    if (!FitsPanels(kernel, w->in, w->parts[part].weight)) return;
  }
  for (int part = 0; part < w->num_parts; ++part) {
    WeightMatrix* matrix = &w->parts[part].weight;
    if (kernel.integer.columns > 0) {
      PrepackCodes(pool_, kernel.integer, w->in, matrix);
    } else {
      PrepackRows(pool_, kernel, w->in, matrix);
    }
  }
}

int CpuLinear::FoldElements(DType type) const {
  const int elements = (*kernels_)[WeightFormat::Dense(type)].chunk * kFoldChunks;
  KU_CHECK(elements * DTypeBytes(type) <= kMaxFoldBytes);
  return elements;
}

void CpuLinear::ReadPrepacked(const Tensor& values, int64_t row, int begin, int n, void* to) const {
  const LinearKernel& kernel = (*kernels_)[WeightFormat::Dense(values.dtype)];
  const int fold = FoldElements(values.dtype);
  KU_CHECK(begin % fold == 0 && n <= fold);
  const int64_t columns = kernel.outer_columns, bytes = DTypeBytes(values.dtype);
  const auto* const panels = static_cast<const uint8_t*>(values.data);
  kernel.prepacked.read_row(
      panels + ((row - row % columns) * values.shape[1] + begin * columns) * bytes,
      static_cast<int>(row % columns), n, static_cast<uint8_t*>(to));
}

std::vector<std::string> CpuLinear::InstructionSets() {
  std::vector<std::string> names;
  for (const LinearKernelSet& set : LinearKernelSets()) names.emplace_back(set.name);
  return names;
}

std::string CpuLinear::KernelName() {
  return LinearKernelSets().front().name;
}

void Run(const Resources& resources, const ApplyArgs& args) {
  resources.linear.Apply(args.out, args.x, args.linear, args.epilogue);
}

}  // namespace kuiper::cpu
