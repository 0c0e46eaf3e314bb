// Linear layers with many tokens: outer products of a block of 48 rows of W, which stays in the L2
// cache, and tiles of 16 or 32 tokens, whose words lie side by side in panels. W is read where it
// lies; only formats that are widened are copied, a block at a time. The next block is fetched into
// L2 meanwhile. Bytes moved: W once per ~1024 tokens. Expected: 0.9 of the multiply-add peak from
// 32 tokens on. Tokens that are too few for a group of 16 are computed as linear_streamed.cpp does,
// while the block is in L2.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear_job.h"

namespace kuiper::cpu {
namespace {

constexpr int kTokenBlock = 1024;   // tokens that share one copy of a block of W
constexpr int kMinTokenBlock = 64;  // smaller blocks do not pay for reading W again
constexpr int kWeightBlock = 48;    // rows of W in L2
constexpr int kBurstSteps = 8;      // between two bursts that fetch the next block

constexpr size_t Align(size_t bytes) {
  return CeilDiv(bytes, kLine) * kLine;
}

// Slices of a thread's workspace.
struct Workspace {
  uint8_t* factors;              // widen_rows
  float* sums;                   // [tile][kWeightBlock][columns of the tile]
  float* outputs;                // [16 tokens][kWeightBlock], or the rest of the tokens for SwiGLU
  Groups<kWeightBlock>* groups;  // of the rows of a block of W
};
// Of a row in a fold block whose chunks have so many bytes.
constexpr size_t FactorStride(size_t bytes) {
  return Align(bytes) + kLine;
}
size_t FactorBytes(int in) {
  // 48 rows of 16-element chunks of 4 bytes or 32-element ones of 2, or 24 rows of the latter in
  // FP32.
  const size_t k = Align(in);
  const size_t words = std::max(std::min(k, size_t{2048}) * 4, std::min(k, size_t{4096}) * 2);
  return kWeightBlock * FactorStride(words);
}
constexpr size_t SumsBytes(int tokens) {
  return sizeof(float) * kWeightBlock * CeilDiv(tokens, 2 * kSumLanes) * 2 * kSumLanes;
}
constexpr size_t kOutputsBytes = sizeof(float) * kWeightBlock * kSumLanes;

// How one call with many tokens is cut.
struct Blocking {
  int rows = 0;   // of W per block
  int tiles = 0;  // of tokens per block
  int items = 0;  // blocks of W times blocks of tokens
  int weight_items = 0;
};
Blocking ChooseBlocking(const LinearJob& job, int threads) {
  Blocking b;
  // Two words per pair of elements take twice the space.
  b.rows = job.kernel.chunk_bytes > 64 ? kWeightBlock / 2 : kWeightBlock;
  b.weight_items = CountItems(job, b.rows);
  KU_CHECK(b.weight_items > 0);
  const int tokens = job.tiled_tokens();
  int blocks = CeilDiv(tokens, kTokenBlock);
  blocks =
      std::max(blocks, std::min(CeilDiv(4 * threads, b.weight_items), tokens / kMinTokenBlock));
  b.tiles = CeilDiv(job.tiles(), blocks);
  b.items = b.weight_items * CeilDiv(job.tiles(), b.tiles);
  return b;
}

// A block of W times a block of tokens, on one thread.
struct Block {
  const LinearJob& job;
  RowRange range;
  RowRange next;   // the block of W that this thread takes afterwards
  int begin, end;  // tiles of tokens
  const Workspace& space;

  int rows() const { return range.end - range.begin; }
  // Of `tile` in the sums; it has those of one tile where K is one fold block.
  float* Sums(int tile) const {
    const bool one_fold = job.in() <= job.fold_k();
    return space.sums +
           (one_fold ? 0 : (tile - begin) * kWeightBlock * job.kernel.widest().columns);
  }
};

// A fold block [begin, end) of K: its factors, and what to fetch while it is computed.
struct Fold {
  int begin = 0, end = 0;
  int steps = 0, unit_steps = 0;  // as in OuterArgs
  const uint8_t* rows = nullptr;  // factors of the block, `stride` bytes from row to row
  size_t stride = 0;
  Prefetcher next;     // rows of W
  int next_lines = 0;  // of them in each unit and pass
};

// Finds or makes the factors of the block.
void LoadFactors(const Block& block, Fold& fold) {
  const LinearJob& job = block.job;
  const LinearKernel& kernel = job.kernel;
  const RowRange& range = block.range;
  WeightRows rows = job.W(range.part, range.begin, fold.begin);
  const int elements = fold.end - fold.begin;
  if (!kernel.widens && elements % kernel.chunk == 0) {
    fold.rows = rows.values;
    fold.stride = rows.stride;
    return;
  }
  if (job.quantized()) {
    Groups<kWeightBlock>& groups = *block.space.groups;
    groups.Widen(job, range.part, {range.begin, block.rows(), fold.begin, fold.end});
    groups.Give(job, 0, 0, &rows);
  }
  fold.rows = block.space.factors;
  fold.stride = FactorStride(job.kernel.Words(elements) * sizeof(float));
  kernel.widen_rows(rows, block.rows(), elements, block.space.factors, fold.stride);
}

// Writes the rows [token, token + count) of the output, whose sums are [count][kWeightBlock]; the
// bias is added to them in place.
void WriteSums(const Block& block, int token, int count, float* sums) {
  const LinearJob& job = block.job;
  const RowRange& range = block.range;
  const int columns = block.rows();
  const Tensor& bias = job.w.parts[range.part].bias;
  float b[kWeightBlock];
  if (!bias.empty()) {
    for (int n = 0; n < columns; ++n) b[n] = BiasAt(bias, range.begin + n);
  }
  for (int m = 0; m < count; ++m, sums += kWeightBlock) {
    float* y = job.out + (token + m) * job.out_stride + range.column;
    if (!bias.empty()) {
      for (int n = 0; n < columns; ++n) sums[n] += b[n];
    }
    switch (range.epilogue) {
      case Epilogue::kStore:
        memcpy(y, sums, columns * sizeof(float));
        break;
      case Epilogue::kAdd:
        for (int n = 0; n < columns; ++n) y[n] += sums[n];
        break;
      case Epilogue::kSwiGlu:
        SiluMulRow(y, sums, columns);
        break;
      case Epilogue::kGeluTanh:
      case Epilogue::kGeluErf:
        memcpy(y, sums, columns * sizeof(float));
        GeluRow(range.epilogue, y, columns);
    }
  }
}

// The finished sums of a tile, group by group.
void WriteTile(const Block& block, int tile) {
  const LinearJob& job = block.job;
  const int columns = job.OuterOf(tile).columns;
  const float* sums = block.Sums(tile);
  for (int g = 0; g < job.GroupsOf(tile); ++g, sums += kSumLanes) {
    for (int n = 0; n < block.rows(); n += kSumLanes) {
      job.kernel.transpose(sums + n * columns, columns, block.space.outputs + n, kWeightBlock);
    }
    const int token = (tile * job.tile_groups() + g) * kSumLanes;
    WriteSums(block, token, std::min(kSumLanes, job.tiled_tokens() - token), block.space.outputs);
  }
}

// The block times one tile of tokens, over one fold block.
void BlockTile(const Block& block, Fold& fold, int tile) {
  const LinearJob& job = block.job;
  const OuterTiles& outer = job.OuterOf(tile);
  OuterArgs args;
  args.row_stride = fold.stride;
  args.steps = fold.steps;
  args.unit_steps = fold.unit_steps;
  args.panel_stride = outer.PanelStride(fold.steps);
  args.sum_stride = outer.columns;
  args.add = fold.begin > 0;
  args.next = &fold.next;
  args.next_lines = fold.next_lines;
  for (int r = 0, rows; r < block.rows(); r += rows) {
    rows = std::min(kMaxTileRows, block.rows() - r);
    args.rows = fold.rows + r * fold.stride;
    if (job.quantized()) args.scales = block.space.groups->scales[r];
    for (int n = 0; n < outer.columns; n += outer.tile_columns) {
      args.panel = job.Panel(fold.begin, tile) + n * sizeof(float);
      args.sums = block.Sums(tile) + r * outer.columns + n;
      outer.tiles[rows](args);
    }
  }
}

// The rows of W to fetch while a block is computed up to column `end`: its own further columns,
// else the next block.
Prefetcher FetchAfter(const Block& block, int end) {
  const LinearJob& job = block.job;
  const bool last = end == job.in();
  const RowRange& rows = last ? block.next : block.range;
  if (rows.end <= rows.begin) return {};
  const int k = last ? 0 : end;
  return job.Fetch(rows.part, rows.begin, rows.end - rows.begin, k,
                   std::min(k + job.fold_k(), job.in()));
}

// How often the tiles of a block fetch.
int CountBursts(const Block& block, const Fold& fold) {
  const OuterTiles& outer = block.job.OuterOf(block.begin);
  return (block.end - block.begin) * CeilDiv(block.rows(), kMaxTileRows) *
         (outer.columns / outer.tile_columns) * outer.passes * CeilDiv(fold.steps, fold.unit_steps);
}

Fold MakeFold(const Block& block, int k0) {
  const LinearJob& job = block.job;
  Fold fold;
  fold.begin = k0;
  fold.end = k0 + job.FoldAt(k0);
  fold.steps = static_cast<int>(job.Steps(fold.end - k0));
  fold.unit_steps =
      job.quantized() ? static_cast<int>(job.Steps(job.w.format().unit_columns())) : kBurstSteps;
  fold.next = FetchAfter(block, fold.end);
  fold.next_lines = CeilDiv(fold.next.lines * fold.next.rows, CountBursts(block, fold));
  return fold;
}

void ApplyBlock(const Block& block) {
  const LinearJob& job = block.job;
  for (int k0 = 0; k0 < job.in(); k0 += job.fold_k()) {
    Fold fold = MakeFold(block, k0);
    LoadFactors(block, fold);
    for (int tile = block.begin; tile < block.end; ++tile) {
      BlockTile(block, fold, tile);
      if (fold.end == job.in()) WriteTile(block, tile);
    }
  }
}

}  // namespace

size_t BlockedScratchBytes(int tokens, int in) {
  return FactorBytes(in) + kOutputsBytes + sizeof(Groups<kWeightBlock>) +
         SumsBytes(std::min(tokens, kTokenBlock));
}

void ApplyBlocked(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                  size_t workspace_bytes) {
  const Blocking blocking = ChooseBlocking(job, pool.size());
  const LinearJob rest = job.Rest();
  std::atomic<int> next_item{0};
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    uint8_t* const factors = workspace + thread * workspace_bytes;
    uint8_t* const outputs = factors + FactorBytes(job.in());
    uint8_t* const groups = outputs + kOutputsBytes;
    uint8_t* const sums = groups + sizeof(Groups<kWeightBlock>);
    const Workspace space{factors, reinterpret_cast<float*>(sums),
                          reinterpret_cast<float*>(outputs), new (groups) Groups<kWeightBlock>};
    const auto rows = [&](int item) {
      return item < blocking.items ? FindRows(job, item % blocking.weight_items, blocking.rows)
                                   : RowRange{};
    };
    ForEachClaimed(next_item, blocking.items, [&](int item, int next) {
      const int t0 = item / blocking.weight_items * blocking.tiles;
      const int t1 = std::min(t0 + blocking.tiles, job.tiles());
      const RowRange range = rows(item), after = rows(next);
      const RowRange first_next = job.paired() ? UpRows(range) : after;
      ApplyBlock({job, range, first_next, t0, t1, space});
      if (job.paired()) ApplyBlock({job, UpRows(range), after, t0, t1, space});
      if (t0 == 0 && rest.tokens > 0) MultiplyStreamed(rest, range, {}, space.outputs);
    });
  });
}

}  // namespace kuiper::cpu
