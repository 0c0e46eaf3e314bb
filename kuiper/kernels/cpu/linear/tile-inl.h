// The micro-kernels of the linear layer over an instruction set M. Included inside the namespace
// and the target attributes of each instruction set (dense.cpp, avx512bf16.cpp), so it
// has no include guard, includes and namespace of its own.
//
// M provides: kChunk, kChunkBytes, kWeightChunkBytes, kVectorLanes (of the 16 lanes of an
// accumulator in one register), kSteps (multiply-adds per chunk and lane), kRegisters,
// kAccRegisters (those for accumulators), kTileRows, kBurstChunks (for which lines are fetched at
// once), kFoldsRegisters, kFlushSubnormals, kBurstFlops; Acc, Vec; Zero, LoadAcc, StoreAcc, LoadX,
// StoreX, LoadWeights, Multiply, Convert, Fold, Burst; and what outer-inl.h and
// dense-inl.h ask for.

#include "kuiper/kernels/cpu/unroll.h"

// What of a tile is in registers at once: the sums of `rows` rows of W, of `vectors` vectors of
// lanes each, beside a factor of each row and one of x. The tile goes over the same chunks again
// for what does not fit. Lanes never mix before the fold.
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

// Where row n of W goes on: rows side by side, and rows anywhere.
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

// The factors of one step of a chunk for MR rows of x. Those of the others would take registers
// that the sums of several rows need, so the compiler may not know that they come from the same
// bytes.
template <class M, int MR>
HWY_INLINE typename M::Vec LoadStep(const uint8_t* chunk, int vector, int step) {
  if constexpr (M::kSteps > 1 && MR > 1) asm volatile("" : "+r"(chunk));
  typename M::Vec v[M::kSteps];
  M::LoadWeights(chunk, vector, v);
  return v[step];
}

// Accumulates one chunk of NR rows of W, row n at w(n), in lanes [first * kVectorLanes, ...).
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

// The last, partial chunk of `elements`, which is copied and padded: the bytes behind it may not be
// mapped.
template <class M, int MR, int NR, int R, class Rows>
HWY_INLINE void AccumulatePartial(const uint8_t* x, size_t x_stride, const Rows& w, int elements,
                                  int first, typename M::Acc (&acc)[MR][NR][R]) {
  alignas(64) uint8_t padded[NR * M::kWeightChunkBytes] = {};
  for (int n = 0; n < NR; ++n) {
    memcpy(padded + n * M::kWeightChunkBytes, w(n), elements * (M::kWeightChunkBytes / M::kChunk));
  }
  AccumulateChunk<M, MR, NR, R>(x, x_stride, EvenRows{padded, M::kWeightChunkBytes}, first, acc);
}

// 2 KiB of each row of x, 12 KiB of a tile.
template <class M>
constexpr int SubChunks() {
  return 2048 / M::kChunkBytes;
}
// Columns of a tile that are multiplied before the next ones: all of them where sums stay in
// registers until their fold or L1 holds whole rows of x, else as many as it holds.
template <class M, int MR>
constexpr int Depth() {
  return (M::kFoldsRegisters || MR <= 2 ? kFoldChunks : SubChunks<M>()) * M::kChunk;
}
// What a tile takes of its columns, and where its sums wait for the next ones.
struct Step {
  int begin, end;
  float* lanes;
};
// What a pass over these takes: lanes from `first` on of rows from `row` on.
struct Pass : Step {
  int first, row;
};
// Where its sums wait, among those of a tile of NR rows.
template <class M, int NR>
HWY_INLINE float* LanesAt(const Pass& pass, int m, int n, int r) {
  return pass.lanes + (m * NR + pass.row + n) * kSumLanes + (pass.first + r) * M::kVectorLanes;
}
// Lines to fetch with each kBurstChunks of a pass over NR rows.
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

// All sums of a tile, which are folded to `to` or wait: tile.Accumulate gives those that are live
// at once.
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

// All tiles of NR rows.
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

// Four rows at a time, which the caller has padded to.
template <class M, int MR>
HWY_NOINLINE void Dots(const DotArgs& a) {
  constexpr int NR = kPanelRows;
  constexpr Live kLive = FindLive<M, MR, NR>();
  constexpr int kRows = kLive.rows, R = kLive.vectors;
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const int full = a.k / M::kChunk;
  [[maybe_unused]] alignas(64) float lanes[M::kFoldsRegisters ? 1 : MR * NR * kSumLanes];
  const size_t row_bytes = full * M::kWeightChunkBytes;
  // Lines to fetch with each chunk of a pass. The CPU drops what its misses cannot hold, so a group
  // of rows does not ask for all of them at once.
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

// All but what reads weights.
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
