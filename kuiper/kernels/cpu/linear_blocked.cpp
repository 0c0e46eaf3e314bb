// Linear layers with many tokens: a block of 64 rows of W by one fold block is copied (16-bit:
// widened where needed) into the L2 cache as panels of 4 rows; a tile of 6 rows of x stays in L1;
// the next block is prefetched meanwhile. Bytes moved: W once per ~512 tokens. Expected 0.85 of the
// multiply-add peak at T = 512; between 6 and 32 tokens memory and arithmetic overlap only partly
// (0.5-0.8 of the tighter limit).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/kernels.h"
#include "kuiper/kernels/cpu/linear_job.h"

namespace kuiper {
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
};
size_t PanelBytes(int in) {
  // 64 rows of 16-element chunks of 4 bytes or 32-element ones of 2, or 32 rows of the latter in
  // FP32.
  const size_t k = Align(in);
  return kWeightBlock * std::max(std::min(k, size_t{2048}) * 4, std::min(k, size_t{4096}) * 2);
}
constexpr size_t kLanesBytes = sizeof(float) * kWeightBlock * kMaxTileRows * kLanes;
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
Blocking ChooseBlocking(const Job& job, int threads) {
  Blocking b;
  const bool few = job.tokens <= kFewTokens;
  b.copy = !few;
  // Panels that widen 16-bit weights take twice the space.
  b.rows = few ? kFewWeightBlock : job.kernel.chunk_bytes > 64 ? kWeightBlock / 2 : kWeightBlock;
  b.weight_items = CountItems(job, b.rows);
  int blocks = CeilDiv(job.tokens, kTokenBlock);
  blocks =
      std::max(blocks, std::min(CeilDiv(4 * threads, b.weight_items), job.tokens / kMinTokenBlock));
  b.tokens = CeilDiv(CeilDiv(job.tokens, blocks), kMaxTileRows) * kMaxTileRows;
  b.items = b.weight_items * CeilDiv(job.tokens, b.tokens);
  return b;
}

void PackBlock(const Job& job, const RowRange& range, int kb, int ke, bool copy, uint8_t* panels) {
  const int rows = range.end - range.begin;
  const int num_panels = CeilDiv(rows, kPanelRows);
  for (int k0 = kb; k0 < ke; k0 += job.sub_k()) {
    for (int p = 0; p < num_panels; ++p, panels += kPanelRows * job.XStride(k0)) {
      const int left = rows - p * kPanelRows;
      if (!copy && left >= kPanelRows) continue;  // thin panels are always padded copies
      job.kernel.pack(job.W(range.part, range.begin + p * kPanelRows, k0), job.RowBytes(),
                      std::min(left, kPanelRows), std::min(job.sub_k(), ke - k0), panels);
    }
  }
}

// Finishes sums [count][stride], to which the bias is added in place, as the output rows
// [token, token + count).
void WriteSums(const Job& job, const RowRange& range, int token, int count, float* sums,
               int stride) {
  const int columns = range.end - range.begin;
  const Tensor& bias = job.w.parts[range.part].bias;
  float b[kWeightBlock];
  if (!bias.empty()) {
    for (int n = 0; n < columns; ++n) b[n] = BiasAt(bias, range.begin + n);
  }
  for (int m = 0; m < count; ++m, sums += stride) {
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
        cpu::SiluMulRow(y, sums, columns);
    }
  }
}

// All panels of one block times `count` <= kMaxTileRows rows of x, over one fold block [kb, ke).
void BlockTile(const Job& job, const RowRange& range, bool copy, int kb, int ke, int token,
               int count, const Workspace& space, float* sums, Prefetcher& next, int next_lines) {
  const int rows = range.end - range.begin;
  const int num_panels = CeilDiv(rows, kPanelRows);
  const uint8_t* panel = space.panels;
  TileArgs args;
  args.w_stride = job.RowBytes();
  args.sum_stride = num_panels * kPanelRows;
  args.add = kb > 0;
  for (int k0 = kb; k0 < ke; k0 += job.sub_k()) {
    args.x_stride = job.XStride(k0);
    args.k = std::min(job.sub_k(), ke - k0);
    args.first = k0 == kb;
    args.last = k0 + job.sub_k() >= ke;
    // The tile of x that follows: same rows, next sub-block, or the next rows.
    const int next_k = args.last ? kb : k0 + job.sub_k();
    const int next_token = args.last ? token + count : token;
    const size_t x_bytes = next_token < job.tokens ? count * job.XStride(next_k) : 0;
    Prefetcher x{x_bytes > 0 ? job.X(next_k, next_token) : nullptr, 0, 1,
                 static_cast<int>(x_bytes / kLine)};
    if (x.lines == 0) x.rows = 0;
    const int x_lines = CeilDiv(x.lines, num_panels);
    for (int p = 0; p < num_panels; ++p, panel += kPanelRows * args.x_stride) {
      next.Fetch(next_lines);
      x.Fetch(x_lines);
      const bool packed = copy || rows - p * kPanelRows < kPanelRows;
      args.w = packed ? panel : job.W(range.part, range.begin + p * kPanelRows, k0);
      // Where a tile has fewer rows, two of them use a panel while it is in L1.
      for (int m = 0, tile = 0; m < count; m += tile) {
        tile = Job::NextRows(count - m, job.kernel.tile_rows);
        args.x = job.X(k0, token + m);
        args.lanes = space.lanes + (p * kMaxTileRows + m) * kPanelRows * kLanes;
        args.sums = sums + m * args.sum_stride + p * kPanelRows;
        (packed ? job.kernel.panel : job.kernel.file4)[tile](args);
      }
    }
  }
}

// One block of W times the tokens [t0, t1). `next` is the block this thread takes afterwards.
void ApplyBlock(const Job& job, const RowRange& range, const RowRange& next, bool copy, int t0,
                int t1, const Workspace& space) {
  const int columns = CeilDiv(range.end - range.begin, kPanelRows) * kPanelRows;
  const int tiles = CeilDiv(t1 - t0, kMaxTileRows);
  const bool one_fold = job.in() <= job.fold_k();
  for (int kb = 0; kb < job.in(); kb += job.fold_k()) {
    const int ke = std::min(job.in(), kb + job.fold_k());
    const bool last = ke == job.in();
    PackBlock(job, range, kb, ke, copy, space.panels);
    const RowRange& ahead = last ? next : range;
    const int ahead_k = last ? 0 : ke;
    const int fetch_k = std::min(job.fold_k(), job.in() - ahead_k);
    Prefetcher fetch;
    if (ahead.end > ahead.begin) {
      const size_t bytes = fetch_k * DTypeBytes(job.kernel.weights);
      fetch = {job.W(ahead.part, ahead.begin, ahead_k), job.RowBytes(), ahead.end - ahead.begin,
               static_cast<int>(CeilDiv(bytes, kLine))};
    }
    const int calls = tiles * (columns / kPanelRows) * CeilDiv(ke - kb, job.sub_k());
    const int lines = CeilDiv(fetch.lines * fetch.rows, calls);
    for (int t = t0, count = 0; t < t1; t += count) {
      count = Job::NextRows(t1 - t, kMaxTileRows);
      float* sums = one_fold ? space.sums : space.sums + static_cast<size_t>(t - t0) * columns;
      if (last && tiles > 1) {
        for (int m = 0; m < count; ++m) {
          const float* y = job.out + (t + m) * job.out_stride + range.column;
          for (int n = 0; n < columns; n += 16) __builtin_prefetch(y + n, 1);
        }
      }
      BlockTile(job, range, copy, kb, ke, t, count, space, sums, fetch, lines);
      if (last) WriteSums(job, range, t, count, sums, columns);
    }
  }
}

}  // namespace

size_t BlockedScratchBytes(int tokens, int in) {
  return PanelBytes(in) + kLanesBytes + SumsBytes(std::min(tokens, kTokenBlock + kMaxTileRows));
}

void ApplyBlocked(ThreadPool& pool, const Job& job, uint8_t* workspace, size_t workspace_bytes) {
  const Blocking blocking = ChooseBlocking(job, pool.size());
  std::atomic<int> next_item{0};
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    uint8_t* base = workspace + thread * workspace_bytes;
    const size_t panel_bytes = PanelBytes(job.in());
    const Workspace space{base, reinterpret_cast<float*>(base + panel_bytes),
                          reinterpret_cast<float*>(base + panel_bytes + kLanesBytes)};
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
      if (job.paired()) {
        const RowRange up = UpRows(range);
        ApplyBlock(job, range, up, blocking.copy, t0, t1, space);
        ApplyBlock(job, up, after, blocking.copy, t0, t1, space);
      } else {
        ApplyBlock(job, range, after, blocking.copy, t0, t1, space);
      }
    }
  });
}

}  // namespace kuiper
