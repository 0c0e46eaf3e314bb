// One call of CpuLinear, and how its output is cut into work items. Included only by
// cpu_linear.cpp, streamed.cpp (few tokens), token_panel.cpp and blocked.cpp (many tokens) and
// integer.cpp (integer activations).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kuiper/base/half.h"
#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/linear.h"

namespace kuiper::cpu {

constexpr size_t kLine = 64;  // bytes of a cache line

template <typename Int>
constexpr Int CeilDiv(Int a, Int b) {
  return (a + b - 1) / b;
}

// One call of CpuLinear::Apply.
struct LinearJob {
  const LinearKernel& kernel;
  const Linear& w;
  Epilogue epilogue;
  float* out;
  size_t out_stride;
  // Layout of converted x. streamed(): [sub-block][T][K slices of the sub-block]. has_panel(): [K
  // block][token panel], then Rest() as if streamed. Else: [K block][tile] of OuterArgs::rows.
  uint8_t* activations;
  int tokens;
  bool are_weights_cached = false;  // in L2: other tokens have just used them

  int in() const { return w.in; }
  bool paired() const { return epilogue == Epilogue::kSwiGlu; }
  // If true, W is [panel of outer_columns rows][K block][LanePlace of the
  // lane][steps][outer_columns] words, or as IntegerKernel::prepacked says.
  bool prepacked() const { return w.parts[0].weight.is_prepacked; }
  int cut_parts() const { return paired() ? 1 : w.num_parts; }
  int rows(int part) const { return static_cast<int>(w.parts[part].weight.rows()); }
  int fold_k() const { return kernel.chunk * kFoldChunks; }
  // K blocks of up to 8 tokens nearly fit in L1 (4 tokens for INT4, where x is most of what is
  // read). More tokens use sub-blocks.
  int sub_chunks() const {
    if (kernel.takes_whole_rows) return kFoldChunks;
    const int whole_row_tokens = w.format().kind == WeightFormat::Kind::kInt4 ? 4 : 8;
    return tokens <= whole_row_tokens ? kFoldChunks : kernel.sub_chunks;
  }
  int sub_k() const { return kernel.chunk * sub_chunks(); }
  int chunks() const { return kernel.Chunks(w.in); }
  // Bytes of `elements` of a row of W.
  size_t RowBytes(int elements) const { return static_cast<size_t>(w.format().RowBytes(elements)); }
  int Lines(int elements) const { return static_cast<int>(CeilDiv(RowBytes(elements), kLine)); }
  // Bytes from one row of x to the next in the sub-block that starts at element k0.
  size_t XStride(int k0) const {
    return static_cast<size_t>(std::min(sub_chunks(), chunks() - k0 / kernel.chunk)) *
           kernel.chunk_bytes;
  }
  uint8_t* X(int k0, int token) const {
    return activations + static_cast<size_t>(k0 / kernel.chunk) * kernel.chunk_bytes * tokens +
           token * XStride(k0);
  }
  // Many tokens are cut into tiles of nearly equal size. Few tokens by prepacked W are a single
  // tile.
  bool is_one_tile() const { return prepacked() && tokens <= kernel.prepacked.max_single_rows; }
  int tiles() const { return is_one_tile() ? 1 : CeilDiv(tokens, kernel.outer_rows); }
  OuterFn TileOf(int rows) const {
    if (is_one_tile()) return kernel.prepacked.single[rows];
    return prepacked() ? kernel.prepacked.tiles[rows] : kernel.outer[rows];
  }
  int TileBegin(int tile) const {
    return static_cast<int>(static_cast<int64_t>(tokens) * tile / tiles());
  }
  int TileRows(int tile) const { return TileBegin(tile + 1) - TileBegin(tile); }
  size_t Words(int elements) const { return kernel.Words(elements); }
  // Returns the tile in the K block that starts at element k0.
  uint8_t* XTile(int k0, int tile) const {
    const size_t words = Words(std::min(fold_k(), in() - k0));
    return activations + (Words(k0) * tokens + words * TileBegin(tile)) * sizeof(float);
  }
  // True if, for some numbers of tokens, rows of W are used in place with a token panel.
  bool may_have_panel() const {
    return !prepacked() && kernel.token_panel.vector > 0 && in() % kernel.chunk == 0;
  }
  bool has_panel() const {
    const TokenPanelKernel& panel = kernel.token_panel;
    const int max_tokens = panel.max_vectors * panel.vector + panel.max_rest;
    return may_have_panel() && tokens >= panel.min_tokens && tokens <= max_tokens;
  }
  // True for few tokens: W is read once, in place. ApplyBlocked converts W once per block of more
  // tokens.
  bool streamed() const {
    if (prepacked()) return false;
    if (may_have_panel()) return tokens < kernel.token_panel.min_tokens;
    // With AVX-512, whose tiles do not take whole rows, converting W once pays off at fewer tokens.
    const int widened = quantized() && !kernel.takes_whole_rows ? 12 : 16;
    return tokens <= (kernel.widens ? widened : 32);
  }

  // The panel takes whole vectors of tokens; the remaining tokens, if few, are not in the panel.
  int rest_tokens() const {
    const int rest = tokens % kernel.token_panel.vector;
    return rest <= kernel.token_panel.max_rest ? rest : 0;
  }
  int panel_tokens() const { return tokens - rest_tokens(); }
  int vectors() const { return CeilDiv(panel_tokens(), kernel.token_panel.vector); }
  int columns() const { return vectors() * kernel.token_panel.vector; }
  int FoldEnd(int k0) const { return std::min(k0 + fold_k(), in()); }
  // Bytes from lane to lane of the panel in the K block that starts at element k0; Panel(): the
  // panel.
  size_t PanelStride(int k0) const {
    return kernel.PanelStride(Words(FoldEnd(k0) - k0), columns());
  }
  uint8_t* Panel(int k0) const {
    return activations + k0 / fold_k() * kSumLanes * kernel.PanelStride(Words(fold_k()), columns());
  }
  // The same call for the remaining tokens.
  LinearJob Rest() const {
    LinearJob job = *this;
    job.tokens = rest_tokens();
    job.are_weights_cached = true;
    job.out += panel_tokens() * out_stride;
    const int last = (in() - 1) / fold_k() * fold_k();
    job.activations = Panel(last) + kSumLanes * PanelStride(last);
    return job;
  }
  bool quantized() const { return kernel.widen != nullptr; }
  // True if x is quantised; narrow_x(): to int8 instead of int16.
  bool has_integers() const { return kernel.integer.columns > 0; }
  bool narrow_x() const { return w.format().numeric_type() == DType::kI8; }
  WeightRows W(int part, int row, int k0) const { return RowsOf(w.parts[part].weight, row, k0); }
  // Prepacked: returns the K block that starts at element k0 of the panel that starts at `row`.
  // PrepackedBytes(): bytes from one panel to the next.
  const uint8_t* Prepacked(int part, int row, int k0) const {
    return W(part, row, 0).values + RowBytes(k0) * kernel.outer_columns;
  }
  size_t PrepackedBytes() const { return RowBytes(in()) * kernel.outer_columns; }
  // Prefetches columns [k, end) of rows [row, row + rows).
  Prefetcher Fetch(int part, int row, int rows, int k, int end) const {
    const int columns = kernel.outer_columns;
    if (prepacked()) {
      return {Prepacked(part, row, k), PrepackedBytes(), rows / columns,
              Lines((end - k) * columns)};
    }
    const WeightRows at = W(part, row, k);
    return {at.values, at.stride, rows, Lines(end - k)};
  }
  // Returns the size of the next tile. The last two tiles have equal size, instead of a full and a
  // small one.
  static int NextRows(int left, int full) {
    return left >= 2 * full || left <= full ? std::min(left, full) : (left + 1) / 2;
  }
};

// Rows [begin, end) of one part of W. Their sums go to the output from column `column` on.
struct RowRange {
  int part = 0, begin = 0, end = 0, column = 0;
  Epilogue epilogue = Epilogue::kStore;  // kSwiGlu: the output holds gate, the rows are up
};

// Scales and zero points of rows of a quantised W over one K block, in the layout that tiles use.
template <int kRows>
struct Groups {
  alignas(kLine) float scales[kRows * kMaxUnits + kSumLanes];  // [rows][units]
  int32_t zeros[kRows * kMaxUnits + kSumLanes];
  int units = 0;

  void Widen(const LinearJob& job, int part, const UnitRange& range) {
    units = CeilDiv(range.end - range.begin, job.w.format().unit_columns());
    job.kernel.widen(job.w.parts[part].weight, range, scales, zeros);
  }
  // Points `rows` to the scales and zero points of rows [at, ...). Their first column is `columns`
  // columns after the first one of the K block.
  void Give(const LinearJob& job, int at, int columns, WeightRows* rows) const {
    const int unit = job.w.format().unit_columns();
    rows->scales = scales + at * units + columns / unit;
    rows->zeros = zeros + at * units + columns / unit;
    rows->unit_stride = units;
    rows->unit_chunks = unit / job.kernel.chunk;
  }
};

// The output is cut into work items of `step` columns, each inside one part. With SwiGLU an item is
// rows of gate, then the same rows of up.
inline int CountItems(const LinearJob& job, int step) {
  int items = 0;
  for (int part = 0; part < job.cut_parts(); ++part) items += CeilDiv(job.rows(part), step);
  return items;
}
inline RowRange FindRows(const LinearJob& job, int item, int step) {
  int part = 0, column = 0;
  for (int items; item >= (items = CeilDiv(job.rows(part), step)); item -= items) {
    column += job.rows(part++);
  }
  const int begin = item * step;
  return {part, begin, std::min(job.rows(part), begin + step), column + begin,
          job.paired() ? Epilogue::kStore : job.epilogue};
}
// Returns what to prefetch while a range is computed up to column `end`: the range's next columns,
// or after the last column the rows that the thread takes next.
inline Prefetcher FetchAfter(const LinearJob& job, const RowRange& range, const RowRange& next,
                             int end) {
  const bool last = end == job.in();
  const RowRange& rows = last ? next : range;
  if (rows.end <= rows.begin) return {};
  const int k = last ? 0 : end;
  return job.Fetch(rows.part, rows.begin, rows.end - rows.begin, k, job.FoldEnd(k));
}
inline RowRange UpRows(RowRange gate) {
  gate.part = 1;
  gate.epilogue = Epilogue::kSwiGlu;
  return gate;
}
// Cuts the output into ranges of `step` features, and the tokens into `blocks`. Each thread makes
// one worker, start(thread), and calls worker(range, next, block) for the items it claims. With
// SwiGLU the worker is called for the rows of gate, then for the same rows of up. `next` is the
// range of the worker's next call, for prefetching; it is empty in the last call.
template <typename F>
void ForEachRange(ThreadPool& pool, const LinearJob& job, int step, int blocks, const F& start) {
  const int ranges = CountItems(job, step), items = ranges * blocks;
  WorkShares& shares = pool.Divide(items);
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    auto worker = start(thread);
    const auto take = [&] { return static_cast<int>(shares.Take(thread).begin); };
    for (int item = take(), next = 0; item < items; item = next) {
      next = take();
      const RowRange range = FindRows(job, item % ranges, step);
      const RowRange after = next < items ? FindRows(job, next % ranges, step) : RowRange{};
      worker(range, job.paired() ? UpRows(range) : after, item / ranges);
      if (job.paired()) worker(UpRows(range), after, item / ranges);
    }
  });
}
// Returns the bias of feature i. Tensors of a mapped file may be unaligned.
inline float BiasAt(const Tensor& bias, int i) {
  const char* at = static_cast<const char*>(bias.data) + i * DTypeBytes(bias.dtype);
  if (bias.dtype == DType::kF32) {
    float value;
    memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  memcpy(&bits, at, sizeof(bits));
  return bias.dtype == DType::kF16 ? ToFloat(Half{bits}) : ToFloat(BFloat16{bits});
}

// Calls f(begin, end) for ranges of `step` items of x, on all threads if x is large enough.
template <typename F>
void ForEachOf(ThreadPool& pool, const LinearJob& job, int items, int step, const F& f) {
  constexpr int kSerialConvert = 16 << 10;  // up to this many elements of x, one thread is faster
  if (static_cast<int64_t>(job.tokens) * job.in() <= kSerialConvert) return f(0, items);
  pool.RunRanges(items, step, [&](int64_t begin, int64_t end, int) {
    f(static_cast<int>(begin), static_cast<int>(end));
  });
}

// Adds the bias to sums [count][stride] and writes them to the output: rows [token, token + count),
// columns of the range, at most kMaxFinishColumns.
constexpr int kMaxFinishColumns = 64;
void FinishRows(const LinearJob& job, const RowRange& range, int token, int count, float* sums,
                size_t stride);
// Does what ApplyStreamed does, for one range of output columns; the thread takes `after` next.
void MultiplyStreamed(const LinearJob& job, const RowRange& range, const RowRange& after);

size_t PanelScratchBytes();
size_t IntegerScratchBytes(int in);
size_t BlockedScratchBytes(int tokens, int in);

// Memory of each thread, 64-byte aligned: the largest of the three sizes above.
struct Workspace {
  uint8_t* base;
  size_t bytes;  // per thread
  uint8_t* of(int thread) const { return base + thread * bytes; }
};
void ApplyStreamed(ThreadPool& pool, const LinearJob& job, const Workspace& workspace);
void ApplyTokenPanel(ThreadPool& pool, const LinearJob& job, const Workspace& workspace);
void ApplyBlocked(ThreadPool& pool, const LinearJob& job, const Workspace& workspace);
// Unlike the others, also converts x.
void ApplyInteger(ThreadPool& pool, const LinearJob& job, const Tensor& x,
                  const Workspace& workspace);

}  // namespace kuiper::cpu
