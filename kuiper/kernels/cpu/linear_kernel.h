// The micro-kernels of the linear layer, over tiles of rows of x by rows of W: a set for each
// instruction set, and in a set a kernel for each weight format. cpu_linear.cpp and the files of
// its three ways (blocking, threads) call them; linear_hwy.cpp and linear_avx512bf16.cpp implement
// them on linear_tile-inl.h.
//
// Numeric contract, identical for every set, tile and call: K is cut into fold blocks of
// kFoldChunks chunks (a chunk is 16 elements, 32 for BF16; the last one is padded with zeros).
// Inside a fold block one accumulator of 16 FP32 lanes starts at zero and takes the chunks left to
// right with fused multiply-adds; BF16 takes the odd, then the even element of pair i in lane i,
// which is what vdpbf16ps does, and its activations are rounded to BF16 (nearest, ties to even).
// The lanes are folded 8+8, 4+4, 2+2, 1+1, and the sums of the blocks are added left to right.
// Everything else (sub-blocks, tiles, packing, threads) moves the same additions around: few tokens
// keep the 16 lanes of a sum in registers (dot products along K), many tokens one lane of many sums
// (outer products), which is then added to its partners in the order of the fold.
//
// Quantised weights with float factors (E4M3, and integers with FP32; linear_integer.h has the
// contract of the others): K is cut into units of WeightFormat::unit_columns(). In a unit 16 lanes
// start at zero and take chunks of 32 as BF16 does, the odd element of pair i, then the even one,
// with code - zero as factor, which is exact (E4M3: the code's value / 256); x is rounded to BF16
// if that is the factor type, else not at all. The lanes of a unit, times its scale (E4M3: * 256),
// are added with a fused multiply-add to those of the fold block, which end as above.
//
// Two deviations: without FMA hardware (SSE4, scalar) F32 and F16 products, and those with scales,
// are rounded before they are added, and there BF16 products below 2^-126 are flushed before they
// are added. For BF16 factors subnormal operands and results count as zero everywhere, as vdpbf16ps
// defines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kuiper/kernels/cpu/linear_integer.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::cpu {

constexpr int kFoldChunks = 128;     // chunks per fold block
constexpr int kSumLanes = 16;        // FP32 lanes of one accumulator
constexpr int kPanelRows = 4;        // rows of W per tile of dot products
constexpr int kMaxTileRows = 6;      // rows of x per tile, at most; of W with panels of tokens
constexpr int kMaxRowsAlone = 12;    // of x in a tile that has all of them, beside prepacked W
constexpr int kMaxPanelVectors = 4;  // of tokens in a panel
// Units of a quantised row in a fold block, at most.
constexpr int kMaxUnits = kFoldChunks;

// Rows of a stored matrix from one of its columns on.
struct WeightRows {
  const uint8_t* values = nullptr;
  size_t stride = 0;  // bytes from row to row
  // Quantised: of each unit from that column on, unit_stride from row to row.
  const float* scales = nullptr;
  const int32_t* zeros = nullptr;
  int unit_stride = 0;
  int unit_chunks = 0;

  void Skip(int rows) {
    values += rows * stride;
    scales += rows * unit_stride;
    zeros += rows * unit_stride;
  }
};

// `column` is a multiple of the kernel's chunk.
inline WeightRows RowsOf(const WeightMatrix& w, int row, int column) {
  const size_t stride = static_cast<size_t>(w.values.stride[0]) * DTypeBytes(w.values.dtype);
  return {static_cast<const uint8_t*>(w.values.data) + row * stride + w.format.RowBytes(column),
          stride};
}

// The units in columns [begin, end), which lie in one fold block, of `rows` rows of a quantised W.
struct UnitRange {
  int row, rows;
  int begin, end;
};

// Walks over rows of W line by line and prefetches them into L2, a few lines at a time: in linear
// bursts, since rows side by side look like random access to the memory.
struct Prefetcher {
  const uint8_t* row = nullptr;
  size_t stride = 0;
  int rows = 0, lines = 0, line = 0;

  void Fetch(int count) {
    for (; count > 0 && rows > 0; --count) {
      __builtin_prefetch(row + line * 64, 0, 2);
      if (++line == lines) {
        line = 0;
        row += stride;
        --rows;
      }
    }
  }
};

// Tiles of dot products over one range of K inside a fold block.
struct TileArgs {
  const uint8_t* x = nullptr;  // converted activations, whole chunks
  size_t x_stride = 0;         // bytes from row to row
  WeightRows w;                // as they are stored
  int k = 0;                   // elements
  int tiles = 1;           // of rows of W side by side; more than one if this is the whole range
  float* lanes = nullptr;  // [rows of x][rows of W][16]: accumulators between calls, scratch else
  bool first = true;       // accumulators start at zero, not from `lanes`
  bool last = true;        // fold them into `sums`; else they stay in `lanes`
  float* sums = nullptr;   // [rows of x][rows of W of all tiles]
  size_t sum_stride = 0;   // floats from row to row
  bool add = false;        // sums += fold, not sums = fold
  // Fetched, next_lines with each chunk: the tile that is `ahead` of this one, of so many lines a
  // row, and from the last ones on what is behind them.
  int ahead = 1;
  int lines = 0;
  Prefetcher next;
  int next_lines = 0;
};
using TileFn = void (*)(TileArgs& args);

// Fetches ranges of memory one after the other, a few lines at a time.
struct RangePrefetcher {
  struct Range {
    const uint8_t* begin;
    int64_t lines;
  };
  const Range* next = nullptr;
  int num_next = 0;  // ranges behind the one at hand
  const uint8_t* at = nullptr;
  int64_t left = 0;  // lines of the range at hand

  void Fetch(int64_t n) {
    for (; n > 0; --n) {
      if (left == 0) {
        if (num_next == 0) return;
        at = next->begin;
        left = next->lines;
        ++next;
        --num_next;
      }
      __builtin_prefetch(at, 0, 2);
      at += 64;
      --left;
    }
  }
};

// Floats of eight bits: they are exact in BF16.
constexpr int kNumFloat8Types = 2;
constexpr int Float8Index(DType type) {
  KU_CHECK(type == DType::kF8E4M3 || type == DType::kF8E5M2, "not of eight bits");
  return type == DType::kF8E4M3 ? 0 : 1;
}

// Dot products of rows of x with rows anywhere in memory: the sums of one fold block.
struct DotArgs {
  const uint8_t* x = nullptr;            // converted, whole chunks
  size_t x_stride = 0;                   // bytes from row to row
  const uint8_t* const* rows = nullptr;  // [count], as they are stored
  int count = 0;                         // a multiple of kPanelRows
  int k = 0;                             // elements, at most a fold block
  int ahead = 0;  // with a row, the one `ahead` behind it is fetched; `rows` goes on for as many
  RangePrefetcher* next = nullptr;  // or what this one has, at least as many lines as were read
  float* sums = nullptr;            // [rows of x][count]
  size_t sum_stride = 0;            // floats from row to row
};
using DotFn = void (*)(const DotArgs& args);

// The place of a lane among those of a fold block, in the order in which outer products take them
// (and back: it reverses four bits). Neighbours in this order are added first.
constexpr int LanePlace(int lane) {
  return (lane & 1) << 3 | (lane & 2) << 1 | (lane & 4) >> 1 | lane >> 3;
}

// One tile of outer products over a fold block: rows by columns of a panel. A chunk has chunk_bytes
// / 64 steps of 16 words (of four bytes), one for each lane; a panel has the words of a lane side
// by side.
struct OuterArgs {
  // Rows of x: [place of the lane][steps][outer_rows] words. Of W, for columns of tokens: as they
  // are stored, row_stride bytes from row to row.
  const uint8_t* rows = nullptr;
  size_t row_stride = 0;
  const uint8_t* panel = nullptr;  // [place of the lane][steps][columns] words
  size_t panel_stride = 0;         // bytes from lane to lane
  int steps = 0;
  const float* scales = nullptr;  // quantised: [units], scale_stride from one to the next,
  int scale_stride = 0;           // [outer_columns]
  int unit_steps = 0;
  float* sums = nullptr;       // [rows][columns]
  size_t sum_stride = 0;       // floats from row to row
  bool add = false;            // sums += fold, not sums = fold
  Prefetcher* next = nullptr;  // next_lines for each lane
  int next_lines = 0;
  // Instead of that, beside prepacked W and panels of tokens: what is here with each word, or chunk
  // of W, which moves it on by ahead_step bytes.
  const uint8_t* ahead = nullptr;
  size_t ahead_step = 0;
};
using OuterFn = void (*)(const OuterArgs& args);

// Gives a row of x, `steps` steps of converted words, its place in a tile of OuterArgs::x in which
// `rows` are side by side.
inline void SpreadWords(const uint32_t* words, size_t steps, int rows, size_t lane_stride,
                        uint32_t* to) {
  for (; steps > 0; --steps, words += kSumLanes, to += rows) {
    for (int lane = 0; lane < kSumLanes; ++lane) to[LanePlace(lane) * lane_stride] = words[lane];
  }
}

// Outer products of rows of W where they lie by a panel of tokens, of dense kinds whose words of
// four bytes are factors as they are stored or hold a pair of them.
struct TokenPanelKernel {
  int vector = 0;      // tokens of one; 0: there are no such tiles
  int min_tokens = 0;  // that a panel pays for
  int max_vectors = 0;
  int max_rest = 0;  // of them that dot products take, since a vector would be half empty
  // Up to a vector of rows of x, k elements of each, and zeros where there are fewer, as columns of
  // a panel of `columns`, the first of which is at `panel`, in the order that `transpose` undoes.
  void (*pack)(const float* const* x, int tokens, int k, int columns, uint8_t* panel,
               size_t panel_stride) = nullptr;
  // [vectors - 1][m]: m rows of W by the panel.
  OuterFn tiles[kMaxPanelVectors][kMaxTileRows + 1] = {};
  int rows[kMaxPanelVectors] = {};           // of W in a tile, at most
  int lanes_at_once[kMaxPanelVectors] = {};  // of them in a pass over the rows
  // Sums of 16 rows of W by a vector of columns -> those of its tokens, each with its rows of W
  // side by side. Strides in floats; lines of 64 bytes.
  void (*transpose)(const float* rows, size_t stride, float* to, size_t to_stride) = nullptr;
};

// Tiles by panels of prepacked W: outer_columns rows with their factors as they are stored.
struct PrepackedKernel {
  int max_rows_alone = 0;  // of x in one tile; 0: W is not prepacked
  // [m]: m rows of x, side by side, that are all; and m of outer_rows.
  OuterFn alone[kMaxRowsAlone + 1] = {};
  OuterFn tiles[kMaxTileRows + 1] = {};
  // k elements of a row of a panel without gaps between lanes, as they were stored.
  void (*read_row)(const uint8_t* panel, int row, int k, uint8_t* to) = nullptr;
};

// The micro-kernels of one weight format.
struct LinearKernel {
  int chunk = 0;               // elements of K
  int chunk_bytes = 0;         // of converted activations and factors
  int sub_chunks = 0;          // chunks per sub-block: a tile of x of this depth stays in L1
  int tile_rows = 0;           // largest tile of x of dot products
  int outer_rows = 0;          // and of outer products,
  int outer_columns = 0;       // with as many rows of W,
  int short_columns = 0;       // or a part of them, where rows are short
  int packed_chunk = 0;        // elements of K that a panel of W has whole words of,
  int packed_chunk_bytes = 0;  // and their bytes in a row of it
  bool widens = false;         // factors have another type than the stored rows
  bool flush_subnormals = false;
  bool takes_whole_rows = false;  // tiles of dot products cut them into sub-blocks themselves
  // One token or two: rows are multiplied one by one, in the linear order that the CPU fetches
  // ahead of.
  bool rows_one_by_one = false;

  int Chunks(int elements) const { return (elements + chunk - 1) / chunk; }
  // Words of `elements` of a row of x, in whole chunks, and of a row in a panel of W.
  size_t Words(int elements) const {
    return static_cast<size_t>(Chunks(elements)) * chunk_bytes / sizeof(float);
  }
  size_t PackedWords(int elements) const {
    const int chunks = (elements + packed_chunk - 1) / packed_chunk;
    return static_cast<size_t>(chunks) * packed_chunk_bytes / sizeof(float);
  }
  // Bytes from lane to lane of a panel with so many words of each row: a line more than a lane is
  // long, so that one word of all lanes does not meet in one set of the cache.
  static size_t PanelStride(size_t words, int columns) {
    constexpr size_t kLine = 64;
    const size_t bytes = words / kSumLanes * columns * sizeof(float);
    return (bytes + kLine - 1) / kLine * kLine + kLine;
  }

  // x [k] f32 -> ceil(k / chunk) chunks, zero padded.
  void (*convert)(const float* x, int k, uint8_t* chunks) = nullptr;
  // `rows` <= outer_columns stored rows, k elements each -> a panel of OuterArgs, padded
  // with zeros along K.
  void (*pack)(const WeightRows& w, int rows, int k, uint8_t* panel, size_t panel_stride) = nullptr;
  // The same of dense rows anywhere.
  void (*pack_scattered)(const uint8_t* const* rows, int count, int k, uint8_t* panel,
                         size_t panel_stride) = nullptr;
  // [m]: m rows of x by 1 or 4 stored rows, or by a panel.
  TileFn stored1[kMaxTileRows + 1] = {};
  TileFn stored4[kMaxTileRows + 1] = {};
  OuterFn outer[kMaxTileRows + 1] = {};
  // The same of dense kinds for rows of few chunks: x has m rows side by side, the panel is as wide
  // as ever, and the tile takes short_columns of it.
  OuterFn short_outer[kMaxTileRows + 1] = {};
  // [m]: m rows of x; of dense kinds.
  DotFn dots[kMaxTileRows + 1] = {};
  // BF16: the same with rows of codes, [Float8Index]; null where it pays to widen them to BF16
  // first.
  DotFn float8_dots[kNumFloat8Types][kMaxTileRows + 1] = {};

  TokenPanelKernel token_panel;
  PrepackedKernel prepacked;
  IntegerKernel integer;  // instead of all of the above

  // Quantised: what the units of a range have as factors, as the tiles take them: [rows][units],
  // and behind them space for 16 more. `zeros` may be null.
  void (*widen)(const WeightMatrix& w, const UnitRange& range, float* scales,
                int32_t* zeros) = nullptr;

  // Register-only multiply-adds in the form of this kernel: the yardstick of cpu_peaks.h.
  void (*burst)(int64_t iterations) = nullptr;
  int flops_per_burst_iteration = 0;
};

struct LinearKernelSet {
  const char* name = nullptr;
  // Dense kinds; then quantised ones, each with FP32 activations and with narrower ones.
  static constexpr int kNumDense = 3;
  std::array<LinearKernel, 2 * WeightFormat::kNumKinds - kNumDense> kernels;
  // Reads everything once; the result only keeps the loads alive.
  float (*read)(const uint8_t* data, size_t bytes) = nullptr;

  LinearKernel& operator[](WeightFormat format) { return kernels[IndexOf(format)]; }
  const LinearKernel& operator[](WeightFormat format) const { return kernels[IndexOf(format)]; }

 private:
  static int IndexOf(WeightFormat format) {
    const int kind = static_cast<int>(format.kind);
    if (!format.is_quantized()) return kind;
    return 2 * kind - kNumDense + (TakesNarrowX(format) ? 1 : 0);
  }
  // E4M3 has no integers: FP16 activations remain in FP32.
  static bool TakesNarrowX(WeightFormat format) {
    const DType type = format.numeric_type();
    return format.has_integers() ? type != DType::kF32 : type == DType::kBF16;
  }
};

// The sets this machine can run, best first; never empty.
const std::vector<LinearKernelSet>& LinearKernelSets();

// linear_quantized.cpp: gives `set`, which is of a target of Highway, its quantised kernels.
void AddQuantizedKernels(int64_t target, LinearKernelSet& set);

// linear_avx512vnni.cpp: if `set` is the AVX-512 one and the CPU has vpdpbusd, gives it the integer
// kernels in that instruction and another name.
bool UpgradeToAvx512Vnni(LinearKernelSet& set);

// linear_avx512bf16.cpp: if `set` has these and the CPU has vdpbf16ps, gives it the kernels of BF16
// activations in that instruction and another name.
bool UpgradeToAvx512Bf16(LinearKernelSet& set);

}  // namespace kuiper::cpu
