// Linear layers with many tokens. A block of 64 rows of W by one K block is copied, and converted
// if needed, into the L2 cache as panels for outer products. Tiles of 6 tokens are multiplied by
// it. Meanwhile the next block is prefetched into L2. Bytes moved: W once per 510 to 1,020 tokens.
// Expected 0.87 of the multiply-add peak at T = 512. With few tokens, reading and packing W would
// take longer than its products. Prepacked W is stored as panels and uses this file with any number
// of tokens: 0.90 at T = 512, one token at the speed of memory.
#include <algorithm>
#include <cstring>
#include <new>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/linear/job.h"

namespace kuiper::cpu {
namespace {

constexpr int kTokenBlock = 510;    // this many to twice as many tokens share a block of W in L2
constexpr int kMinTokenBlock = 48;  // with smaller blocks, copying W again costs more
constexpr int kWeightBlock = kMaxFinishColumns;  // rows of W in L2

constexpr size_t Align(size_t bytes) {
  return CeilDiv(bytes, kLine) * kLine;
}

// A thread's workspace.
struct BlockSpace {
  uint8_t* panels;
  float* sums;    // [tokens][columns]: of a tile; of all tokens if K has several K blocks
  float* scales;  // [units][columns]
  Groups<kWeightBlock>* groups;  // scales and zero points of a block of W
};
size_t PanelBytes(int in) {
  // 64 rows of K blocks of 2,048 elements of 4 bytes or 4,096 of 2, or 32 rows of the latter in
  // FP32.
  const size_t k = Align(in);
  const size_t words = std::max(std::min(k, size_t{2048}) * 4, std::min(k, size_t{4096}) * 2);
  constexpr int kMinColumns = 2;  // columns of a panel, at least
  return kWeightBlock * words + 2 * kLine * kSumLanes * (kWeightBlock / kMinColumns);
}
constexpr size_t kScalesBytes = sizeof(float) * kMaxUnits * kWeightBlock;
constexpr size_t SumsBytes(int tokens) {
  return Align(sizeof(float) * kWeightBlock * std::max(tokens, kMaxTileRows));
}

// How one call with many tokens is cut.
struct Blocking {
  int rows = 0;    // rows of W per block
  int tiles = 0;   // tiles of tokens per block
  int blocks = 0;  // blocks of tokens
};
Blocking ChooseBlocking(const LinearJob& job, int threads) {
  Blocking b;
  // Panels of weights converted to FP32 take twice the space.
  b.rows = job.kernel.packed_chunk_bytes > 64 ? kWeightBlock / 2 : kWeightBlock;
  // Prepacked W needs no packing, so blocks may be small: threads then end at nearly the same time.
  // Of two tiles the second one finds W in L2. (AVX2 only: with other sets one tile takes all those
  // tokens.)
  constexpr int kBlocksPerThread = 16;
  if (job.prepacked() &&
      (job.tiles() == 2 || CountItems(job, b.rows) < kBlocksPerThread * threads)) {
    b.rows = job.kernel.outer_columns;
  }
  const int weight_items = CountItems(job, b.rows);
  KU_CHECK(weight_items > 0);
  int blocks = std::max(1, job.tokens / kTokenBlock);
  // Each thread gets the same tokens in all linear layers.
  if (blocks > threads) blocks -= blocks % threads;
  blocks =
      std::max(blocks, std::min(CeilDiv(4 * threads, weight_items), job.tokens / kMinTokenBlock));
  b.tiles = CeilDiv(job.tiles(), blocks);
  b.blocks = CeilDiv(job.tiles(), b.tiles);
  return b;
}

// A block of W times a block of tokens, on one thread.
struct Block {
  const LinearJob& job;
  RowRange range;
  RowRange next;   // the block of W that this thread takes afterwards
  int begin, end;  // tiles of tokens
  const BlockSpace& space;

  int panel_columns() const { return job.kernel.outer_columns; }
  int panels() const { return CeilDiv(range.end - range.begin, panel_columns()); }
  int columns() const { return panels() * panel_columns(); }
};

// A K block [begin, end), and what to prefetch while it is computed.
struct Fold {
  int begin, end;
  const uint8_t* panels;
  size_t panel_stride;  // bytes from lane to lane
  size_t panel_bytes;   // from one panel to the next
  Prefetcher next;      // rows of W
  // lines per burst; a panel has a burst per packed K slice, and one per tile and lane
  int next_lines;
  size_t ahead_step;  // prepacked: bytes a tile prefetches with each word
};

// Expands scales and zero points of the block's rows.
void WidenFold(const Block& block, const Fold& fold) {
  Groups<kWeightBlock>& groups = *block.space.groups;
  const RowRange& range = block.range;
  const int rows = range.end - range.begin, columns = block.columns();
  groups.Widen(block.job, range.part, {range.begin, rows, fold.begin, fold.end});
  float* scales = block.space.scales;
  for (int u = 0; u < groups.units; ++u, scales += columns) {
    for (int n = 0; n < columns; ++n) {
      scales[n] = groups.scales[std::min(n, rows - 1) * groups.units + u];
    }
  }
}

void PackFold(const Block& block, Fold& fold) {
  const LinearJob& job = block.job;
  const RowRange& range = block.range;
  if (job.quantized()) WidenFold(block, fold);
  uint8_t* panel = block.space.panels;
  for (int n = 0; n < block.columns(); n += block.panel_columns()) {
    const int there = std::min(range.end - range.begin - n, block.panel_columns());
    uint8_t* to = panel;
    for (int k = fold.begin; k < fold.end; k += job.kernel.packed_chunk) {
      fold.next.Fetch(fold.next_lines);
      const int elements = std::min(job.kernel.packed_chunk, fold.end - k);
      WeightRows rows = job.W(range.part, range.begin + n, k);
      if (job.quantized()) block.space.groups->Give(job, n, k - fold.begin, &rows);
      job.kernel.pack(rows, there, elements, to, fold.panel_stride);
      to += job.kernel.PackedWords(elements) / kSumLanes * block.panel_columns() * sizeof(float);
    }
    panel += kSumLanes * fold.panel_stride;
  }
}

Fold CopiedFold(const Block& block, int begin, int end) {
  const LinearJob& job = block.job;
  const size_t stride =
      job.kernel.PanelStride(job.kernel.PackedWords(end - begin), job.kernel.outer_columns);
  Fold fold{begin,
            end,
            block.space.panels,
            stride,
            kSumLanes * stride,
            FetchAfter(job, block.range, block.next, end),
            0,
            0};
  const int bursts =
      (block.end - block.begin) * kSumLanes + CeilDiv(end - begin, job.kernel.packed_chunk);
  fold.next_lines = CeilDiv(fold.next.lines * fold.next.rows, bursts * block.panels());
  PackFold(block, fold);
  return fold;
}

Fold PrepackedFold(const Block& block, int begin, int end) {
  const LinearJob& job = block.job;
  const size_t step_bytes = block.panel_columns() * sizeof(float);
  return {begin,
          end,
          job.Prepacked(block.range.part, block.range.begin, begin),
          job.RowBytes(end - begin) / kSumLanes * block.panel_columns(),
          job.PrepackedBytes(),
          FetchAfter(job, block.range, block.next, end),
          0,
          CeilDiv<size_t>(step_bytes, block.end - block.begin)};
}

// Sets what a tile prefetches while it computes panel p of prepacked W: the tile's share of panel p
// of the rows that come next. A single tile reads panels in linear order. If it prefetches at all,
// it prefetches what it reads soon.
void FetchAhead(const Block& block, const Fold& fold, int tile, int p, OuterArgs* args) {
  constexpr size_t kAhead = 8192;
  args->ahead_step = fold.ahead_step;
  if (block.job.is_one_tile()) {
    args->ahead = args->panel + kAhead;
  } else if (p < fold.next.rows) {
    args->ahead = fold.next.row + p * fold.next.stride +
                  (tile - block.begin) * fold.ahead_step *
                      block.job.kernel.PackedWords(fold.end - fold.begin);
  } else {
    args->ahead = args->panel;
    args->ahead_step = 0;
  }
}

// Multiplies all panels of the block by one tile of `count` rows of x, over one K block, into sums
// [rows][columns].
void BlockTile(const Block& block, Fold& fold, int tile, int count, float* sums) {
  const LinearJob& job = block.job;
  const OuterFn outer = job.TileOf(count);
  OuterArgs args;
  args.rows = job.XTile(fold.begin, tile);
  args.panel = fold.panels;
  args.panel_stride = fold.panel_stride;
  args.steps = static_cast<int>(job.Words(fold.end - fold.begin) / kSumLanes);
  args.scales = block.space.scales;
  args.scale_stride = block.columns();
  if (job.quantized()) {
    args.unit_steps = static_cast<int>(job.Words(job.w.format().unit_columns()) / kSumLanes);
  }
  args.sums = sums;
  args.sum_stride = block.columns();
  args.add = fold.begin > 0;
  args.next = &fold.next;
  args.next_lines = fold.next_lines;
  for (int p = 0; p < block.panels(); ++p) {
    if (job.prepacked()) FetchAhead(block, fold, tile, p, &args);
    outer(args);
    args.panel += fold.panel_bytes;
    args.scales += block.panel_columns();
    args.sums += block.panel_columns();
  }
}

void ApplyBlock(const Block& block) {
  const LinearJob& job = block.job;
  const int columns = block.columns(), first = job.TileBegin(block.begin);
  const bool one_fold = job.in() <= job.fold_k();
  for (int kb = 0; kb < job.in(); kb += job.fold_k()) {
    const int ke = std::min(job.in(), kb + job.fold_k());
    const bool last = ke == job.in();
    Fold fold = job.prepacked() ? PrepackedFold(block, kb, ke) : CopiedFold(block, kb, ke);
    for (int tile = block.begin; tile < block.end; ++tile) {
      const int token = job.TileBegin(tile), count = job.TileRows(tile);
      float* sums = block.space.sums;
      if (!one_fold) sums += static_cast<size_t>(token - first) * columns;
      if (last && block.end - block.begin > 1) {
        for (int m = 0; m < count; ++m) {
          const float* y = job.out + (token + m) * job.out_stride + block.range.column;
          for (int n = 0; n < columns; n += 16) __builtin_prefetch(y + n, 1);
        }
      }
      BlockTile(block, fold, tile, count, sums);
      if (last) FinishRows(job, block.range, token, count, sums, columns);
    }
  }
}

}  // namespace

void FinishRows(const LinearJob& job, const RowRange& range, int token, int count, float* sums,
                size_t stride) {
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
        SiluMulRow(y, sums, columns);
        break;
      case Epilogue::kGeluTanh:
      case Epilogue::kGeluErf:
        memcpy(y, sums, columns * sizeof(float));
        GeluRow(range.epilogue, y, columns);
    }
  }
}

size_t BlockedScratchBytes(int tokens, int in) {
  return PanelBytes(in) + kScalesBytes + sizeof(Groups<kWeightBlock>) +
         SumsBytes(std::min(tokens, 2 * kTokenBlock + kMaxTileRows));
}

void ApplyBlocked(ThreadPool& pool, const LinearJob& job, const Workspace& workspace) {
  const Blocking blocking = ChooseBlocking(job, pool.size());
  ForEachRange(pool, job, blocking.rows, blocking.blocks, [&](int thread) {
    uint8_t* const base = workspace.of(thread);
    uint8_t* const scales = base + PanelBytes(job.in());
    uint8_t* const groups = scales + kScalesBytes;
    const BlockSpace space{base, reinterpret_cast<float*>(groups + sizeof(Groups<kWeightBlock>)),
                           reinterpret_cast<float*>(scales), new (groups) Groups<kWeightBlock>};
    return [&, space](const RowRange& range, const RowRange& next, int block) {
      const int begin = block * blocking.tiles;
      ApplyBlock({job, range, next, begin, std::min(begin + blocking.tiles, job.tiles()), space});
    };
  });
}

}  // namespace kuiper::cpu
