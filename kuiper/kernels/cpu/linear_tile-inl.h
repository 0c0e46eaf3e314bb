// The micro-kernels of the linear layer over an instruction set M. Included inside the namespace
// and the target attributes of each instruction set (linear_hwy.cpp, linear_avx512bf16.cpp), so it
// has no include guard, includes and namespace of its own.
//
// M provides: kChunk, kChunkBytes, kWeightChunkBytes, kVectorLanes (of the 16 lanes of an
// accumulator in one register), kSteps (multiply-adds per chunk and lane), kAccRegisters
// (accumulators that fit), kTileRows, kFoldsRegisters, kFlushSubnormals, kBurstFlops; Acc, Vec;
// Zero, LoadAcc, StoreAcc, LoadX, StoreX, LoadWeights, Multiply, Convert, Fold, Burst; and what
// linear_outer-inl.h asks for.

#ifndef KU_UNROLL
#ifdef __clang__
#define KU_UNROLL _Pragma("unroll")
#else
#define KU_UNROLL _Pragma("GCC unroll 32")
#endif
#endif

// Registers per accumulator that are live at once: all 16 lanes if they fit, else the tile goes
// over the same chunks several times, each time for other lanes. Lanes never mix before the fold.
template <class M, int MR, int NR>
constexpr int LiveVectors() {
  int vectors = kSumLanes / M::kVectorLanes;
  while (vectors > 1 && MR * NR * vectors > M::kAccRegisters) vectors /= 2;
  return vectors;
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

// Accumulates one chunk of NR rows of W, row n at w(n), in lanes [first * kVectorLanes, ...).
template <class M, int MR, int NR, int R, class Rows>
HWY_INLINE void AccumulateChunk(const uint8_t* x, size_t x_stride, const Rows& w, int first,
                                typename M::Acc (&acc)[MR][NR][R]) {
  KU_UNROLL for (int r = 0; r < R; ++r) {
    typename M::Vec b[NR][M::kSteps];
    KU_UNROLL for (int n = 0; n < NR; ++n) M::LoadWeights(w(n), first + r, b[n]);
    KU_UNROLL for (int m = 0; m < MR; ++m) {
      KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
        const typename M::Vec v = M::Pin(M::LoadX(x + m * x_stride, first + r, s));
        KU_UNROLL for (int n = 0; n < NR; ++n) acc[m][n][r] = M::Multiply(b[n][s], v, acc[m][n][r]);
      }
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

// Calls tile(w, sums, next) for each tile of NR rows.
template <int NR, class F>
HWY_INLINE void ForEachTile(TileArgs& a, const F& tile) {
  WeightRows w = a.w;
  float* sums = a.sums;
  for (int left = a.tiles; left > 0; --left, sums += NR, w.Skip(NR)) {
    Prefetcher next = a.next;
    if (left > a.ahead) next = {w.values + a.ahead * NR * w.stride, w.stride, NR, a.lines};
    tile(w, sums, next);
    if (left <= a.ahead) a.next = next;
  }
}

template <class M, int MR, int NR>
struct DenseTile {
  const TileArgs& a;

  HWY_INLINE void operator()(const WeightRows& w, float* sums, Prefetcher& next) const {
    constexpr int R = LiveVectors<M, MR, NR>();
    constexpr int kVectors = kSumLanes / M::kVectorLanes;
    constexpr bool kOnePass = R == kVectors;
    const int full = a.k / M::kChunk;
    typename M::Acc acc[MR][NR][R];
    for (int first = 0; first < kVectors; first += R) {
      float* lanes = a.lanes + first * M::kVectorLanes;
      if (a.first) {
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
            KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] = M::Zero();
      } else {
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
            KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] =
                M::LoadAcc(lanes + (m * NR + n) * kSumLanes + r * M::kVectorLanes);
      }
      const uint8_t* x = a.x;
      EvenRows rows{w.values, w.stride};
      for (int c = 0; c < full; ++c, x += M::kChunkBytes, rows.first += M::kWeightChunkBytes) {
        if constexpr (NR > 1) next.Fetch(a.next_lines);
        AccumulateChunk<M, MR, NR, R>(x, a.x_stride, rows, first, acc);
      }
      if (full * M::kChunk < a.k) {
        AccumulatePartial<M, MR, NR, R>(x, a.x_stride, rows, a.k - full * M::kChunk, first, acc);
      }
      if constexpr (kOnePass && M::kFoldsRegisters) {
        if (a.last) {
          M::template Fold<MR, NR>(acc, sums, a.sum_stride, a.add);
          return;
        }
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
          KU_UNROLL for (int r = 0; r < R; ++r)
              M::StoreAcc(acc[m][n][r], lanes + (m * NR + n) * kSumLanes + r * M::kVectorLanes);
    }
    if constexpr (!M::kFoldsRegisters) {
      if (a.last) M::template FoldLanes<MR, NR>(a.lanes, sums, a.sum_stride, a.add);
    }
  }
};

template <class M, int MR, int NR>
HWY_NOINLINE void Tiles(TileArgs& a) {
  ForEachTile<NR>(a, DenseTile<M, MR, NR>{a});
}

// Four rows at a time, which the caller has padded to.
template <class M, int MR>
HWY_NOINLINE void Dots(const DotArgs& a) {
  constexpr int NR = kPanelRows;
  constexpr int R = LiveVectors<M, MR, NR>();
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const int full = a.k / M::kChunk;
  [[maybe_unused]] alignas(64) float lanes[M::kFoldsRegisters ? 1 : MR * NR * kSumLanes];
  const size_t row_bytes = full * M::kWeightChunkBytes;
  for (int j = 0; j < a.count; j += NR) {
    for (int n = 0; a.ahead > 0 && n < NR; ++n) {
      const uint8_t* row = a.rows[j + a.ahead + n];
      for (size_t i = 0; i < row_bytes; i += 64) __builtin_prefetch(row + i);
    }
    for (int first = 0; first < kVectors; first += R) {
      typename M::Acc acc[MR][NR][R];
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
          KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] = M::Zero();
      const uint8_t* x = a.x;
      ScatteredRows rows{a.rows + j, 0};
      for (int c = 0; c < full; ++c, x += M::kChunkBytes, rows.at += M::kWeightChunkBytes) {
        AccumulateChunk<M, MR, NR, R>(x, a.x_stride, rows, first, acc);
      }
      if (full * M::kChunk < a.k) {
        AccumulatePartial<M, MR, NR, R>(x, a.x_stride, rows, a.k - full * M::kChunk, first, acc);
      }
      if constexpr (M::kFoldsRegisters) {
        static_assert(R == kVectors);
        M::template Fold<MR, NR>(acc, a.sums + j, a.sum_stride, false);
      } else {
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
            KU_UNROLL for (int r = 0; r < R; ++r) M::StoreAcc(
                acc[m][n][r], lanes + (m * NR + n) * kSumLanes + (first + r) * M::kVectorLanes);
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
  kernel.sub_chunks = 2048 / M::kChunkBytes;  // 2 KiB of each row of x, 12 KiB of a tile
  kernel.tile_rows = M::kTileRows;
  kernel.widens = M::kChunkBytes != M::kWeightChunkBytes;
  kernel.flush_subnormals = M::kFlushSubnormals;
  kernel.convert = &ConvertRow<M>;
  kernel.burst = &M::Burst;
  kernel.flops_per_burst_iteration = M::kBurstFlops;
  return kernel;
}

template <class M, int MR>
void SetDots(LinearKernel& kernel) {
  kernel.dots[MR] = &Dots<M, MR>;
  if constexpr (MR > 1) SetDots<M, MR - 1>(kernel);
}
