// The micro-kernels of the linear layer: one set per instruction set, and in each set one kernel
// per weight format. blocked.cpp, streamed.cpp, token_panel.cpp and integer.cpp call them for the
// blocks and threads of a call. dense.cpp, quantized.cpp, avx512bf16.cpp and avx512vnni.cpp
// implement them.
//
// The terms are those of cpu_ops.h. A tile is what a micro-kernel computes in registers. A panel
// has rows of W (or tokens) interleaved for outer products. A quantisation block (in names: unit)
// has WeightFormat::unit_columns() elements of K. A K block has kFoldChunks K slices.
//
// Numeric contract, identical for every set, tile and call:
//
// Dense weights. The last K slice is padded with zeros. Inside a K block an accumulator of 16 FP32
// lanes starts at zero and takes the slices from left to right with fused multiply-adds. For BF16,
// lane i takes the odd, then the even element of pair i, as vdpbf16ps does. BF16 activations are
// rounded to BF16 (nearest, ties to even). The lanes are reduced 8+8, 4+4, 2+2, 1+1, and the sums
// of the K blocks are added from left to right. Everything else (sub-blocks, tiles, packing,
// threads) only changes where and when the same additions happen. With few tokens, the 16 lanes of
// one sum stay in registers (dot products along K). With many tokens, one lane of many sums stays
// in registers (outer products). That lane is then added to its partners in the order of the
// reduction.
//
// Quantised weights with float operands (E4M3, and integers with FP32). In a quantisation block 16
// lanes start at zero and take slices of 32 elements as for BF16: the odd element of pair i, then
// the even one. The operand is code - zero point, which is exact (E4M3: the code's value / 256). x
// is rounded to BF16 if that is the operand type, else not at all. The lanes of a quantisation
// block, times its scale (E4M3: * 256), are added with a fused multiply-add to those of the K
// block. The K block ends as above.
//
// Quantised weights with integer activations (integer.h). In a quantisation block a row of x
// becomes integers times a scale: int16 (PowerOfTwoScaleOf in common/int8_row.h) or int8
// (CodeScaleOf). D is the sum of their products with code - zero point, which 32 bits hold exactly,
// in any order. y starts at zero and takes the quantisation blocks from left to right. A block
// changes it to fma(float(D) * scale of x, scale of W, y), where D and the product are rounded to
// FP32.
//
// There are two deviations. Without FMA hardware (SSE4, scalar), F32 and F16 products, and products
// with scales, are rounded before they are added, and BF16 products below 2^-126 are flushed before
// they are added. For BF16 operands, subnormal operands and results count as zero everywhere, as
// vdpbf16ps defines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kuiper/kernels/cpu/linear/integer.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::cpu {

constexpr int kFoldChunks = 128;        // K slices per K block
constexpr int kSumLanes = 16;           // FP32 lanes of one accumulator
constexpr int kPanelRows = 4;           // rows of W per tile of dot products
constexpr int kMaxTileRows = 6;         // tokens per tile, at most; of token panels: rows of W
constexpr int kMaxSingleTileRows = 12;  // tokens of a single tile by prepacked W, at most
constexpr int kMaxPanelVectors = 4;     // vectors of a token panel, at most
// Quantisation blocks of a row in a K block, at most.
constexpr int kMaxUnits = kFoldChunks;

// Rows of a stored matrix, starting at one of its columns.
struct WeightRows {
  const uint8_t* values = nullptr;
  size_t stride = 0;  // bytes from row to row
  // Quantised: scales and zero points of the quantisation blocks from that column on; unit_stride
  // is the number of them from row to row.
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

// `column` is a multiple of the elements of a K slice.
inline WeightRows RowsOf(const WeightMatrix& w, int row, int column) {
  const size_t stride = static_cast<size_t>(w.values.stride[0]) * DTypeBytes(w.values.dtype);
  return {static_cast<const uint8_t*>(w.values.data) + row * stride + w.format.RowBytes(column),
          stride};
}

// The quantisation blocks of columns [begin, end), inside one K block, of `rows` rows of a
// quantised W.
struct UnitRange {
  int row, rows;
  int begin, end;
};

// Prefetches rows of W into L2, a few lines at a time, one row after the other. Such bursts are
// linear: reading adjacent rows in parallel looks like random access to the memory.
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

// Tiles of dot products over a range of K inside a K block.
struct TileArgs {
  const uint8_t* x = nullptr;  // converted activations, whole K slices
  size_t x_stride = 0;         // bytes from row to row
  WeightRows w;                // as stored
  int k = 0;                   // elements
  // number of tiles, of adjacent rows of W; more than 1 only if the columns are the whole range
  int tiles = 1;
  float* lanes = nullptr;  // [rows of x][rows of W][16]: accumulators between calls, else scratch
  bool first = true;       // accumulators start at zero, not from `lanes`
  bool last = true;        // reduce the lanes into `sums`; else they stay in `lanes`
  float* sums = nullptr;   // [rows of x][rows of W of all tiles]
  size_t sum_stride = 0;   // floats from row to row
  bool add = false;        // sums += result, not sums = result
  // What to prefetch, next_lines lines with each K slice: the tile `ahead` tiles after this one,
  // `lines` lines of each row. After the last tile: `next`.
  int ahead = 1;
  int lines = 0;
  Prefetcher next;
  int next_lines = 0;
};
using TileFn = void (*)(TileArgs& args);

// Prefetches ranges of memory one after the other, a few lines at a time.
struct RangePrefetcher {
  struct Range {
    const uint8_t* begin;
    int64_t lines;
  };
  const Range* next = nullptr;
  int num_next = 0;  // ranges after the current one
  const uint8_t* at = nullptr;
  int64_t left = 0;  // lines left of the current range

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

// 8-bit float types; BF16 holds each of their values exactly.
constexpr int kNumFloat8Types = 2;
constexpr int Float8Index(DType type) {
  KU_CHECK(type == DType::kF8E4M3 || type == DType::kF8E5M2, "not of eight bits");
  return type == DType::kF8E4M3 ? 0 : 1;
}

// Dot products of rows of x with rows anywhere in memory: the sums of one K block.
struct DotArgs {
  const uint8_t* x = nullptr;            // converted, whole K slices
  size_t x_stride = 0;                   // bytes from row to row
  const uint8_t* const* rows = nullptr;  // [count], as stored
  int count = 0;                         // a multiple of kPanelRows
  int k = 0;                             // elements, at most a K block
  // With each row, the row `ahead` rows later is prefetched; `rows` has `ahead` more entries than
  // count. If `next` is set, it prefetches instead, at least as many lines as are read.
  int ahead = 0;
  RangePrefetcher* next = nullptr;
  float* sums = nullptr;  // [rows of x][count]
  size_t sum_stride = 0;  // floats from row to row
};
using DotFn = void (*)(const DotArgs& args);

// Returns the bit-reversed lane index (four bits), which is the position of a lane in the order in
// which outer products compute lanes: neighbours are added first. The function is its own inverse.
constexpr int LanePlace(int lane) {
  return (lane & 1) << 3 | (lane & 2) << 1 | (lane & 4) >> 1 | lane >> 3;
}

// One tile of outer products over a K block: rows by the columns of a panel. A K slice has
// chunk_bytes / 64 multiply-add steps of 16 words (of four bytes), one word for each lane.
struct OuterArgs {
  // Rows of x: [LanePlace of the lane][steps][rows of the tile] words. Rows of W, with token
  // panels: in place, row_stride bytes from row to row.
  const uint8_t* rows = nullptr;
  size_t row_stride = 0;
  const uint8_t* panel = nullptr;  // [LanePlace of the lane][steps][columns] words
  size_t panel_stride = 0;         // bytes from lane to lane
  int steps = 0;
  const float* scales = nullptr;  // quantised: [units][outer_columns]
  int scale_stride = 0;           // floats from unit to unit
  int unit_steps = 0;
  float* sums = nullptr;       // [rows][columns]
  size_t sum_stride = 0;       // floats from row to row
  bool add = false;            // sums += result, not sums = result
  Prefetcher* next = nullptr;  // next_lines for each lane
  int next_lines = 0;
  // Prepacked W and token panels use this instead of `next`: prefetch at `ahead` with each word (or
  // K slice of W), then advance by ahead_step bytes.
  const uint8_t* ahead = nullptr;
  size_t ahead_step = 0;
};
using OuterFn = void (*)(const OuterArgs& args);

// Copies a row of x, `steps` steps of converted words, to its column of a tile of OuterArgs::rows,
// in which `rows` rows are interleaved.
inline void SpreadWords(const uint32_t* words, size_t steps, int rows, size_t lane_stride,
                        uint32_t* to) {
  for (; steps > 0; --steps, words += kSumLanes, to += rows) {
    for (int lane = 0; lane < kSumLanes; ++lane) to[LanePlace(lane) * lane_stride] = words[lane];
  }
}

// Outer products of rows of W, in place, by a packed activation panel. Only for dense kinds whose
// stored four-byte words are one operand or a pair of operands.
struct TokenPanelKernel {
  int vector = 0;      // tokens per vector; 0: no token panels
  int min_tokens = 0;  // with fewer tokens a panel is slower
  int max_vectors = 0;
  // at most this many remaining tokens use dot products; a vector would be half empty
  int max_rest = 0;
  // Packs up to a vector of tokens, k elements each, as columns of a panel of `columns` columns;
  // the first column is at `panel`. Missing tokens are zeros. The columns are permuted; `transpose`
  // undoes the permutation.
  void (*pack)(const float* const* x, int tokens, int k, int columns, uint8_t* panel,
               size_t panel_stride) = nullptr;
  // [vectors - 1][m]: tiles of m rows of W by the panel.
  OuterFn tiles[kMaxPanelVectors][kMaxTileRows + 1] = {};
  int rows[kMaxPanelVectors] = {};           // rows of W in a tile, at most
  int lanes_at_once[kMaxPanelVectors] = {};  // lanes per pass over the rows
  // Transposes sums [16 rows of W][a vector of columns] to [tokens][16 rows of W]. Strides in
  // floats, multiples of 64 bytes.
  void (*transpose)(const float* rows, size_t stride, float* to, size_t to_stride) = nullptr;
};

// Tiles by panels of prepacked W. A panel has outer_columns rows in the stored type.
struct PrepackedKernel {
  int max_single_rows = 0;  // tokens of a single tile, at most; 0: W is not prepacked
  // [m]: tiles of m tokens; `single` if it is the only tile of a call, `tiles` if it is one of
  // several.
  OuterFn single[kMaxSingleTileRows + 1] = {};
  OuterFn tiles[kMaxTileRows + 1] = {};
  // Unpacks k elements of a row of a panel that has no gaps between lanes.
  void (*read_row)(const uint8_t* panel, int row, int k, uint8_t* to) = nullptr;
};

// The micro-kernels of one weight format.
struct LinearKernel {
  int chunk = 0;               // elements of a K slice
  int chunk_bytes = 0;         // bytes of a K slice of converted activations or operands
  int sub_chunks = 0;          // K slices per sub-block: a tile of x of that length stays in L1
  int tile_rows = 0;           // tokens of a tile of dot products, at most
  int outer_rows = 0;          // tokens of a tile of outer products, at most
  int outer_columns = 0;       // rows of W in a panel
  int short_columns = 0;       // how many of the outer_columns a tile of short_outer takes
  int packed_chunk = 0;        // fewest elements of K that fill whole words of a panel
  int packed_chunk_bytes = 0;  // their bytes in a row of the panel
  bool widens = false;  // weights are converted: operands differ in type from the stored rows
  bool flush_subnormals = false;
  bool takes_whole_rows = false;  // dot product tiles take whole rows and cut them into sub-blocks
  // With one or two tokens, multiply rows one by one: the CPU prefetches that linear order.
  bool rows_one_by_one = false;

  int Chunks(int elements) const { return (elements + chunk - 1) / chunk; }
  // Words of `elements` elements of a row of x, in whole K slices; PackedWords(): of a row in a
  // panel of W.
  size_t Words(int elements) const {
    return static_cast<size_t>(Chunks(elements)) * chunk_bytes / sizeof(float);
  }
  size_t PackedWords(int elements) const {
    const int chunks = (elements + packed_chunk - 1) / packed_chunk;
    return static_cast<size_t>(chunks) * packed_chunk_bytes / sizeof(float);
  }
  // Bytes from lane to lane of a panel with `words` words of each row. A line is added so that the
  // same word of all lanes does not fall into one cache set.
  static size_t PanelStride(size_t words, int columns) {
    constexpr size_t kLine = 64;
    const size_t bytes = words / kSumLanes * columns * sizeof(float);
    return (bytes + kLine - 1) / kLine * kLine + kLine;
  }

  // x [k] f32 -> ceil(k / chunk) K slices, padded with zeros.
  void (*convert)(const float* x, int k, uint8_t* chunks) = nullptr;
  // `rows` <= outer_columns stored rows, k elements each -> a panel of OuterArgs, padded
  // with zeros along K.
  void (*pack)(const WeightRows& w, int rows, int k, uint8_t* panel, size_t panel_stride) = nullptr;
  // As `pack`, for dense rows anywhere in memory.
  void (*pack_scattered)(const uint8_t* const* rows, int count, int k, uint8_t* panel,
                         size_t panel_stride) = nullptr;
  // [m]: m tokens by 1 or 4 rows in place, or (outer) by a panel.
  TileFn stored1[kMaxTileRows + 1] = {};
  TileFn stored4[kMaxTileRows + 1] = {};
  OuterFn outer[kMaxTileRows + 1] = {};
  // Dense kinds, for rows of few K slices: as `outer`, for short_columns columns of the panel.
  OuterFn short_outer[kMaxTileRows + 1] = {};
  // Dense kinds, [m]: dot products of m rows of x.
  DotFn dots[kMaxTileRows + 1] = {};
  // BF16: as `dots`, with rows of 8-bit floats, [Float8Index]. Null where converting them to BF16
  // first is faster.
  DotFn float8_dots[kNumFloat8Types][kMaxTileRows + 1] = {};

  TokenPanelKernel token_panel;
  PrepackedKernel prepacked;
  IntegerKernel integer;  // instead of all of the above

  // Quantised: expands scales and zero points to [rows][units] FP32 and INT32, with space for 16
  // more numbers after them. `zeros` may be null.
  void (*widen)(const WeightMatrix& w, const UnitRange& range, float* scales,
                int32_t* zeros) = nullptr;

  // Runs multiply-adds on registers only, with this kernel's instructions: the peak of cpu_peaks.h.
  void (*burst)(int64_t iterations) = nullptr;
  int flops_per_burst_iteration = 0;
};

struct LinearKernelSet {
  const char* name = nullptr;
  // Dense kinds, then quantised kinds. Each quantised kind has two entries: FP32 activations, then
  // narrower ones.
  static constexpr int kNumDense = 3;
  std::array<LinearKernel, 2 * WeightFormat::kNumKinds - kNumDense> kernels;
  // Reads all bytes once; the result only keeps the loads alive.
  float (*read)(const uint8_t* data, size_t bytes) = nullptr;

  LinearKernel& operator[](WeightFormat format) { return kernels[IndexOf(format)]; }
  const LinearKernel& operator[](WeightFormat format) const { return kernels[IndexOf(format)]; }

 private:
  static int IndexOf(WeightFormat format) {
    const int kind = static_cast<int>(format.kind);
    if (!format.is_quantized()) return kind;
    return 2 * kind - kNumDense + (TakesNarrowX(format) ? 1 : 0);
  }
  // E4M3 has no integer kernel: FP16 activations remain in FP32.
  static bool TakesNarrowX(WeightFormat format) {
    const DType type = format.numeric_type();
    return format.has_integers() ? type != DType::kF32 : type == DType::kBF16;
  }
};

// Returns the sets this machine can run, best first; never empty.
const std::vector<LinearKernelSet>& LinearKernelSets();

// In quantized.cpp: adds the quantised kernels of a Highway target to `set`.
void AddQuantizedKernels(int64_t target, LinearKernelSet& set);

// In avx512vnni.cpp: if `set` is the AVX-512 one and the CPU has vpdpbusd, replaces the integer
// kernels by kernels with that instruction, renames the set and returns true.
bool UpgradeToAvx512Vnni(LinearKernelSet& set);

// In avx512bf16.cpp: if UpgradeToAvx512Vnni changed `set` and the CPU has vdpbf16ps, replaces the
// kernels of BF16 activations by kernels with that instruction. Then also renames the set and
// returns true.
bool UpgradeToAvx512Bf16(LinearKernelSet& set);

}  // namespace kuiper::cpu
