// The micro-kernels of quantised weights over an instruction set M. Included like
// linear_outer-inl.h, after it and with what it asks of M; but instead of LoadWeights
//   void LoadCodes(const uint8_t* chunk, int vector, ZeroCode zero, Vec (&v)[kSteps])
// gives M the factors of a chunk, `zero` being MakeZero(int32_t) of the unit. An M that widens
// several chunks at a lower price than one by one has kBlockChunks of them and
//   void LoadBlock(const uint8_t* chunks, ZeroCode zero, Vec (&v)[kBlockChunks]).

// Accumulates the chunks [0, chunks) of one unit.
template <class M, int MR, int NR, int R>
HWY_INLINE void AccumulateUnit(const TileArgs& a, const uint8_t* x, const uint8_t* w, int unit,
                               int chunks, int first, Prefetcher& next,
                               typename M::Acc (&acc)[MR][NR][R]) {
  typename M::ZeroCode zeros[NR];
  KU_UNROLL for (int n = 0; n < NR; ++n) zeros[n] =
      M::MakeZero(a.w.zeros[n * a.w.unit_stride + unit]);
  int c = 0;
  // With more rows of x the factors of a block would not fit the registers beside the sums.
  if constexpr (M::kBlockChunks > 1 && MR == 1) {
    for (; c + M::kBlockChunks <= chunks; c += M::kBlockChunks) {
      next.Fetch<1>(M::kBlockChunks * a.next_lines);
      KU_UNROLL for (int n = 0; n < NR; ++n) {
        typename M::Vec b[M::kBlockChunks];
        M::LoadBlock(w + n * a.w.stride, zeros[n], b);
        KU_UNROLL for (int i = 0; i < M::kBlockChunks; ++i) {
          acc[0][n][0] = M::Multiply(b[i], M::LoadX(x + i * M::kChunkBytes, 0, 0), acc[0][n][0]);
        }
      }
      x += M::kBlockChunks * M::kChunkBytes;
      w += M::kBlockChunks * M::kWeightChunkBytes;
    }
  }
  for (; c < chunks; ++c, x += M::kChunkBytes, w += M::kWeightChunkBytes) {
    next.Fetch<1>(a.next_lines);
    KU_UNROLL for (int r = 0; r < R; ++r) {
      typename M::Vec b[NR][M::kSteps];
      KU_UNROLL for (int n = 0; n < NR; ++n) {
        M::LoadCodes(w + n * a.w.stride, first + r, zeros[n], b[n]);
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
          const typename M::Vec v = M::Pin(M::LoadX(x + m * a.x_stride, first + r, s));
          KU_UNROLL for (int n = 0; n < NR; ++n) {
            acc[m][n][r] = M::Multiply(b[n][s], v, acc[m][n][r]);
          }
        }
      }
    }
  }
}

// As Tile. The lanes of the fold block wait beside those of a unit, in registers if there is room.
template <class M, int MR, int NR>
HWY_NOINLINE void QuantizedTile(TileArgs& a) {
  constexpr int R = LiveVectors<M, MR, NR>();
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const int chunks = (a.k + M::kChunk - 1) / M::kChunk;
  Prefetcher next = a.next;
  for (int first = 0; first < kVectors; first += R) {
    const uint8_t* x = a.x;
    const uint8_t* w = a.w.values;
    float* const lanes = a.lanes + first * M::kVectorLanes;
    typename M::Acc sums[MR][NR][R];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
        KU_UNROLL for (int r = 0; r < R; ++r) sums[m][n][r] =
            a.first ? M::Zero()
                    : M::LoadAcc(lanes + (m * NR + n) * kSumLanes + r * M::kVectorLanes);
    for (int c = 0, unit = 0; c < chunks; c += a.w.unit_chunks, ++unit) {
      const int here = chunks - c < a.w.unit_chunks ? chunks - c : a.w.unit_chunks;
      typename M::Acc acc[MR][NR][R];
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
          KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] = M::Zero();
      AccumulateUnit<M, MR, NR, R>(a, x, w, unit, here, first, next, acc);
      x += static_cast<size_t>(here) * M::kChunkBytes;
      w += static_cast<size_t>(here) * M::kWeightChunkBytes;
      KU_UNROLL for (int n = 0; n < NR; ++n) {
        const typename M::Acc scale = M::Splat(a.w.scales[n * a.w.unit_stride + unit]);
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int r = 0; r < R; ++r) {
          sums[m][n][r] = M::MultiplyAdd(acc[m][n][r], scale, sums[m][n][r]);
        }
      }
    }
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
        KU_UNROLL for (int r = 0; r < R; ++r)
            M::StoreAcc(sums[m][n][r], lanes + (m * NR + n) * kSumLanes + r * M::kVectorLanes);
  }
  a.next = next;
  if (!a.last) return;
  if constexpr (M::kFoldsRegisters) {
    typename M::Acc acc[MR][NR][1];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n) acc[m][n][0] =
        M::LoadAcc(a.lanes + (m * NR + n) * kSumLanes);
    M::template Fold<MR, NR>(acc, a.sums, a.sum_stride, a.add);
  } else {
    M::template FoldLanes<MR, NR>(a.lanes, a.sums, a.sum_stride, a.add);
  }
}

// The factors of rows of codes.
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
  kernel.stored1[MR] = &QuantizedTile<M, MR, 1>;
  kernel.stored4[MR] = &QuantizedTile<M, MR, kPanelRows>;
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
