// Outer products over an instruction set M: words of some rows, read where they lie, by vectors of
// a panel, one lane or a few of all sums after the others. A multiply-add needs no fold across a
// register. The linear layer takes rows of W and a panel of tokens, so that W is neither copied nor
// transposed; attention takes queries and a panel of keys. Expected: 0.92 to 0.95 of the
// multiply-add peak with rows of 1024 elements; sums of lanes that wait for their partners cost the
// rest, and more where rows are short.
//
// Included like linear_tile-inl.h, after it and with what it asks of M; further
//   Vec Broadcast(const uint8_t* word) gives M the factor of all columns for a row,
//   Vec LoadPanel(const uint8_t* words) one vector of a panel, Acc Add(Acc, Acc),
//   MultiplyAdd(Acc unit, Acc scale, Acc acc) acc + scale * unit, Acc Splat(float) a scale in all
//   lanes,
//   void StoreLanes(const Vec (&rows)[kPackRows], int vector, uint8_t* to, size_t to_stride) writes
//   a vector of rows as kPackRows words of each of its lanes, a lane at its place.

template <class M, int MR, int NV>
HWY_INLINE void SetZero(typename M::Acc (&acc)[MR][NV]) {
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
      M::Zero();
}

template <class M, int MR, int NV>
HWY_INLINE void AddTo(typename M::Acc (&acc)[MR][NV], const typename M::Acc (&more)[MR][NV]) {
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
      M::Add(acc[m][n], more[m][n]);
}

// Accumulates the steps [begin, end) of the L lanes from `place` on.
template <class M, int MR, int NV, int kColumns, int L>
HWY_INLINE void AccumulateOuter(const OuterArgs& a, int place, int begin, int end,
                                typename M::Acc (&acc)[L][MR][NV]) {
  constexpr size_t kVectorBytes = M::kVectorLanes * sizeof(float);
  constexpr size_t kStepBytes = kColumns * sizeof(float);
  const uint8_t* panel = a.panel + place * a.panel_stride + begin * kStepBytes;
  const uint8_t* rows = a.rows + begin * kSumLanes * sizeof(float);
  size_t lane_at[L];
  KU_UNROLL for (int l = 0; l < L; ++l) lane_at[l] = LanePlace(place + l) * sizeof(float);
  for (int i = begin; i < end; ++i, panel += kStepBytes, rows += kSumLanes * sizeof(float)) {
    KU_UNROLL for (int l = 0; l < L; ++l) {
      typename M::Vec b[NV];
      KU_UNROLL for (int n = 0; n < NV; ++n) {
        b[n] = M::LoadPanel(panel + l * a.panel_stride + n * kVectorBytes);
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        const typename M::Vec v = M::Broadcast(rows + m * a.row_stride + lane_at[l]);
        KU_UNROLL for (int n = 0; n < NV; ++n) acc[l][m][n] = M::Multiply(b[n], v, acc[l][m][n]);
      }
    }
  }
}

// The sums of the L lanes from `place` on, added up: they are neighbours in the order of the fold.
template <class M, int MR, int NV, int kColumns, int L, bool kScaled>
HWY_INLINE void SumLanes(const OuterArgs& a, int place, typename M::Acc (&sums)[MR][NV]) {
  typename M::Acc acc[L][MR][NV];
  KU_UNROLL for (int l = 0; l < L; ++l) SetZero<M>(acc[l]);
  for (int i = 0, unit = 0; i < a.steps; i += a.unit_steps, ++unit) {
    const int end = i + a.unit_steps < a.steps ? i + a.unit_steps : a.steps;
    a.next->Fetch<2>(a.next_lines);
    if constexpr (kScaled) {
      typename M::Acc of_unit[L][MR][NV];
      KU_UNROLL for (int l = 0; l < L; ++l) SetZero<M>(of_unit[l]);
      AccumulateOuter<M, MR, NV, kColumns, L>(a, place, i, end, of_unit);
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        const typename M::Acc scale = M::Splat(a.scales[m * kMaxUnits + unit]);
        KU_UNROLL for (int l = 0; l < L; ++l) KU_UNROLL for (int n = 0; n < NV; ++n) {
          acc[l][m][n] = M::MultiplyAdd(of_unit[l][m][n], scale, acc[l][m][n]);
        }
      }
    } else {
      AccumulateOuter<M, MR, NV, kColumns, L>(a, place, i, end, acc);
    }
  }
  static_assert(L <= 4);
  if constexpr (L == 4) AddTo<M>(acc[2], acc[3]);
  if constexpr (L >= 2) AddTo<M>(acc[0], acc[1]);
  if constexpr (L == 4) AddTo<M>(acc[0], acc[2]);
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) sums[m][n] =
      acc[0][m][n];
}

// Panels are kColumns wide, of which the tile takes NV vectors, L lanes at once.
template <class M, int MR, int NV, int kColumns, int L, bool kScaled>
HWY_NOINLINE void OuterTile(const OuterArgs& a) {
  constexpr int kDepth = 4;  // of the fold, at most
  constexpr int kLanes = M::kVectorLanes;
  alignas(64) float waiting[kDepth][MR * NV * kLanes];
  int depth = 0;
  for (int place = 0; place < kSumLanes; place += L) {
    typename M::Acc acc[MR][NV];
    SumLanes<M, MR, NV, kColumns, L, kScaled>(a, place, acc);
    // A lane meets its partner, both theirs, and so on: as many times as its place ends in ones.
    for (int i = place / L; (i & 1) != 0; i >>= 1) {
      const float* partner = waiting[--depth];
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
          M::Add(acc[m][n], M::LoadAcc(partner + (m * NV + n) * kLanes));
    }
    const bool last = place + L == kSumLanes;
    float* const to = last ? a.sums : waiting[depth++];
    const size_t to_stride = last ? a.sum_stride : NV * kLanes;
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) {
      float* const at = to + m * to_stride + n * kLanes;
      M::StoreAcc(last && a.add ? M::Add(M::LoadAcc(at), acc[m][n]) : acc[m][n], at);
    }
  }
}

// The factors of stored rows of k elements; row n begins at rows(n).
template <class M, class Rows>
struct StoredFactors {
  const Rows& rows;
  int k;
  HWY_INLINE void operator()(int row, int c, int r, typename M::Vec (&v)[M::kSteps]) const {
    const uint8_t* chunk = rows(row) + static_cast<size_t>(c) * M::kWeightChunkBytes;
    const int elements = k - c * M::kChunk;
    if (elements >= M::kChunk) return M::LoadWeights(chunk, r, v);
    alignas(64) uint8_t padded[M::kWeightChunkBytes] = {};
    memcpy(padded, chunk, elements * (M::kWeightChunkBytes / M::kChunk));
    M::LoadWeights(padded, r, v);
  }
};

// Converted chunks side by side, one of each row.
template <class M>
struct ConvertedChunks {
  const uint8_t* chunks;
  HWY_INLINE void operator()(int row, int, int r, typename M::Vec (&v)[M::kSteps]) const {
    KU_UNROLL for (int s = 0; s < M::kSteps; ++s) v[s] =
        M::LoadX(chunks + row * M::kChunkBytes, r, s);
  }
};

// Chunk c of `columns` rows as columns of a panel, the first of which is at `panel`; load(row, c,
// vector, v) gives the words of one vector.
template <class M, class F>
HWY_INLINE void PackChunk(int columns, int c, const F& load, uint8_t* panel, size_t step_bytes,
                          size_t panel_stride) {
  constexpr int kRows = M::kPackRows;
  for (int n = 0; n < columns; n += kRows) {
    uint8_t* const to = panel + n * sizeof(float);
    for (int r = 0; r < kSumLanes / M::kVectorLanes; ++r) {
      typename M::Vec v[M::kSteps][kRows];
      KU_UNROLL for (int i = 0; i < kRows; ++i) {
        typename M::Vec row[M::kSteps];
        load(n + i, c, r, row);
        KU_UNROLL for (int s = 0; s < M::kSteps; ++s) v[s][i] = row[s];
      }
      KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
        M::StoreLanes(v[s], r, to + s * step_bytes, panel_stride);
      }
    }
  }
}

// LinearKernel::pack_rows.
template <class M>
void PackRows(const uint8_t* const* rows, int k, int columns, uint8_t* panel, size_t panel_stride) {
  const size_t step_bytes = columns * sizeof(float);
  const ScatteredRows at{rows, 0};
  for (int c = 0; c * M::kChunk < k; ++c, panel += M::kSteps * step_bytes) {
    PackChunk<M>(columns, c, StoredFactors<M, ScatteredRows>{at, k}, panel, step_bytes,
                 panel_stride);
  }
}

// LinearKernel::pack_tokens.
template <class M>
void PackTokens(const float* const* x, int tokens, int k, int columns, uint8_t* panel,
                size_t panel_stride) {
  const size_t step_bytes = columns * sizeof(float);
  alignas(64) uint8_t chunks[kSumLanes * M::kChunkBytes] = {};
  for (int i = 0; i < k; i += M::kChunk, panel += M::kSteps * step_bytes) {
    const int elements = k - i < M::kChunk ? k - i : M::kChunk;
    for (int t = 0; t < tokens; ++t) {
      ConvertRow<M>(x[t] + i, elements, chunks + LanePlace(t) * M::kChunkBytes);
    }
    PackChunk<M>(kSumLanes, 0, ConvertedChunks<M>{chunks}, panel, step_bytes, panel_stride);
  }
}

// LinearKernel::transpose: the words of 16 rows are moved as those of a chunk of one step are.
template <class M>
void Transpose(const float* rows, size_t stride, float* to, size_t to_stride) {
  constexpr int kRows = M::kPackRows;
  for (int n = 0; n < kSumLanes; n += kRows) {
    for (int r = 0; r < kSumLanes / M::kVectorLanes; ++r) {
      typename M::Vec v[kRows];
      KU_UNROLL for (int i = 0; i < kRows; ++i) {
        v[i] = M::LoadPanel(
            reinterpret_cast<const uint8_t*>(rows + (n + i) * stride + r * M::kVectorLanes));
      }
      M::StoreLanes(v, r, reinterpret_cast<uint8_t*>(to + n), to_stride * sizeof(float));
    }
  }
}

// The factors of `rows` rows as LinearKernel::widen_rows gives them.
template <class M, class F>
HWY_INLINE void StoreFactors(int rows, int chunks, const F& load, uint8_t* to, size_t to_stride) {
  for (int n = 0; n < rows; ++n, to += to_stride) {
    for (int c = 0; c < chunks; ++c) {
      for (int r = 0; r < kSumLanes / M::kVectorLanes; ++r) {
        typename M::Vec v[M::kSteps];
        load(n, c, r, v);
        KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
          M::StoreX(v[s], to + static_cast<size_t>(c) * M::kChunkBytes, r, s);
        }
      }
    }
  }
}

template <class M>
void WidenRows(const WeightRows& w, int rows, int k, uint8_t* to, size_t to_stride) {
  const EvenRows at{w.values, w.stride};
  StoreFactors<M>(rows, (k + M::kChunk - 1) / M::kChunk, StoredFactors<M, EvenRows>{at, k}, to,
                  to_stride);
}

template <class M, int MR, int NV, int kColumns, int L, bool kScaled>
void SetOuterTiles(OuterTiles& outer) {
  outer.tiles[MR] = &OuterTile<M, MR, NV, kColumns, L, kScaled>;
  if constexpr (MR > 1) SetOuterTiles<M, MR - 1, NV, kColumns, L, kScaled>(outer);
}

// Tiles of kMaxTileRows rows, of as many columns and lanes as there are registers for. Quantised
// kinds hold the sums of a unit and those of the fold block.
template <class M, int kColumns, bool kScaled>
void SetOuter(OuterTiles& outer) {
  constexpr int kFit = M::kAccRegisters / (kScaled ? 2 : 1) / kMaxTileRows;  // vectors
  constexpr int kAll = kColumns / M::kVectorLanes;
  constexpr int kVectors = kAll < kFit ? kAll : kFit;
  constexpr int kLanes = kFit / kVectors;
  outer.columns = kColumns;
  outer.tile_columns = kVectors * M::kVectorLanes;
  outer.passes = kSumLanes / kLanes;
  SetOuterTiles<M, kMaxTileRows, kVectors, kColumns, kLanes, kScaled>(outer);
}

// What dense and quantised kinds have.
template <class M, bool kScaled>
void SetOuter(LinearKernel& kernel) {
  kernel.pack_tokens = &PackTokens<M>;
  kernel.transpose = &Transpose<M>;
  SetOuter<M, kSumLanes, kScaled>(kernel.outer[0]);
  // Two vectors of columns per row take half the loads.
  if constexpr (M::kVectorLanes == kSumLanes) SetOuter<M, 2 * kSumLanes, kScaled>(kernel.outer[1]);
}

template <class M>
LinearKernel MakeKernel() {
  LinearKernel kernel = KernelOfActivations<M>();
  kernel.pack_rows = &PackRows<M>;
  kernel.widen_rows = &WidenRows<M>;
  SetDots<M, M::kTileRows>(kernel);
  SetTiles<M, M::kTileRows>(kernel);
  SetOuter<M, false>(kernel);
  return kernel;
}
