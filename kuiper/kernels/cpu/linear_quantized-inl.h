// The micro-kernels of quantised weights over an instruction set M. Included like
// linear_tile-inl.h, after it and with what it asks of M; but instead of LoadWeights
//   void LoadCodes(const uint8_t* chunk, int vector, ZeroCode zero, Vec (&v)[kSteps])
// gives M the factors of a chunk, `zero` being MakeZero(int32_t) of the unit, and
//   Acc MultiplyScale(Acc unit, float scale, Acc acc) is acc + scale * unit.
// Panels hold the factors.

// Accumulates the chunks [0, chunks) of one unit.
template <class M, int MR, int NR, int R, bool PANEL>
HWY_INLINE void AccumulateUnit(const TileArgs& a, const uint8_t* x, const uint8_t* w, int unit,
                               int chunks, int first, typename M::Acc (&acc)[MR][NR][R]) {
  if constexpr (PANEL) {
    for (int c = 0; c < chunks; ++c, x += M::kChunkBytes, w += NR * M::kChunkBytes) {
      AccumulateChunk<M, MR, NR, R, true>(x, a.x_stride, EvenRows{w, M::kChunkBytes}, first, acc);
    }
  } else {
    typename M::ZeroCode zeros[NR];
    KU_UNROLL for (int n = 0; n < NR; ++n) zeros[n] = M::MakeZero(a.w.zeros[n * kMaxUnits + unit]);
    for (int c = 0; c < chunks; ++c, x += M::kChunkBytes, w += M::kWeightChunkBytes) {
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
}

// As Tile. The lanes of the fold block wait in a.lanes while those of a unit are in registers.
template <class M, int MR, int NR, bool PANEL>
HWY_NOINLINE void QuantizedTile(const TileArgs& a) {
  constexpr int R = LiveVectors<M, MR, NR>();
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const int chunks = (a.k + M::kChunk - 1) / M::kChunk;
  for (int first = 0; first < kVectors; first += R) {
    const uint8_t* x = a.x;
    const uint8_t* w = a.w.values;
    float* const lanes = a.lanes + first * M::kVectorLanes;
    for (int c = 0, unit = 0; c < chunks; c += a.w.unit_chunks, ++unit) {
      const int here = chunks - c < a.w.unit_chunks ? chunks - c : a.w.unit_chunks;
      typename M::Acc acc[MR][NR][R];
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n)
          KU_UNROLL for (int r = 0; r < R; ++r) acc[m][n][r] = M::Zero();
      AccumulateUnit<M, MR, NR, R, PANEL>(a, x, w, unit, here, first, acc);
      x += static_cast<size_t>(here) * M::kChunkBytes;
      w += static_cast<size_t>(here) * (PANEL ? NR * M::kChunkBytes : M::kWeightChunkBytes);
      const bool begins = a.first && unit == 0;
      KU_UNROLL for (int n = 0; n < NR; ++n) {
        const float scale = a.w.scales[n * kMaxUnits + unit];
        KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int r = 0; r < R; ++r) {
          float* const at = lanes + (m * NR + n) * kSumLanes + r * M::kVectorLanes;
          const typename M::Acc before = begins ? M::Zero() : M::LoadAcc(at);
          M::StoreAcc(M::MultiplyScale(acc[m][n][r], scale, before), at);
        }
      }
    }
  }
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

template <class M>
void PackQuantized(const WeightRows& w, int rows, int k, uint8_t* panel) {
  constexpr int kVectors = kSumLanes / M::kVectorLanes;
  const int chunks = k / M::kChunk;
  for (int n = 0; n < kPanelRows; ++n) {
    uint8_t* to = panel + n * M::kChunkBytes;
    const uint8_t* chunk = w.values + n * w.stride;
    for (int c = 0; c < chunks; ++c, to += kPanelRows * M::kChunkBytes) {
      if (n >= rows) {
        memset(to, 0, M::kChunkBytes);
        continue;
      }
      const auto zero = M::MakeZero(w.zeros[n * kMaxUnits + c / w.unit_chunks]);
      KU_UNROLL for (int r = 0; r < kVectors; ++r) {
        typename M::Vec v[M::kSteps];
        M::LoadCodes(chunk, r, zero, v);
        KU_UNROLL for (int s = 0; s < M::kSteps; ++s) M::StoreX(v[s], to, r, s);
      }
      chunk += M::kWeightChunkBytes;
    }
  }
}

template <class M, int MR>
void SetQuantizedTiles(LinearKernel& kernel) {
  kernel.stored1[MR] = &QuantizedTile<M, MR, 1, false>;
  kernel.stored4[MR] = &QuantizedTile<M, MR, kPanelRows, false>;
  kernel.panel[MR] = &QuantizedTile<M, MR, kPanelRows, true>;
  if constexpr (MR > 1) SetQuantizedTiles<M, MR - 1>(kernel);
}

template <class M>
LinearKernel MakeQuantizedKernel(decltype(LinearKernel::widen) widen) {
  LinearKernel kernel = KernelOfActivations<M>();
  kernel.pack = &PackQuantized<M>;
  kernel.widen = widen;
  SetQuantizedTiles<M, M::kTileRows>(kernel);
  return kernel;
}
