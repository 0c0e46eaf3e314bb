// Linear layers with 13 to 72 tokens, whose words of W are factors as they are stored or
// pairs of them: outer products of a few rows of W, read where they lie, by panels of up to 64
// tokens (AVX2: 24), each of which stays in the L2 cache. W is neither copied nor transposed; the
// next rows are fetched into L2 meanwhile. Bytes moved: W. Expected: the better of 0.9 of the read
// bandwidth and 0.87 of the multiply-add peak (AVX2, whose panels are narrow: 0.7). Tokens that are
// too few for a vector are computed as linear_streamed.cpp does, while the rows are in L2.
#include <algorithm>
#include <atomic>

#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear_job.h"

namespace kuiper::cpu {
namespace {

constexpr int kMaxRows = 48;  // of W per block
constexpr int kBlockBytes = 128 << 10;

// A thread's workspace, in floats.
constexpr size_t kSums = size_t{1} * kMaxRows * kMaxPanelVectors * kSumLanes;  // [rows][columns]
constexpr size_t kOutputs = size_t{1} * kSumLanes * kMaxRows;  // [16 tokens][kMaxRows]

// A block of rows of W, on one thread.
struct Block {
  const LinearJob& job;
  const RowRange& range;
  float* workspace;

  int rows() const { return range.end - range.begin; }
};

// The sums of rows of W, which args begins with, by a panel over a fold block.
void MultiplyRows(const TokenPanels& kernels, int vectors, int num_rows, OuterArgs args) {
  const int full = kernels.rows[vectors - 1];
  for (int r = 0, rows; r < num_rows; r += rows) {
    rows = LinearJob::NextRows(num_rows - r, full);
    kernels.tiles[vectors - 1][rows](args);
    args.rows += rows * args.row_stride;
    args.sums += rows * args.sum_stride;
  }
}

// Writes finished sums [rows][columns], vector by vector. Whole squares of 16 rows are transposed:
// what is beyond the last one goes nowhere.
void WriteSums(const Block& block, const TokenPanel& panel) {
  const TokenPanels& kernels = block.job.kernel.token_panels;
  float* const outputs = block.workspace + kSums;
  for (int t = panel.begin; t < panel.end; t += kernels.vector) {
    const float* sums = block.workspace + (t - panel.begin);
    for (int n = 0; n < block.rows(); n += kSumLanes) {
      kernels.transpose(sums + n * panel.columns, panel.columns, outputs + n, kMaxRows);
    }
    FinishRows(block.job, block.range, t, std::min(kernels.vector, panel.end - t), outputs,
               kMaxRows);
  }
}

// How often the tiles of `rows` rows by a panel fetch within the fold block that starts at k0.
int CountBursts(const LinearJob& job, const TokenPanel& panel, int rows, int k0) {
  const TokenPanels& kernels = job.kernel.token_panels;
  const int tiles = CeilDiv(rows, kernels.rows[panel.vectors - 1]);
  const int steps = static_cast<int>(job.Words(job.FoldEnd(k0) - k0) / kSumLanes);
  return tiles * kSumLanes / kernels.lanes_at_once[panel.vectors - 1] * CeilDiv(steps, kBurstSteps);
}

// One panel. `next` is what a fold block fetches that is no longer needed by this block of rows.
void MultiplyPanel(const Block& block, const TokenPanel& panel, Prefetcher& next, int next_lines) {
  const LinearJob& job = block.job;
  const RowRange& range = block.range;
  const int rows = block.rows();
  for (int k0 = 0; k0 < job.in(); k0 += job.fold_k()) {
    const WeightRows w = job.W(range.part, range.begin, k0);
    OuterArgs args;
    args.rows = w.values;
    args.row_stride = w.stride;
    args.panel = job.PanelWords(panel, k0);
    args.panel_stride = job.PanelStride(panel, k0);
    args.steps = static_cast<int>(job.Words(job.FoldEnd(k0) - k0) / kSumLanes);
    args.sums = block.workspace;
    args.sum_stride = panel.columns;
    args.add = k0 > 0;
    // The further columns of the rows, which panels behind the first one find in the cache.
    Prefetcher further = FetchAfter(job, range, {}, job.FoldEnd(k0));
    const int bursts = CountBursts(job, panel, rows, k0);
    const bool last = job.FoldEnd(k0) == job.in();
    args.next = last ? &next : &further;
    args.next_lines = last ? next_lines : CeilDiv(further.lines * further.rows, bursts);
    MultiplyRows(job.kernel.token_panels, panel.vectors, rows, args);
  }
  WriteSums(block, panel);
}

// The thread takes the rows `after` afterwards.
void MultiplyBlock(const Block& block, const RowRange& after) {
  const LinearJob& job = block.job;
  const int last = (job.in() - 1) / job.fold_k() * job.fold_k();
  int bursts = 0;
  for (int i = 0; i < job.panels(); ++i) {
    bursts += CountBursts(job, job.Panel(i), block.rows(), last);
  }
  Prefetcher next = FetchAfter(job, block.range, after, job.in());
  const int next_lines = CeilDiv(next.lines * next.rows, bursts);
  for (int i = 0; i < job.panels(); ++i) MultiplyPanel(block, job.Panel(i), next, next_lines);
}

// Rows of W per block: as L2 holds beside the panel, but at least four blocks per thread.
int BlockRows(const LinearJob& job, int threads) {
  const auto by_bytes = static_cast<int>(kBlockBytes / job.RowBytes(job.FoldEnd(0)));
  const int by_threads = OutputColumns(job.w, job.epilogue) / (4 * threads);
  return std::clamp(std::min(by_bytes, by_threads) / kSumLanes * kSumLanes, kSumLanes, kMaxRows);
}

}  // namespace

size_t PanelScratchBytes() {
  return (kSums + kOutputs) * sizeof(float);
}

void ApplyTokenPanels(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                      size_t workspace_bytes) {
  const int block_rows = BlockRows(job, pool.size()), items = CountItems(job, block_rows);
  const LinearJob rest = job.Rest();
  std::atomic<int> next_item{0};
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    auto* const space = reinterpret_cast<float*>(workspace + thread * workspace_bytes);
    const auto rows = [&](int item) {
      return item < items ? FindRows(job, item, block_rows) : RowRange{};
    };
    ForEachClaimed(next_item, items, [&](int item, int next) {
      const RowRange range = rows(item), after = rows(next), up = UpRows(range);
      MultiplyBlock({job, range, space}, job.paired() ? up : after);
      if (job.paired()) MultiplyBlock({job, up, space}, after);
      if (rest.tokens > 0) MultiplyStreamed(rest, range, {}, space);
    });
  });
}

}  // namespace kuiper::cpu
