// Linear layers with many tokens: a block of 64 rows of W by one fold block is copied (16-bit:
// widened where needed) into the L2 cache as panels of 4 rows; a tile of 6 rows of x stays in L1;
// the next block is prefetched meanwhile. Bytes moved: W once per ~512 tokens. Expected 0.85 of the
// multiply-add peak at T = 512; between 8 and 32 tokens memory and arithmetic overlap only partly
// (0.5-0.8 of the tighter limit).
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

constexpr int kTokenBlock = 510;    // tokens that share one copy of a block of W
constexpr int kMinTokenBlock = 48;  // smaller blocks do not pay for copying W again
constexpr int kWeightBlock = 64;    // rows of W in L2
constexpr int kFewTokens = 24;      // up to here a copy of W is not read often enough to pay
constexpr int kFewWeightBlock = 16;

constexpr size_t Align(size_t bytes) {
  return CeilDiv(bytes, kLine) * kLine;
}

// Walks over rows of W line by line and prefetches them into L2, a few lines per tile: in linear
// bursts, since interleaved rows would look like random access to the memory.
struct Prefetcher {
  const uint8_t* row = nullptr;
  size_t stride = 0;
  int rows = 0, lines = 0, line = 0;

  void Fetch(int count) {
    for (; count > 0 && rows > 0; --count) {
      __builtin_prefetch(row + line * kLine, 0, 2);
      if (++line == lines) {
        line = 0;
        row += stride;
        --rows;
      }
    }
  }
};

// Slices of a thread's workspace.
struct Workspace {
  uint8_t* panels;  // [sub-block][panel][chunk][4][chunk_bytes]
  float* lanes;     // [panel][tile rows][4][16]
  float* sums;      // [tokens][columns]: of a tile, or of all tokens when K has several fold blocks
  Groups<kWeightBlock>* groups;  // of the rows of a block of W
};
size_t PanelBytes(int in) {
  // 64 rows of 16-element chunks of 4 bytes or 32-element ones of 2, or 32 rows of the latter in
  // FP32.
  const size_t k = Align(in);
  return kWeightBlock * std::max(std::min(k, size_t{2048}) * 4, std::min(k, size_t{4096}) * 2);
}
constexpr size_t kLanesBytes = sizeof(float) * kWeightBlock * kMaxTileRows * kSumLanes;
constexpr size_t SumsBytes(int tokens) {
  return Align(sizeof(float) * kWeightBlock * std::max(tokens, kMaxTileRows));
}
// How one call with many tokens is cut.
struct Blocking {
  int rows = 0;       // of W per block
  bool copy = false;  // W into panels; else tiles read the file
  int tokens = 0;     // per block
  int items = 0;      // blocks of W times blocks of tokens
  int weight_items = 0;
};
Blocking ChooseBlocking(const LinearJob& job, int threads) {
  Blocking b;
  const bool few = job.tokens <= kFewTokens;
  b.copy = !few;
  // Panels that widen 16-bit weights take twice the space.
  b.rows = few ? kFewWeightBlock : job.kernel.chunk_bytes > 64 ? kWeightBlock / 2 : kWeightBlock;
  b.weight_items = CountItems(job, b.rows);
  KU_CHECK(b.weight_items > 0);
  int blocks = CeilDiv(job.tokens, kTokenBlock);
  blocks =
      std::max(blocks, std::min(CeilDiv(4 * threads, b.weight_items), job.tokens / kMinTokenBlock));
  b.tokens = CeilDiv(CeilDiv(job.tokens, blocks), kMaxTileRows) * kMaxTileRows;
  b.items = b.weight_items * CeilDiv(job.tokens, b.tokens);
  return b;
}

// A block of W times a block of tokens, on one thread.
struct Block {
  const LinearJob& job;
  RowRange range;
  RowRange next;   // the block of W that this thread takes afterwards
  bool copy;       // W into panels
  int begin, end;  // tokens
  const Workspace& space;

  int panels() const { return CeilDiv(range.end - range.begin, kPanelRows); }
  int columns() const { return panels() * kPanelRows; }
  int row(int panel) const { return range.begin + panel * kPanelRows; }
  // Thin panels are always padded copies.
  bool packed(int panel) const { return copy || range.end - row(panel) < kPanelRows; }
};

// A fold block [begin, end) of K, and what to fetch while it is computed.
struct Fold {
  int begin, end;
  Prefetcher next;  // rows of W
  int next_lines;   // of them per panel
};

// Scales and zeros of all panels; rows behind the last have none and count nothing.
void WidenFold(const Block& block, const Fold& fold) {
  Groups<kWeightBlock>& groups = *block.space.groups;
  const RowRange& range = block.range;
  const int rows = range.end - range.begin;
  groups.Widen(block.job, range.part, {range.begin, rows, 1, fold.begin, fold.end});
  for (int i = rows; i < block.columns(); ++i) std::fill_n(groups.scales[i], kMaxUnits, 0.0f);
}

// Stored rows of a panel.
WeightRows PanelRows(const Block& block, const Fold& fold, int panel, int k0) {
  WeightRows rows = block.job.W(block.range.part, block.row(panel), k0);
  if (block.job.quantized()) {
    block.space.groups->Give(block.job, panel * kPanelRows, k0 - fold.begin, &rows);
  }
  return rows;
}

void PackFold(const Block& block, const Fold& fold) {
  const LinearJob& job = block.job;
  if (job.quantized()) WidenFold(block, fold);
  uint8_t* panel = block.space.panels;
  for (int k0 = fold.begin; k0 < fold.end; k0 += job.sub_k()) {
    for (int p = 0; p < block.panels(); ++p, panel += kPanelRows * job.XStride(k0)) {
      if (!block.packed(p)) continue;
      job.kernel.pack(PanelRows(block, fold, p, k0),
                      std::min(block.range.end - block.row(p), kPanelRows),
                      std::min(job.sub_k(), fold.end - k0), panel);
    }
  }
}

// Finishes sums [count][columns], to which the bias is added in place, as the output rows
// [token, token + count).
void WriteSums(const Block& block, int token, int count, float* sums) {
  const LinearJob& job = block.job;
  const RowRange& range = block.range;
  const int columns = range.end - range.begin;
  const Tensor& bias = job.w.parts[range.part].bias;
  float b[kWeightBlock];
  if (!bias.empty()) {
    for (int n = 0; n < columns; ++n) b[n] = BiasAt(bias, range.begin + n);
  }
  for (int m = 0; m < count; ++m, sums += block.columns()) {
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

// All panels of the block times `count` <= kMaxTileRows rows of x, over one fold block, into
// sums [count][columns].
void BlockTile(const Block& block, Fold& fold, int token, int count, float* sums) {
  const LinearJob& job = block.job;
  const uint8_t* panel = block.space.panels;
  TileArgs args;
  args.sum_stride = block.columns();
  args.add = fold.begin > 0;
  for (int k0 = fold.begin; k0 < fold.end; k0 += job.sub_k()) {
    args.x_stride = job.XStride(k0);
    args.k = std::min(job.sub_k(), fold.end - k0);
    args.first = k0 == fold.begin;
    args.last = k0 + job.sub_k() >= fold.end;
    // The tile of x that follows: same rows, next sub-block, or the next rows.
    const int next_k = args.last ? fold.begin : k0 + job.sub_k();
    const int next_token = args.last ? token + count : token;
    const size_t x_bytes = next_token < job.tokens ? count * job.XStride(next_k) : 0;
    Prefetcher x{x_bytes > 0 ? job.X(next_k, next_token) : nullptr, 0, 1,
                 static_cast<int>(x_bytes / kLine)};
    if (x.lines == 0) x.rows = 0;
    const int x_lines = CeilDiv(x.lines, block.panels());
    for (int p = 0; p < block.panels(); ++p, panel += kPanelRows * args.x_stride) {
      fold.next.Fetch(fold.next_lines);
      x.Fetch(x_lines);
      const bool packed = block.packed(p);
      args.w = PanelRows(block, fold, p, k0);
      if (packed) args.w.values = panel;
      // Where a tile has fewer rows, two of them use a panel while it is in L1.
      for (int m = 0, tile = 0; m < count; m += tile) {
        tile = LinearJob::NextRows(count - m, job.kernel.tile_rows);
        args.x = job.X(k0, token + m);
        args.lanes = block.space.lanes + (p * kMaxTileRows + m) * kPanelRows * kSumLanes;
        args.sums = sums + m * args.sum_stride + p * kPanelRows;
        (packed ? job.kernel.panel : job.kernel.stored4)[tile](args);
      }
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
  const int k0 = last ? 0 : end;
  const WeightRows w = job.W(rows.part, rows.begin, k0);
  const size_t bytes = job.RowBytes(std::min(job.fold_k(), job.in() - k0));
  return {w.values, w.stride, rows.end - rows.begin, static_cast<int>(CeilDiv(bytes, kLine))};
}

void ApplyBlock(const Block& block) {
  const LinearJob& job = block.job;
  const int columns = block.columns();
  const int tiles = CeilDiv(block.end - block.begin, kMaxTileRows);
  const bool one_fold = job.in() <= job.fold_k();
  for (int kb = 0; kb < job.in(); kb += job.fold_k()) {
    const int ke = std::min(job.in(), kb + job.fold_k());
    const bool last = ke == job.in();
    Fold fold{kb, ke, FetchAfter(block, ke), 0};
    const int calls = tiles * block.panels() * CeilDiv(ke - kb, job.sub_k());
    fold.next_lines = CeilDiv(fold.next.lines * fold.next.rows, calls);
    PackFold(block, fold);
    for (int t = block.begin, count = 0; t < block.end; t += count) {
      count = LinearJob::NextRows(block.end - t, kMaxTileRows);
      float* sums = block.space.sums;
      if (!one_fold) sums += static_cast<size_t>(t - block.begin) * columns;
      if (last && tiles > 1) {
        for (int m = 0; m < count; ++m) {
          const float* y = job.out + (t + m) * job.out_stride + block.range.column;
          for (int n = 0; n < columns; n += 16) __builtin_prefetch(y + n, 1);
        }
      }
      BlockTile(block, fold, t, count, sums);
      if (last) WriteSums(block, t, count, sums);
    }
  }
}

}  // namespace

size_t BlockedScratchBytes(int tokens, int in) {
  return PanelBytes(in) + kLanesBytes + sizeof(Groups<kWeightBlock>) +
         SumsBytes(std::min(tokens, kTokenBlock + kMaxTileRows));
}

void ApplyBlocked(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                  size_t workspace_bytes) {
  const Blocking blocking = ChooseBlocking(job, pool.size());
  std::atomic<int> next_item{0};
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    uint8_t* base = workspace + thread * workspace_bytes;
    const size_t panel_bytes = PanelBytes(job.in());
    uint8_t* const groups = base + panel_bytes + kLanesBytes;
    const Workspace space{base, reinterpret_cast<float*>(base + panel_bytes),
                          reinterpret_cast<float*>(groups + sizeof(Groups<kWeightBlock>)),
                          new (groups) Groups<kWeightBlock>};
    const auto take = [&] { return next_item.fetch_add(1, std::memory_order_relaxed); };
    const auto rows = [&](int item) {
      return item < blocking.items ? FindRows(job, item % blocking.weight_items, blocking.rows)
                                   : RowRange{};
    };
    // The next item is claimed before this one is computed, so that its weights are prefetched into
    // the cache of the core that will use them.
    for (int item = take(), next = 0; item < blocking.items; item = next) {
      next = take();
      const int t0 = item / blocking.weight_items * blocking.tokens;
      const int t1 = std::min(t0 + blocking.tokens, job.tokens);
      const RowRange range = rows(item), after = rows(next);
      const RowRange first_next = job.paired() ? UpRows(range) : after;
      ApplyBlock({job, range, first_next, blocking.copy, t0, t1, space});
      if (job.paired()) ApplyBlock({job, UpRows(range), after, blocking.copy, t0, t1, space});
    }
  });
}

}  // namespace kuiper::cpu
