// The micro-kernels of quantised weights over an instruction set M. Included like outer-inl.h,
// after it. M provides what outer-inl.h requires, but instead of LoadWeights:
//   void LoadCodes(const uint8_t* chunk, int vector, ZeroCode zero, Vec (&v)[kSteps]) loads M's
//     operands of a K slice. `zero` is MakeZero(int32_t) of the quantisation block.

// True if registers hold the operands of all rows together with the sums. Otherwise they hold the
// operands of one row at a time, and x stays in memory.
template <class M>
constexpr bool WidensRowsTogether() {
  return M::kRegisters >= 32;
}

// FindLive for codes. Rows that are dequantised one by one share no x. The vectors of a row share
// its zero point, so vectors are preferred to rows.
template <class M, int MR, int NR>
constexpr Live FindLiveOfCodes() {
  if (WidensRowsTogether<M>()) return FindLive<M, MR, NR>();
  Live best = {1, 1};
  for (int rows = NR; rows >= 1; rows /= 2) {
    for (int vectors = kSumLanes / M::kVectorLanes; vectors >= 1; vectors /= 2) {
      const int sums = MR * rows * vectors;
      // Other registers: the zero points of the rows, a mask and the operands of one row.
      const bool fits = sums <= M::kAccRegisters && sums + rows + 1 + M::kSteps <= M::kRegisters;
      if (fits && sums >= MR * best.rows * best.vectors) best = {rows, vectors};
    }
  }
  return best;
}

// Accumulates one K slice of one quantisation block.
template <class M, int MR, int NR, int R>
HWY_INLINE void AccumulateChunk(const uint8_t* x, size_t x_stride, const uint8_t* w,
                                size_t w_stride, int first, const typename M::ZeroCode (&zeros)[NR],
                                typename M::Acc (&acc)[MR][NR][R]) {
  KU_UNROLL for (int r = 0; r < R; ++r) {
    if constexpr (WidensRowsTogether<M>()) {
      // registers hold x as well
      constexpr bool kPins = MR * NR * R + NR * M::kSteps < M::kRegisters;
      typename M::Vec b[NR][M::kSteps];
      KU_UNROLL for (int n = 0; n < NR; ++n) {
        M::LoadCodes(w + n * w_stride, first + r, zeros[n], b[n]);
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
        typename M::Vec v = M::LoadX(x + m * x_stride, first + r, s);
        if constexpr (kPins) v = M::KeepInRegister(v);
        KU_UNROLL for (int n = 0; n < NR; ++n) acc[m][n][r] = M::Multiply(b[n][s], v, acc[m][n][r]);
      }
    } else {
      KU_UNROLL for (int n = 0; n < NR; ++n) {
        typename M::Vec b[M::kSteps];
        M::LoadCodes(w + n * w_stride, first + r, zeros[n], b);
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
          const typename M::Vec v = M::LoadX(x + m * x_stride, first + r, s);
          acc[m][n][r] = M::Multiply(b[s], v, acc[m][n][r]);
        }
      }
    }
  }
}

// Accumulates the K slices [0, chunks) of one quantisation block.
template <class M, int MR, int NR, int R>
HWY_INLINE void AccumulateUnit(const TileArgs& a, const uint8_t* x, WeightRows w, int chunks,
                               int first, Prefetcher& next, int burst_lines,
                               typename M::Acc (&acc)[MR][NR][R]) {
  typename M::ZeroCode zeros[NR];
  KU_UNROLL for (int n = 0; n < NR; ++n) zeros[n] = M::MakeZero(w.zeros[n * w.unit_stride]);
  for (int c = 0; c < chunks; ++c, x += M::kChunkBytes, w.values += M::kWeightChunkBytes) {
    if (c % M::kBurstChunks == 0) next.Fetch(burst_lines);
    AccumulateChunk<M, MR, NR, R>(x, a.x_stride, w.values, w.stride, first, zeros, acc);
  }
}

// Holds the lanes of the K block as well as those of the quantisation block, in registers if there
// is room.
template <class M, int MR, int NR>
struct QuantizedTile {
  static constexpr Live kLive = FindLiveOfCodes<M, MR, NR>();
  static constexpr int kRows = kLive.rows, R = kLive.vectors;
  using Sums = typename M::Acc[MR][kRows][R];
  const TileArgs& a;

  HWY_INLINE void Accumulate(WeightRows w, const Pass& pass, Prefetcher& next, Sums& sums) const {
    LoadSums<M, NR>(a, pass, sums);
    const int before = pass.begin / M::kChunk;
    const int chunks = (pass.end - pass.begin + M::kChunk - 1) / M::kChunk;
    const uint8_t* x = a.x + before * M::kChunkBytes;
    w.Skip(pass.row);
    w.values += before * M::kWeightChunkBytes;
    w.scales += before / w.unit_chunks;
    w.zeros += before / w.unit_chunks;
    for (int c = 0; c < chunks; c += w.unit_chunks, ++w.scales, ++w.zeros) {
      const int here = chunks - c < w.unit_chunks ? chunks - c : w.unit_chunks;
      Sums acc;
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kRows; ++n)
          KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] = M::Zero();
      AccumulateUnit<M, MR, kRows, R>(a, x, w, here, pass.first, next, BurstLines<M, NR>(a, kLive),
                                      acc);
      x += static_cast<size_t>(here) * M::kChunkBytes;
      w.values += static_cast<size_t>(here) * M::kWeightChunkBytes;
      KU_UNROLL for (int n = 0; n < kRows; ++n) {
        const typename M::Acc scale = M::Splat(w.scales[n * w.unit_stride]);
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int r = 0; r < R; ++r) {
          sums[m][n][r] = M::MultiplyAdd(acc[m][n][r], scale, sums[m][n][r]);
        }
      }
    }
  }
};

template <class M, int MR, int NR>
HWY_NOINLINE void QuantizedTiles(TileArgs& a) {
  SumTiles<M, MR, NR, QuantizedTile<M, MR, NR>>(a);
}

// Loads the operands of rows of codes.
template <class M>
struct CodeFactors {
  const WeightRows& w;
  HWY_INLINE void operator()(int row, int c, int r, typename M::Vec (&v)[M::kSteps]) const {
    M::LoadCodes(w.values + row * w.stride + static_cast<size_t>(c) * M::kWeightChunkBytes, r,
                 M::MakeZero(w.zeros[row * w.unit_stride + c / w.unit_chunks]), v);
  }
};

template <class M>
void PackQuantized(const WeightRows& w, int rows, int k, uint8_t* panel, size_t panel_stride) {
  constexpr int kColumns = OuterVectors<M, true>() * M::kVectorLanes;
  PackPanel<M>(rows, kColumns, k / M::kChunk, panel, panel_stride, CodeFactors<M>{w});
}

template <class M, int MR>
void SetQuantizedTiles(LinearKernel& kernel) {
  kernel.stored1[MR] = &QuantizedTiles<M, MR, 1>;
  kernel.stored4[MR] = &QuantizedTiles<M, MR, kPanelRows>;
  if constexpr (MR > 1) SetQuantizedTiles<M, MR - 1>(kernel);
}

template <class M>
LinearKernel MakeQuantizedKernel(decltype(LinearKernel::widen) widen) {
  LinearKernel kernel = KernelOfActivations<M>();
  kernel.pack = &PackQuantized<M>;
  kernel.widen = widen;
  SetQuantizedTiles<M, M::kTileRows>(kernel);
  SetOuter<M, true>(kernel);
  return kernel;
}
