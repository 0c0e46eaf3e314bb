// One call of CpuLinear and how its output is cut into work items: shared by cpu_linear.cpp,
// linear_streamed.cpp, for few tokens, and linear_blocked.cpp, for many. Nobody else includes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kuiper/base/half.h"
#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cpu/linear_kernel.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/linear.h"

namespace kuiper::cpu {

constexpr size_t kLine = 64;  // bytes of a cache line
constexpr int kMaxRest = 8;   // tokens that dot products take

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
  // Of tokens in tiles: [fold block][tile], panels of OuterArgs; behind them, of the rest:
  // [sub-block of K][tokens][chunks of the sub-block].
  uint8_t* activations;
  int tokens;

  int in() const { return w.in; }
  bool paired() const { return epilogue == Epilogue::kSwiGlu; }
  int cut_parts() const { return paired() ? 1 : w.num_parts; }
  int rows(int part) const { return static_cast<int>(w.parts[part].weight.rows()); }
  int fold_k() const { return kernel.chunk * kFoldChunks; }
  // Few tokens leave room in L1 for whole rows.
  int sub_chunks() const { return tokens <= 4 ? kFoldChunks : kernel.sub_chunks; }
  int sub_k() const { return kernel.chunk * sub_chunks(); }
  int chunks() const { return CeilDiv(w.in, kernel.chunk); }
  // Bytes of `elements` of a row of W.
  size_t RowBytes(int elements) const { return static_cast<size_t>(w.format().RowBytes(elements)); }
  // Bytes from one row of x to the next in the sub-block that starts at element k0.
  size_t XStride(int k0) const {
    return static_cast<size_t>(std::min(sub_chunks(), chunks() - k0 / kernel.chunk)) *
           kernel.chunk_bytes;
  }
  uint8_t* X(int k0, int token) const {
    return activations + static_cast<size_t>(k0 / kernel.chunk) * kernel.chunk_bytes * tokens +
           token * XStride(k0);
  }
  size_t Steps(int elements) const { return kernel.Words(elements) / kSumLanes; }

  // Tokens that do not fill a tile, up to kMaxRest, are the rest; all of few tokens.
  int rest_tokens() const {
    const int rest = tokens % kSumLanes;
    return rest <= kMaxRest ? rest : 0;
  }
  int tiled_tokens() const { return tokens - rest_tokens(); }
  // Groups of 16 tokens; a tile has as many as the widest panels hold, the last one may have less.
  int groups() const { return CeilDiv(tiled_tokens(), kSumLanes); }
  int tile_groups() const { return kernel.widest().columns / kSumLanes; }
  int tiles() const { return CeilDiv(groups(), tile_groups()); }
  int GroupsOf(int tile) const { return std::min(tile_groups(), groups() - tile * tile_groups()); }
  const OuterTiles& OuterOf(int tile) const { return kernel.outer[GroupsOf(tile) - 1]; }
  // The panel of a tile in the fold block that starts at element k0.
  uint8_t* Panel(int k0, int tile) const {
    return activations + k0 / fold_k() * FoldBytes(fold_k()) +
           tile * kSumLanes * kernel.widest().PanelStride(Steps(FoldAt(k0)));
  }
  // Elements of the fold block that starts at k0.
  int FoldAt(int k0) const { return std::min(fold_k(), in() - k0); }
  // The same call for the rest.
  LinearJob Rest() const {
    LinearJob job = *this;
    job.tokens = rest_tokens();
    job.out += tiled_tokens() * out_stride;
    const int last = (in() - 1) / fold_k() * fold_k();
    job.activations = Panel(last, 0) + FoldBytes(FoldAt(last));
    return job;
  }
  bool quantized() const { return kernel.widen != nullptr; }
  WeightRows W(int part, int row, int k0) const { return RowsOf(w.parts[part].weight, row, k0); }
  // What follows column k of rows [row, row + rows) up to column `end`.
  Prefetcher Fetch(int part, int row, int rows, int k, int end) const {
    const WeightRows at = W(part, row, k);
    const size_t lines = CeilDiv(RowBytes(end - k), kLine);
    return {at.values, at.stride, rows, static_cast<int>(lines)};
  }

 private:
  // Of the panels of a fold block of so many elements.
  size_t FoldBytes(int elements) const {
    return tiles() * kSumLanes * kernel.widest().PanelStride(Steps(elements));
  }
};

// Rows [begin, end) of one part, whose sums go to the output from column `column` on.
struct RowRange {
  int part = 0, begin = 0, end = 0, column = 0;
  Epilogue epilogue = Epilogue::kStore;  // kSwiGlu: the output holds the gate, these are rows of up
};

// Scales and zeros of rows of a quantised W over one fold block, as the tiles take them.
template <int kRows>
struct Groups {
  float scales[kRows][kMaxUnits];
  int32_t zeros[kRows][kMaxUnits];

  void Widen(const LinearJob& job, int part, const UnitRange& range) {
    job.kernel.widen(job.w.parts[part].weight, range, scales[0], zeros[0]);
  }
  // The tile is of rows [at, ...), `columns` behind the first of the fold block.
  void Give(const LinearJob& job, int at, int columns, WeightRows* rows) const {
    const int unit = job.w.format().unit_columns();
    rows->scales = scales[at] + columns / unit;
    rows->zeros = zeros[at] + columns / unit;
    rows->unit_chunks = unit / job.kernel.chunk;
  }
};

// The output is cut into work items of `step` columns that never cross from one part to the next.
// With SwiGLU an item is rows of gate and, after them, the same rows of up.
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
// Calls f(item, next) for the items that this thread claims from a counter that all share. The next
// one is claimed before f, which fetches what that will need; behind the last it is `items` or
// more.
template <typename F>
void ForEachClaimed(std::atomic<int>& counter, int items, const F& f) {
  const auto take = [&] { return counter.fetch_add(1, std::memory_order_relaxed); };
  for (int item = take(), next = 0; item < items; item = next) f(item, next = take());
}
inline RowRange UpRows(RowRange gate) {
  gate.part = 1;
  gate.epilogue = Epilogue::kSwiGlu;
  return gate;
}
// Vectors of a mapped file may be unaligned.
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

// Computes a range of output columns, with its epilogue, for a job of at most kMaxRest tokens;
// `after` is the range that this thread takes next. kSwiGlu needs space for `up`,
// [tokens][columns].
void MultiplyStreamed(const LinearJob& job, const RowRange& range, const RowRange& after,
                      float* up);
size_t BlockedScratchBytes(int tokens, int in);
// For at most kMaxRest tokens, and for more. workspace: BlockedScratchBytes or more for each
// thread, 64-byte aligned.
void ApplyStreamed(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                   size_t workspace_bytes);
void ApplyBlocked(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                  size_t workspace_bytes);

}  // namespace kuiper::cpu
