// Outer products that only dense kinds have. Panels are made of stored rows, also of rows anywhere
// (keys of attention, by short_outer). For token_panel.cpp, StoredRowTile multiplies rows of W in
// place by a packed activation panel. MakeKernel sets the kernel of a dense kind with all its
// tiles.
//
// Included like outer-inl.h, after it. If M::kWordSteps is more than 1, M provides further:
//   Vec LoadWords(const uint8_t* chunks, int vector) loads the stored words of a vector of lanes,
//     of kWordSteps steps.
//   BroadcastPair(const uint8_t* word, Vec (&factors)[kSteps]) splits a word into operands, if
//     these are steps of one K slice.
//   SplitPairs(uint8_t* words) is for steps of several K slices. It converts a vector of pairs to
//     the format of a panel, where the operands of one step are adjacent.

// Loads the operands of stored rows of k elements; row n begins at rows(n).
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

template <class M>
constexpr int PanelColumns() {
  return OuterVectors<M, false>() * M::kVectorLanes;
}

template <class M, int kColumns, class Rows>
HWY_INLINE void PackRows(const Rows& rows, int count, int k, uint8_t* panel, size_t panel_stride) {
  const int chunks = (k + M::kChunk - 1) / M::kChunk;
  PackPanel<M>(count, kColumns, chunks, panel, panel_stride, StoredFactors<M, Rows>{rows, k});
}

// Moves words of a row unchanged.
template <class M>
struct PairWords : M {
  static constexpr int kChunks = ChunksOfWord<M>(), kChunk = kChunks * M::kChunk, kSteps = 1;
  static constexpr int kWeightChunkBytes = kChunks * M::kWeightChunkBytes;
  static HWY_INLINE void LoadWeights(const uint8_t* chunk, int vector,
                                     typename M::Vec (&v)[kSteps]) {
    v[0] = M::LoadWords(chunk, vector);
  }
};

// Packs words that hold the operands of several steps.
template <class M, class Rows>
void PackPairs(const Rows& rows, int count, int k, uint8_t* panel, size_t panel_stride) {
  using Words = PairWords<M>;
  constexpr int kColumns = PanelColumns<M>();
  PackRows<Words, kColumns>(rows, count, k, panel, panel_stride);
  if constexpr (Words::kChunks > 1) {
    const int vectors = (k + Words::kChunk - 1) / Words::kChunk * (kColumns / M::kVectorLanes);
    for (int place = 0; place < kSumLanes; ++place, panel += panel_stride) {
      for (int i = 0; i < vectors; ++i) {
        M::SplitPairs(panel + i * M::kVectorLanes * sizeof(float));
      }
    }
  }
}

template <class M, class Rows>
void PackStored(const Rows& rows, int count, int k, uint8_t* panel, size_t panel_stride) {
  if constexpr (M::kWordSteps > 1) {
    PackPairs<M>(rows, count, k, panel, panel_stride);
  } else {
    PackRows<M, PanelColumns<M>()>(rows, count, k, panel, panel_stride);
  }
}

template <class M>
void Pack(const WeightRows& w, int rows, int k, uint8_t* panel, size_t panel_stride) {
  PackStored<M>(EvenRows{w.values, w.stride}, rows, k, panel, panel_stride);
}

template <class M>
void PackScattered(const uint8_t* const* rows, int count, int k, uint8_t* panel,
                   size_t panel_stride) {
  PackStored<M>(ScatteredRows{rows, 0}, count, k, panel, panel_stride);
}

// PrepackedKernel::read_row.
template <class M>
void ReadRow(const uint8_t* panel, int row, int k, uint8_t* to) {
  constexpr int kColumns = PanelColumns<M>(), kWord = sizeof(float);
  constexpr int kParts = ChunksOfWord<M>(), kPart = kWord / kParts;  // bytes of one K slice
  const int words = k / (kParts * M::kChunk);                        // words of a lane
  const int in_vector = row % M::kVectorLanes;
  panel += (row - in_vector) * kWord + in_vector * kPart;
  for (int place = 0; place < kSumLanes; ++place) {
    uint8_t* lane = to + LanePlace(place) * kPart;
    for (int i = 0; i < words; ++i, panel += kColumns * kWord) {
      for (int part = 0; part < kParts; ++part, lane += kSumLanes * kPart) {
        memcpy(lane, panel + part * M::kVectorLanes * kPart, kPart);
      }
    }
  }
}

// Returns the vectors of a short_outer tile: two lanes of it fit in registers. If registers are
// few, it has as many columns as a tile for long rows, and one lane at a time. It then has 12
// chains of sums; six chains of two lanes would wait for each other's latency.
template <class M>
constexpr int ShortVectors() {
  return IsNarrow<M>() ? OuterVectors<M, false>() : M::kAccRegisters / 2 / kMaxTileRows;
}

// Keys of 128 elements, BF16 on Zen 5: 0.87 of the multiply-add peak, and 0.69 with one lane at a
// time.
template <class M, int MR>
void SetShortOuterTiles(LinearKernel& kernel) {
  constexpr int kLanesAtOnce = IsNarrow<M>() ? 1 : 2;
  kernel.short_outer[MR] =
      &OuterTile<M, MR, ShortVectors<M>(), PanelColumns<M>(), kLanesAtOnce, SteadyFetch<0>>;
  if constexpr (MR > 1) SetShortOuterTiles<M, MR - 1>(kernel);
}

// Broadcasts the operands of a stored word of a row, one for each step of its K slice.
template <class M>
HWY_INLINE void BroadcastWord(const uint8_t* word, typename M::Vec (&v)[M::kSteps]) {
  if constexpr (M::kSteps == 1) {
    v[0] = M::KeepInRegister(M::Broadcast(word));
  } else {
    M::BroadcastPair(word, v);
  }
}

// Addresses MR adjacent rows with few pointers, since x86 has few registers. Row m is 0, 1 or 2
// strides after one of the pointers, which an x86 address can express.
template <int MR>
struct RowCursor {
  static constexpr int kPerPointer = 3, kPointers = (MR + kPerPointer - 1) / kPerPointer;
  const uint8_t* at[kPointers];
  size_t stride;

  HWY_INLINE RowCursor(const uint8_t* rows, size_t stride) : stride(stride) {
    KU_UNROLL for (int i = 0; i < kPointers; ++i) at[i] = rows + i * kPerPointer * stride;
  }
  // Stops the compiler from making one pointer per row and word, which it would spill.
  HWY_INLINE void KeepInRegister() {
    KU_UNROLL for (int i = 0; i < kPointers; ++i) asm("" : "+r"(at[i]));
  }
  HWY_INLINE const uint8_t* operator()(int m) const {
    return at[m / kPerPointer] + m % kPerPointer * stride;
  }
  HWY_INLINE void Skip(size_t bytes) {
    KU_UNROLL for (int i = 0; i < kPointers; ++i) at[i] += bytes;
  }
};

// Computes L lanes, from position L * group on, of MR rows of W, in place, by NV vectors of tokens.
template <class M, int MR, int NV, int L>
struct StoredLanes {
  static constexpr size_t kVectorBytes = M::kVectorLanes * sizeof(float);
  static constexpr size_t kStepBytes = NV * kVectorBytes;
  static_assert(M::kWeightChunkBytes == kSumLanes * sizeof(float));
  const OuterArgs& a;
  SteadyFetch<L == 4 ? 2 : 1> fetch{a};  // 4 lanes at once have few steps

  HWY_INLINE void operator()(int group, typename M::Acc (&acc)[MR][NV]) {
    typename M::Acc lanes[L][MR][NV];
    KU_UNROLL for (int l = 0; l < L; ++l) SetZero<M>(lanes[l]);
    const uint8_t* panel = a.panel + L * group * a.panel_stride;
    // Positions are bit-reversed lane indices, so the lanes of every group are equally far apart.
    RowCursor<MR> rows(a.rows + LanePlace(L * group) * sizeof(float), a.row_stride);
    for (int i = 0; i < a.steps; i += M::kSteps) {
      fetch.InWord(0);
      rows.KeepInRegister();
      KU_UNROLL for (int l = 0; l < L; ++l) {
        typename M::Vec b[M::kSteps][NV];
        KU_UNROLL for (int s = 0; s < M::kSteps; ++s) KU_UNROLL for (int n = 0; n < NV; ++n) {
          b[s][n] = M::LoadPanel(panel + l * a.panel_stride + s * kStepBytes + n * kVectorBytes);
        }
        KU_UNROLL for (int m = 0; m < MR; ++m) {
          typename M::Vec v[M::kSteps];
          BroadcastWord<M>(rows(m) + LanePlace(l) * sizeof(float), v);
          KU_UNROLL for (int s = 0; s < M::kSteps; ++s) KU_UNROLL for (int n = 0; n < NV; ++n) {
            lanes[l][m][n] = M::Multiply(b[s][n], v[s], lanes[l][m][n]);
          }
        }
      }
      panel += M::kSteps * kStepBytes;
      rows.Skip(M::kWeightChunkBytes);
    }
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) {
      static_assert(L == 1 || L == 2 || L == 4);
      acc[m][n] = lanes[0][m][n];
      if constexpr (L >= 2) acc[m][n] = M::Add(acc[m][n], lanes[1][m][n]);
      if constexpr (L == 4) {
        acc[m][n] = M::Add(acc[m][n], M::Add(lanes[2][m][n], lanes[3][m][n]));
      }
    }
  }
};

template <class M, int MR, int NV, int L>
HWY_NOINLINE void StoredRowTile(const OuterArgs& a) {
  AddLanes<M, MR, NV>(a, kSumLanes / L, StoredLanes<M, MR, NV, L>{a});
}

// Loads operands from adjacent converted K slices, one per row.
template <class M>
struct ConvertedChunks {
  const uint8_t* chunks;
  HWY_INLINE void operator()(int row, int, int r, typename M::Vec (&v)[M::kSteps]) const {
    KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
      v[s] = M::LoadX(chunks + row * M::kChunkBytes, r, s);
    }
  }
};

// Returns the column of token t of a vector: StoreLanes writes lanes in the order of LanePlace.
template <class M>
constexpr int TokenColumn(int t) {
  return LanePlace(t) / (kSumLanes / M::kVectorLanes);
}

// TokenPanelKernel::pack.
template <class M>
void PackTokens(const float* const* x, int tokens, int k, int columns, uint8_t* panel,
                size_t panel_stride) {
  constexpr int kTokens = M::kVectorLanes;
  alignas(64) uint8_t chunks[kTokens * M::kChunkBytes] = {};
  for (int i = 0; i < k; i += M::kChunk, panel += M::kSteps * columns * sizeof(float)) {
    const int elements = k - i < M::kChunk ? k - i : M::kChunk;
    for (int t = 0; t < tokens; ++t) {
      ConvertRow<M>(x[t] + i, elements, chunks + TokenColumn<M>(t) * M::kChunkBytes);
    }
    PackChunk<M>(kTokens, kTokens, 0, panel, columns * sizeof(float), panel_stride,
                 ConvertedChunks<M>{chunks});
  }
}

// TokenPanelKernel::transpose: moves words like those of a K slice of one step.
template <class M>
void Transpose(const float* rows, size_t stride, float* to, size_t to_stride) {
  constexpr int kRows = M::kPackRows;
  const size_t place_bytes = to_stride * sizeof(float) / (kSumLanes / M::kVectorLanes);
  for (int n = 0; n < kSumLanes; n += kRows, rows += kRows * stride) {
    typename M::Vec v[kRows];
    KU_UNROLL for (int i = 0; i < kRows; ++i) {
      v[i] = M::LoadPanel(reinterpret_cast<const uint8_t*>(rows + i * stride));
    }
    M::StoreLanes(v, 0, reinterpret_cast<uint8_t*>(to + n), place_bytes);
  }
}

template <class M, int MR, int NV, int L>
void SetRowTiles(TokenPanelKernel& panel) {
  panel.tiles[NV - 1][MR] = &StoredRowTile<M, MR, NV, L>;
  if constexpr (MR > 1) SetRowTiles<M, MR - 1, NV, L>(panel);
}
template <class M, int MR, int NV, int L>
void AddRowTiles(TokenPanelKernel& panel) {
  panel.max_vectors = NV;
  panel.rows[NV - 1] = MR;
  panel.lanes_at_once[NV - 1] = L;
  SetRowTiles<M, MR, NV, L>(panel);
}

// With panels of few vectors, tiles compute several lanes at once. Only measured sets have token
// panels: sets with registers of 16 lanes, and sets with 16 registers of 8 lanes.
template <class M>
TokenPanelKernel MakeTokenPanel() {
  constexpr bool kWords = M::kWeightChunkBytes == kSumLanes * sizeof(float);
  constexpr bool kWide = M::kVectorLanes == kSumLanes && M::kChunkBytes == M::kWeightChunkBytes;
  TokenPanelKernel panel;
  if constexpr (kWords && (kWide || IsNarrow<M>())) {
    panel.vector = M::kVectorLanes;
    panel.pack = &PackTokens<M>;
    panel.transpose = &Transpose<M>;
    if constexpr (kWide) {
      AddRowTiles<M, 6, 1, 4>(panel);
      AddRowTiles<M, 6, 2, 2>(panel);
      AddRowTiles<M, 6, 3, 1>(panel);
      AddRowTiles<M, 6, 4, 1>(panel);
      panel.min_tokens = 13;  // with fewer tokens, products take less time than reading W
      panel.max_rest = 8;
    } else {
      AddRowTiles<M, 5, 1, 2>(panel);
      AddRowTiles<M, 4, 2, 1>(panel);
      AddRowTiles<M, 4, 3, 1>(panel);
      panel.min_tokens = 7;  // dot products of six are as fast as a panel of eight
      panel.max_rest = 3;
    }
  }
  return panel;
}

// True if W can be prepacked: its panels hold the stored bytes in another order. Only measured sets
// do this.
template <class M>
constexpr bool TakesPrepacked() {
  constexpr bool kAsStored = M::kChunkBytes == M::kWeightChunkBytes;
  return M::kWordSteps > 1 || (kAsStored && (IsNarrow<M>() || TakesPairedLanes<M, false>()));
}
// Returns 2 if registers hold the sums of two lanes and the operands of a step, else 1.
template <class M, int MR>
constexpr int LanesAtOnce() {
  constexpr int kVectors = OuterVectors<M, false>(), kFactors = kVectors + 2;
  return 2 * MR * kVectors + kFactors < M::kRegisters ? 2 : 1;
}
// BF16 has few products per line: tiles of up to five tokens read at the rate of memory without
// prefetches. Tiles of six wait for memory where two cores read 50 GB/s and more. There prefetches
// reduce their time to 0.85; where two cores read 33 GB/s, the time is up to 1.03 (Zen 4).
template <class M, int MR>
void SetSingleTiles(PrepackedKernel& prepacked) {
  constexpr int kVectors = OuterVectors<M, false>(), kColumns = PanelColumns<M>();
  constexpr int kLines = kColumns * sizeof(float) / 64;  // lines of a step
  constexpr bool kFetches = M::kWordSteps > 1 || MR >= kMaxTileRows;
  prepacked.single[MR] = &OuterTile<M, MR, kVectors, kColumns, LanesAtOnce<M, MR>(),
                                    SteadyFetch<kFetches ? kLines : 0>>;
  if constexpr (MR > 1) SetSingleTiles<M, MR - 1>(prepacked);
}
template <class M, int MR>
void SetPrepackedTiles(PrepackedKernel& prepacked) {
  constexpr int kVectors = OuterVectors<M, false>();
  prepacked.tiles[MR] = &OuterTile<M, MR, kVectors, PanelColumns<M>(), LanesAtOnce<M, MR>(),
                                   SteadyFetch<1, IsNarrow<M>() ? 2 : 1>>;
  if constexpr (MR > 1) SetPrepackedTiles<M, MR - 1>(prepacked);
}
template <class M>
PrepackedKernel MakePrepacked() {
  PrepackedKernel prepacked;
  constexpr int kRows = M::kAccRegisters / OuterVectors<M, false>();
  static_assert(kRows <= kMaxSingleTileRows);
  prepacked.max_single_rows = kRows;
  SetSingleTiles<M, kRows>(prepacked);
  SetPrepackedTiles<M, kMaxTileRows>(prepacked);
  prepacked.read_row = &ReadRow<M>;
  return prepacked;
}

template <class M>
LinearKernel MakeKernel() {
  LinearKernel kernel = KernelOfActivations<M>();
  kernel.pack = &Pack<M>;
  SetDots<M, M::kTileRows>(kernel.dots);
  SetTiles<M, M::kTileRows>(kernel);
  SetOuter<M, false>(kernel);
  kernel.pack_scattered = &PackScattered<M>;
  kernel.short_columns = ShortVectors<M>() * M::kVectorLanes;
  SetShortOuterTiles<M, kMaxTileRows>(kernel);
  if constexpr (TakesPrepacked<M>()) kernel.prepacked = MakePrepacked<M>();
  kernel.token_panel = MakeTokenPanel<M>();
  return kernel;
}
