// Linear layers with 13 to 72 tokens (AVX2: 7 to 27) if the stored words of W are operands or pairs
// of operands. They compute outer products of a few rows of W, in place, by a panel of up to 64
// tokens (AVX2: 24), which stays in the L2 cache. W is neither copied nor transposed. Meanwhile the
// next rows are prefetched into L2. Bytes moved: W. Expected: the slower of 0.9 of the read
// bandwidth and 0.87 of the multiply-add peak (AVX2: 0.7). Remaining tokens that are too few for a
// vector are computed as in streamed.cpp, while the rows are in L2.
//
// Measured for BF16 of Qwen3-0.6B on one Zen 4 core, with 13, 16, 24, 32, 48, 64 and 72 tokens.
// Packing W during the call (blocked.cpp) takes 1.36, 1.47, 1.28, 1.32, 1.14, 1.12 and 1.06 times
// as long. Dot products without a panel (streamed.cpp) take 1.15, 1.34, 1.22, 1.38, 1.27, 1.33 and
// 1.30 times as long.
#include <algorithm>

#include "kuiper/kernels/cpu/linear/job.h"

namespace kuiper::cpu {
namespace {

constexpr int kMaxRows = 48;  // rows of W per block
constexpr int kBlockBytes = 128 << 10;

// A thread's workspace, in floats.
constexpr size_t kSums = size_t{1} * kMaxRows * kMaxPanelVectors * kSumLanes;  // [rows][columns]
constexpr size_t kOutputs = size_t{1} * kSumLanes * kMaxRows;  // [16 tokens][kMaxRows]

// Returns the passes of a tile over its rows.
int Passes(const LinearJob& job) {
  return kSumLanes / job.kernel.token_panel.lanes_at_once[job.vectors() - 1];
}

// Multiplies rows of W by the panel over a K block of `chunks` K slices, and advances args past the
// rows.
void MultiplyRows(const LinearJob& job, int num_rows, int chunks, OuterArgs* args) {
  const TokenPanelKernel& kernel = job.kernel.token_panel;
  const int i = job.vectors() - 1;
  for (int r = 0, rows; r < num_rows; r += rows) {
    rows = LinearJob::NextRows(num_rows - r, kernel.rows[i]);
    kernel.tiles[i][rows](*args);
    args->rows += rows * args->row_stride;
    args->sums += rows * args->sum_stride;
    args->ahead += Passes(job) * chunks * args->ahead_step;
  }
}

// Writes finished sums [rows][columns] to the output, vector by vector. Whole squares of 16 rows
// are transposed; values past the last row are not used.
void WriteSums(const LinearJob& job, const RowRange& range, const float* sums, float* outputs) {
  const TokenPanelKernel& kernel = job.kernel.token_panel;
  for (int t = 0; t < job.panel_tokens(); t += kernel.vector) {
    for (int n = 0; n < range.end - range.begin; n += kSumLanes) {
      kernel.transpose(sums + n * job.columns() + t, job.columns(), outputs + n, kMaxRows);
    }
    FinishRows(job, range, t, std::min(kernel.vector, job.panel_tokens() - t), outputs, kMaxRows);
  }
}

// Sets what the tiles of a block prefetch: the rows that this thread takes next, in linear order.
void FetchAhead(const LinearJob& job, const RowRange& range, const RowRange& next,
                OuterArgs* args) {
  const bool is_last = next.end == next.begin;
  const RowRange& rows = is_last ? range : next;
  const WeightRows w = job.W(rows.part, rows.begin, 0);
  args->ahead = w.values;
  if (is_last) return;
  const int i = job.vectors() - 1;
  const int tiles = CeilDiv(range.end - range.begin, job.kernel.token_panel.rows[i]);
  args->ahead_step = CeilDiv<size_t>((rows.end - rows.begin) * w.stride,
                                     size_t{1} * tiles * Passes(job) * job.chunks());
}

void MultiplyBlock(const LinearJob& job, const RowRange& range, const RowRange& next,
                   float* workspace) {
  OuterArgs args;
  FetchAhead(job, range, next, &args);
  for (int k0 = 0; k0 < job.in(); k0 += job.fold_k()) {
    const WeightRows w = job.W(range.part, range.begin, k0);
    const int elements = job.FoldEnd(k0) - k0;
    args.rows = w.values;
    args.row_stride = w.stride;
    args.panel = job.Panel(k0);
    args.panel_stride = job.PanelStride(k0);
    args.steps = static_cast<int>(job.Words(elements) / kSumLanes);
    args.sums = workspace;
    args.sum_stride = job.columns();
    args.add = k0 > 0;
    MultiplyRows(job, range.end - range.begin, job.kernel.Chunks(elements), &args);
  }
  WriteSums(job, range, workspace, workspace + kSums);
}

// Returns the rows of W per block: the number that L2 holds together with the panel, but few enough
// for at least four blocks per thread.
int BlockRows(const LinearJob& job, int threads) {
  const auto by_bytes = static_cast<int>(kBlockBytes / job.RowBytes(job.FoldEnd(0)));
  const int by_threads = OutputColumns(job.w, job.epilogue) / (4 * threads);
  return std::clamp(std::min(by_bytes, by_threads) / kSumLanes * kSumLanes, kSumLanes, kMaxRows);
}

}  // namespace

size_t PanelScratchBytes() {
  return (kSums + kOutputs) * sizeof(float);
}

void ApplyTokenPanel(ThreadPool& pool, const LinearJob& job, const Workspace& workspace) {
  const LinearJob rest = job.Rest();
  ForEachRange(pool, job, BlockRows(job, pool.size()), 1, [&](int thread) {
    auto* const space = reinterpret_cast<float*>(workspace.of(thread));
    return [&, space](const RowRange& range, const RowRange& next, int) {
      MultiplyBlock(job, range, next, space);
      if (rest.tokens > 0) MultiplyStreamed(rest, range, {});
    };
  });
}

}  // namespace kuiper::cpu
