// The micro-kernels of the linear layer over an instruction set M. Each instruction set (dense.cpp,
// avx512bf16.cpp) includes this file inside its namespace and target attributes. So it has no
// include guard, includes and namespace of its own.
//
// M provides:
//   kChunk, kChunkBytes, kWeightChunkBytes: elements and bytes of a K slice.
//   kVectorLanes: how many of the 16 lanes of an accumulator one register holds.
//   kSteps: multiply-adds per K slice and lane.
//   kRegisters, kAccRegisters: all registers, and those for accumulators.
//   kTileRows. kBurstChunks: K slices per burst of prefetches.
//   kFoldsRegisters, kFlushSubnormals, kBurstFlops; Acc, Vec; Zero, LoadAcc, StoreAcc, LoadX,
//     StoreX, LoadWeights, Multiply, Convert, Fold, Burst.
//   Everything that outer-inl.h and dense-inl.h require.

#include "kuiper/kernels/cpu/unroll.h"

// The part of a tile that is in registers at once: the sums of `rows` rows of W by `vectors`
// vectors of lanes. An operand of each row and one of x are there as well. For the other sums, the
// tile makes further passes over the same K slices. Lanes never mix before the lane reduction.
struct Live {
  int rows, vectors;
};
template <class M, int MR, int NR>
constexpr Live FindLive() {
  Live best = {1, 1};
  for (int rows = NR; rows >= 1; rows /= 2) {
    for (int vectors = kSumLanes / M::kVectorLanes; vectors >= 1; vectors /= 2) {
      const int sums = MR * rows * vectors;
      const bool fits = sums <= M::kAccRegisters && sums + rows + 1 <= M::kRegisters;
      if (fits && sums > MR * best.rows * best.vectors) best = {rows, vectors};
    }
  }
  return best;
}

// Return the current position in row n of W: EvenRows for adjacent rows, ScatteredRows for rows
// anywhere.
struct EvenRows {
  const uint8_t* first;
  size_t step;
  HWY_INLINE const uint8_t* operator()(int n) const { return first + n * step; }
};
struct ScatteredRows {
  const uint8_t* const* rows;
  size_t at;
  HWY_INLINE const uint8_t* operator()(int n) const { return rows[n] + at; }
};

// Loads the operands of one step of a K slice, for MR rows of x. The operands of the other steps
// would take registers that the sums of several rows need. So the compiler must not see that all
// steps come from the same bytes.
template <class M, int MR>
HWY_INLINE typename M::Vec LoadStep(const uint8_t* chunk, int vector, int step) {
  if constexpr (M::kSteps > 1 && MR > 1) asm volatile("" : "+r"(chunk));
  typename M::Vec v[M::kSteps];
  M::LoadWeights(chunk, vector, v);
  return v[step];
}

// Accumulates one K slice of NR rows of W, row n at w(n), in lanes [first * kVectorLanes, ...).
template <class M, int MR, int NR, int R, class Rows>
HWY_INLINE void AccumulateChunk(const uint8_t* x, size_t x_stride, const Rows& w, int first,
                                typename M::Acc (&acc)[MR][NR][R]) {
  KU_UNROLL for (int r = 0; r < R; ++r) KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
    typename M::Vec b[NR];
    KU_UNROLL for (int n = 0; n < NR; ++n) b[n] = LoadStep<M, MR>(w(n), first + r, s);
    KU_UNROLL for (int m = 0; m < MR; ++m) {
      const typename M::Vec v = M::KeepInRegister(M::LoadX(x + m * x_stride, first + r, s));
      KU_UNROLL for (int n = 0; n < NR; ++n) acc[m][n][r] = M::Multiply(b[n], v, acc[m][n][r]);
    }
  }
}

// Accumulates the last, partial K slice of `elements` elements. It is copied and padded, because
// the bytes after it may not be mapped.
template <class M, int MR, int NR, int R, class Rows>
HWY_INLINE void AccumulatePartial(const uint8_t* x, size_t x_stride, const Rows& w, int elements,
                                  int first, typename M::Acc (&acc)[MR][NR][R]) {
  alignas(64) uint8_t padded[NR * M::kWeightChunkBytes] = {};
  for (int n = 0; n < NR; ++n) {
    memcpy(padded + n * M::kWeightChunkBytes, w(n), elements * (M::kWeightChunkBytes / M::kChunk));
  }
  AccumulateChunk<M, MR, NR, R>(x, x_stride, EvenRows{padded, M::kWeightChunkBytes}, first, acc);
}

// Returns the K slices of a sub-block: 2 KiB of each row of x, 12 KiB of a tile.
template <class M>
constexpr int SubChunks() {
  return 2048 / M::kChunkBytes;
}
// Returns how many columns of a tile are multiplied before the next ones. All columns, if sums stay
// in registers until their lane reduction or L1 holds whole rows of x. Otherwise the number that L1
// holds.
template <class M, int MR>
constexpr int Depth() {
  return (M::kFoldsRegisters || MR <= 2 ? kFoldChunks : SubChunks<M>()) * M::kChunk;
}
// The columns that a tile multiplies together, and where its sums are stored until the next ones.
struct Step {
  int begin, end;
  float* lanes;
};
// One pass over these columns: the lanes from `first` on of the rows from `row` on.
struct Pass : Step {
  int first, row;
};
// Returns where a sum of the pass is stored, among the sums of a tile of NR rows.
template <class M, int NR>
HWY_INLINE float* LanesAt(const Pass& pass, int m, int n, int r) {
  return pass.lanes + (m * NR + pass.row + n) * kSumLanes + (pass.first + r) * M::kVectorLanes;
}
// Returns the lines to prefetch with each kBurstChunks K slices of a pass over NR rows.
template <class M, int NR>
HWY_INLINE int BurstLines(const TileArgs& a, Live live) {
  const int passes = NR / live.rows * (kSumLanes / M::kVectorLanes / live.vectors);
  return (M::kBurstChunks * a.next_lines + passes - 1) / passes;
}
template <class M, int NR, int MR, int kRows, int R>
HWY_INLINE void LoadSums(const TileArgs& a, const Pass& pass,
                         typename M::Acc (&sums)[MR][kRows][R]) {
  const bool zero = a.first && pass.begin == 0;
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kRows; ++n)
      KU_UNROLL for (int r = 0; r < R; ++r) sums[m][n][r] =
          zero ? M::Zero() : M::LoadAcc(LanesAt<M, NR>(pass, m, n, r));
}

// Computes all sums of a tile. Their lanes are reduced into `to`, or stored until the next columns.
// tile.Accumulate computes the sums that are in registers at once.
template <class M, int MR, int NR, class Tile>
HWY_INLINE void SumTile(const Tile& tile, const WeightRows& w, const Step& step, float* to,
                        Prefetcher& next) {
  const TileArgs& a = tile.a;
  constexpr int kRows = Tile::kLive.rows, R = Tile::kLive.vectors;
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const bool last = a.last && step.end == a.k;
  for (int row = 0; row < NR; row += kRows) {
    for (int first = 0; first < kVectors; first += R) {
      const Pass pass = {step, first, row};
      typename M::Acc sums[MR][kRows][R];
      tile.Accumulate(w, pass, next, sums);
      if constexpr (M::kFoldsRegisters) {
        static_assert(kRows == NR && R == kVectors);
        if (last) return M::template Fold<MR, NR>(sums, to, a.sum_stride, a.add);
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kRows; ++n)
          KU_UNROLL for (int r = 0; r < R; ++r)
              M::StoreAcc(sums[m][n][r], LanesAt<M, NR>(pass, m, n, r));
    }
  }
  if constexpr (!M::kFoldsRegisters) {
    if (last) M::template FoldLanes<MR, NR>(step.lanes, to, a.sum_stride, a.add);
  }
}

// Computes all tiles of NR rows.
template <class M, int MR, int NR, class Tile>
HWY_INLINE void SumTiles(TileArgs& a) {
  const Tile tile{a};
  constexpr int kDepth = Depth<M, MR>();
  for (int begin = 0; begin < a.k; begin += kDepth) {
    WeightRows w = a.w;
    Step step = {begin, a.k - begin < kDepth ? a.k : begin + kDepth, a.lanes};
    float* sums = a.sums;
    for (int left = a.tiles; left > 0; --left, sums += NR, w.Skip(NR)) {
      Prefetcher next = a.next;
      if (left > a.ahead) next = {w.values + a.ahead * NR * w.stride, w.stride, NR, a.lines};
      SumTile<M, MR, NR>(tile, w, step, sums, next);
      if (left <= a.ahead) a.next = next;
      step.lanes += MR * NR * kSumLanes;
    }
  }
}

template <class M, int MR, int NR>
struct DenseTile {
  static constexpr Live kLive = FindLive<M, MR, NR>();
  static constexpr int kRows = kLive.rows, R = kLive.vectors;
  using Sums = typename M::Acc[MR][kRows][R];
  const TileArgs& a;

  HWY_INLINE void Accumulate(const WeightRows& w, const Pass& pass, Prefetcher& next,
                             Sums& sums) const {
    LoadSums<M, NR>(a, pass, sums);
    const int before = pass.begin / M::kChunk, k = pass.end - pass.begin, full = k / M::kChunk;
    const uint8_t* x = a.x + before * M::kChunkBytes;
    EvenRows rows{w.values + pass.row * w.stride + before * M::kWeightChunkBytes, w.stride};
    for (int c = 0; c < full; ++c, x += M::kChunkBytes, rows.first += M::kWeightChunkBytes) {
      if (NR > 1 && c % M::kBurstChunks == 0) next.Fetch(BurstLines<M, NR>(a, kLive));
      AccumulateChunk<M, MR, kRows, R>(x, a.x_stride, rows, pass.first, sums);
    }
    if (full * M::kChunk < k) {
      AccumulatePartial<M, MR, kRows, R>(x, a.x_stride, rows, k - full * M::kChunk, pass.first,
                                         sums);
    }
  }
};

template <class M, int MR, int NR>
HWY_NOINLINE void Tiles(TileArgs& a) {
  SumTiles<M, MR, NR, DenseTile<M, MR, NR>>(a);
}

// Takes four rows at a time; the caller has padded their number to a multiple of four.
template <class M, int MR>
HWY_NOINLINE void Dots(const DotArgs& a) {
  constexpr int NR = kPanelRows;
  constexpr Live kLive = FindLive<M, MR, NR>();
  constexpr int kRows = kLive.rows, R = kLive.vectors;
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const int full = a.k / M::kChunk;
  [[maybe_unused]] alignas(64) float lanes[M::kFoldsRegisters ? 1 : MR * NR * kSumLanes];
  const size_t row_bytes = full * M::kWeightChunkBytes;
  // Lines to prefetch with each K slice of a pass. The CPU drops prefetches that exceed its
  // outstanding misses, so the lines of a group of rows are not prefetched all at once.
  constexpr int kPasses = NR / kRows * (kVectors / R);
  constexpr int kLines = (NR * M::kWeightChunkBytes / 64 + kPasses - 1) / kPasses;
  for (int j = 0; j < a.count; j += NR) {
    for (int n = 0; a.ahead > 0 && n < NR; ++n) {
      const uint8_t* row = a.rows[j + a.ahead + n];
      for (size_t i = 0; i < row_bytes; i += 64) __builtin_prefetch(row + i);
    }
    for (int row = 0; row < NR; row += kRows) {
      for (int first = 0; first < kVectors; first += R) {
        typename M::Acc acc[MR][kRows][R];
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kRows; ++n)
            KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] = M::Zero();
        const uint8_t* x = a.x;
        ScatteredRows rows{a.rows + j + row, 0};
        for (int c = 0; c < full; ++c, x += M::kChunkBytes, rows.at += M::kWeightChunkBytes) {
          if (a.next != nullptr) a.next->Fetch(kLines);
          AccumulateChunk<M, MR, kRows, R>(x, a.x_stride, rows, first, acc);
        }
        if (full * M::kChunk < a.k) {
          if (a.next != nullptr) a.next->Fetch(kLines);
          AccumulatePartial<M, MR, kRows, R>(x, a.x_stride, rows, a.k - full * M::kChunk, first,
                                             acc);
        }
        if constexpr (M::kFoldsRegisters) {
          static_assert(kRows == NR && R == kVectors);
          M::template Fold<MR, NR>(acc, a.sums + j, a.sum_stride, false);
        } else {
          KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kRows; ++n)
              KU_UNROLL for (int r = 0; r < R; ++r)
                  M::StoreAcc(acc[m][n][r], lanes + (m * NR + row + n) * kSumLanes +
                                                (first + r) * M::kVectorLanes);
        }
      }
    }
    if constexpr (!M::kFoldsRegisters) {
      M::template FoldLanes<MR, NR>(lanes, a.sums + j, a.sum_stride, false);
    }
  }
}

template <class M>
void ConvertRow(const float* x, int k, uint8_t* chunks) {
  int i = 0;
  for (; i + M::kChunk <= k; i += M::kChunk, chunks += M::kChunkBytes) M::Convert(x + i, chunks);
  if (i < k) {
    alignas(64) float padded[M::kChunk] = {};
    memcpy(padded, x + i, (k - i) * sizeof(float));
    M::Convert(padded, chunks);
  }
}

template <class M, int MR>
void SetTiles(LinearKernel& kernel) {
  kernel.stored1[MR] = &Tiles<M, MR, 1>;
  kernel.stored4[MR] = &Tiles<M, MR, kPanelRows>;
  if constexpr (MR > 1) SetTiles<M, MR - 1>(kernel);
}

// Sets everything except the functions that read weights.
template <class M>
LinearKernel KernelOfActivations() {
  LinearKernel kernel;
  kernel.chunk = M::kChunk;
  kernel.chunk_bytes = M::kChunkBytes;
  kernel.sub_chunks = SubChunks<M>();
  kernel.takes_whole_rows = !M::kFoldsRegisters;
  kernel.tile_rows = M::kTileRows;
  kernel.widens = M::kChunkBytes != M::kWeightChunkBytes;
  kernel.flush_subnormals = M::kFlushSubnormals;
  kernel.convert = &ConvertRow<M>;
  kernel.burst = &M::Burst;
  kernel.flops_per_burst_iteration = M::kBurstFlops;
  return kernel;
}

template <class M, int MR>
void SetDots(DotFn (&dots)[kMaxTileRows + 1]) {
  dots[MR] = &Dots<M, MR>;
  if constexpr (MR > 1) SetDots<M, MR - 1>(dots);
}
