// The outer products of the linear layer over an instruction set M, for many tokens. A tile has
// tokens by vectors of output features; one or two lanes of all its sums are computed at a time. No
// register is reduced, and W is read once per tile from a panel in the L2 cache. Expected: 0.9 of
// the multiply-add peak; the remainder is for storing lane sums until they are added to their
// partners. dense-inl.h has the parts that only dense kinds use.
//
// Included like tile-inl.h, after it. M provides what tile-inl.h requires, and further:
//   Vec Broadcast(const uint8_t* word) returns M's operand of all columns, for a row of x.
//   Vec LoadPanel(const uint8_t* words) loads one vector of a panel.
//   Acc Add(Acc, Acc) adds, and Acc Splat(float) returns a scale in all lanes.
//   FusedMultiplyAdd(Vec w, Vec x, Acc& acc) is Multiply, but leaves the sum in its register.
//   MultiplyAdd(Acc unit, Acc scale, Acc acc) returns acc + scale * unit.
//   int kWordSteps: if more than 1, a word of a panel of W holds the operands of kWordSteps steps
//     as stored, from one K slice or several.
//   Vec LoadPairs(const uint8_t* words, int step) then extracts the operands of a step.
//   void StoreLanes(const Vec (&rows)[kPackRows], int vector, uint8_t* to, size_t to_stride) writes
//     a vector of each row as kPackRows words per lane. A lane goes to index LanePlace of the lane.

// Prefetches a burst of lines before each lane of a tile.
struct BurstFetch {
  const OuterArgs& a;
  HWY_INLINE void BeforeLane() { a.next->Fetch(a.next_lines); }
  HWY_INLINE void InWord(int) {}
};
// Prefetches nothing (kLines = 0), or kLines lines with each kWords-th word. Products wait for a
// burst of prefetches: without bursts 12 and 16 tokens took 0.86 of the time, 32 took 0.93, 64 and
// more the same (Zen 4).
template <int kLines, int kWords = 1>
struct SteadyFetch {
  const uint8_t* at;
  size_t step;
  explicit HWY_INLINE SteadyFetch(const OuterArgs& a) : at(a.ahead), step(kWords * a.ahead_step) {}
  HWY_INLINE void BeforeLane() {}
  HWY_INLINE void InWord(int word) {
    if (kLines == 0 || word % kWords != 0) return;
    KU_UNROLL for (int i = 0; i < kLines; ++i) __builtin_prefetch(at + i * 64, 0, 2);
    at += step;
  }
};

// True for 16 registers of eight lanes, as in AVX2. Choices measured there are used nowhere else.
template <class M>
constexpr bool IsNarrow() {
  return M::kVectorLanes == 8 && M::kRegisters == 16;
}

// Returns how many K slices have elements in one word of a panel.
template <class M>
constexpr int ChunksOfWord() {
  return M::kWordSteps > M::kSteps ? M::kWordSteps / M::kSteps : 1;
}

// Returns the operands of one step in a vector of words of a panel.
template <class M>
HWY_INLINE typename M::Vec LoadFactors(const uint8_t* words, [[maybe_unused]] int step) {
  if constexpr (M::kWordSteps > 1) {
    return M::LoadPairs(words, step);
  } else {
    return M::LoadPanel(words);
  }
}

// Multiplies the next word of one lane, kSteps steps. The tile uses the first NV vectors of the
// panel's kColumns columns.
template <class M, int MR, int NV, int kColumns, int kSteps, class Fetch>
struct OuterWord {
  static constexpr size_t kVectorBytes = M::kVectorLanes * sizeof(float);
  const uint8_t*& x;
  const uint8_t*& w;
  Fetch& fetch;
  typename M::Acc (&acc)[MR][NV];

  HWY_INLINE void operator()(int i) const {
    fetch.InWord(i);
    KU_UNROLL for (int s = 0; s < kSteps; ++s, x += MR * sizeof(float)) {
      typename M::Vec b[NV];
      KU_UNROLL for (int n = 0; n < NV; ++n) b[n] = LoadFactors<M>(w + n * kVectorBytes, s);
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        const typename M::Vec v = M::KeepInRegister(M::Broadcast(x + m * sizeof(float)));
        KU_UNROLL for (int n = 0; n < NV; ++n) M::FusedMultiplyAdd(b[n], v, acc[m][n]);
      }
    }
    w += kColumns * sizeof(float);
  }
};

// Calls word(i) `times` times, unrolled by four for 256-bit registers: mispredicting the end of a
// lane's loop costs the time of 40 multiply-adds (Zen 3).
template <class M, class Word>
HWY_INLINE void RepeatWord(int times, const Word& word) {
  constexpr int kUnrolled = IsNarrow<M>() ? 4 : 1;
  for (; times >= kUnrolled; times -= kUnrolled) {
    KU_UNROLL for (int i = 0; i < kUnrolled; ++i) word(i);
  }
  if constexpr (kUnrolled > 1) {
    for (; times > 0; --times) word(0);
  }
}

// Accumulates `steps` steps of one lane of any dense panel.
template <class M, int MR, int NV, int kColumns, class Fetch>
HWY_INLINE void AccumulatePanel(const uint8_t*& x, const uint8_t*& w, int steps, Fetch& fetch,
                                typename M::Acc (&acc)[MR][NV]) {
  constexpr int kSteps = M::kWordSteps;
  RepeatWord<M>(steps / kSteps, OuterWord<M, MR, NV, kColumns, kSteps, Fetch>{x, w, fetch, acc});
  if constexpr (ChunksOfWord<M>() > 1) {
    if (steps % kSteps != 0) {
      OuterWord<M, MR, NV, kColumns, M::kSteps, Fetch>{x, w, fetch, acc}(0);
    }
  }
}

template <class M, int MR, int NV>
HWY_INLINE void SetZero(typename M::Acc (&acc)[MR][NV]) {
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
      M::Zero();
}

// Adds the sums of `count` lanes, or groups of lanes, in the order of the contract, into a.sums.
// part(i, acc) computes the sums of the lane or group at position i.
template <class M, int MR, int NV, class F>
HWY_INLINE void AddLanes(const OuterArgs& a, int count, F part) {
  constexpr int kDepth = 4;  // levels of the reduction
  constexpr int kLanes = M::kVectorLanes;
  alignas(64) float waiting[kDepth][MR][NV][kLanes];
  auto* top = waiting;  // after the stored sums
  typename M::Acc acc[MR][NV];
  for (int place = 0;;) {
    part(place, acc);
    // Pairwise reduction: adds as many stored sums as `place` has trailing one bits.
    for (int i = place; (i & 1) != 0; i >>= 1) {
      --top;
      KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
          M::Add(acc[m][n], M::LoadAcc((*top)[m][n]));
    }
    if (++place == count) break;
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) {
      M::StoreAcc(acc[m][n], (*top)[m][n]);
    }
    ++top;
  }
  float* const sums = a.sums;
  const size_t stride = a.sum_stride;
  if (a.add) {
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
        M::Add(M::LoadAcc(sums + m * stride + n * kLanes), acc[m][n]);
  }
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) {
    M::StoreAcc(acc[m][n], sums + m * stride + n * kLanes);
  }
}

// Computes the next lane of all sums, or the next two. Lanes are requested in order, so that
// pointers only advance. A compiler that is short of registers would keep addresses in vector
// registers, where they wait for products.
template <class M, int MR, int NV, int kColumns, int L, class Fetch, bool kScaled>
struct NextLanes {
  static constexpr int kSteps = M::kWordSteps;  // steps per word
  using Sums = typename M::Acc[MR][NV];
  const OuterArgs& a;
  Fetch fetch{a};
  const uint8_t* x = a.rows;
  const uint8_t* w = a.panel;
  // Bytes between the end of a lane of W and the next lane.
  size_t gap = a.panel_stride - (a.steps + kSteps - 1) / kSteps * kColumns * sizeof(float);

  HWY_INLINE void Lane(Sums& acc) {
    SetZero<M>(acc);
    fetch.BeforeLane();
    if constexpr (kScaled) {
      ScaledLane(acc);
    } else {
      AccumulatePanel<M, MR, NV, kColumns>(x, w, a.steps, fetch, acc);
    }
    w += gap;
  }
  HWY_INLINE void ScaledLane(Sums& acc) {
    const float* scales = a.scales;
    for (int i = 0; i < a.steps; i += a.unit_steps, scales += a.scale_stride) {
      Sums unit;
      SetZero<M>(unit);
      const int here = a.steps - i < a.unit_steps ? a.steps - i : a.unit_steps;
      const OuterWord<M, MR, NV, kColumns, 1, Fetch> word{x, w, fetch, unit};
      for (int j = 0; j < here; ++j) word(0);
      KU_UNROLL for (int n = 0; n < NV; ++n) {
        const typename M::Acc scale = M::LoadAcc(scales + n * M::kVectorLanes);
        KU_UNROLL for (int m = 0; m < MR; ++m) {
          acc[m][n] = M::MultiplyAdd(unit[m][n], scale, acc[m][n]);
        }
      }
    }
  }
  HWY_INLINE void operator()(int, Sums& acc) {
    static_assert(L == 1 || L == 2);
    if constexpr (L == 1) return Lane(acc);
    Sums first;
    Lane(first);
    Lane(acc);
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
        M::Add(acc[m][n], first[m][n]);
  }
};

// With two lanes at once, half as many sums are stored in memory, and x is read twice as often. On
// Zen 4 a store takes the time of two products. With one thread, a panel in L2 and BF16 of 1,024
// columns: 0.97 of the multiply-add peak, and 0.92 with one lane at a time.
template <class M, int MR, int NV, int kColumns, int L, class Fetch, bool kScaled = false>
HWY_NOINLINE void OuterTile(const OuterArgs& a) {
  AddLanes<M, MR, NV>(a, kSumLanes / L, NextLanes<M, MR, NV, kColumns, L, Fetch, kScaled>{a});
}

// Writes K slice c of `rows` rows as `columns` columns of a panel, the first of which is at
// `panel`. load(row, chunk, vector, v) loads the operands of one vector of a slice. Missing columns
// repeat the last row; their sums are not read.
template <class M, class F>
HWY_INLINE void PackChunk(int rows, int columns, int c, uint8_t* panel, size_t step_bytes,
                          size_t panel_stride, const F& load) {
  constexpr int kRows = M::kPackRows;
  for (int n = 0; n < columns; n += kRows) {
    uint8_t* const to = panel + n * sizeof(float);
    for (int r = 0; r < kSumLanes / M::kVectorLanes; ++r) {
      typename M::Vec v[M::kSteps][kRows];
      KU_UNROLL for (int i = 0; i < kRows; ++i) {
        typename M::Vec row[M::kSteps];
        load(n + i < rows ? n + i : rows - 1, c, r, row);
        KU_UNROLL for (int s = 0; s < M::kSteps; ++s) v[s][i] = row[s];
      }
      KU_UNROLL for (int s = 0; s < M::kSteps; ++s) {
        M::StoreLanes(v[s], r, to + s * step_bytes, panel_stride);
      }
    }
  }
}

// Writes the operands of `rows` rows of W as a panel.
template <class M, class F>
HWY_INLINE void PackPanel(int rows, int columns, int chunks, uint8_t* panel, size_t panel_stride,
                          const F& load) {
  const size_t step_bytes = columns * sizeof(float);
  for (int c = 0; c < chunks; ++c, panel += M::kSteps * step_bytes) {
    PackChunk<M>(rows, columns, c, panel, step_bytes, panel_stride, load);
  }
}

// True if tiles hold the sums of two lanes in registers, which products of pairs do. Quantised
// kinds need that space: they hold the sums of the quantisation block and of the K block. A lane of
// pairs has half of the steps of FP32, and FP32 prompts took 1.05 to 1.19 times as long with paired
// lanes.
template <class M, bool kScaled>
constexpr bool TakesPairedLanes() {
  return !kScaled && M::kAccRegisters >= 24 && M::kChunk / M::kSteps > kSumLanes;
}
template <class M, bool kScaled>
constexpr int OuterRows() {
  return kScaled && M::kAccRegisters < 24 ? 3 : kMaxTileRows;
}
template <class M, bool kScaled>
constexpr int OuterVectors() {
  constexpr int kSums = kScaled || TakesPairedLanes<M, kScaled>() ? 2 : 1;
  constexpr int kFit = M::kAccRegisters / kSums / OuterRows<M, kScaled>();
  // vectors of a panel that L2 holds
  constexpr int kMax = 64 * 64 / M::kChunkBytes / M::kVectorLanes;
  return kFit < kMax ? kFit : kMax;
}

template <class M, int MR, int NV, bool kScaled>
void SetOuterTiles(LinearKernel& kernel) {
  constexpr int kLanes = TakesPairedLanes<M, kScaled>() ? 2 : 1;
  kernel.outer[MR] = &OuterTile<M, MR, NV, NV * M::kVectorLanes, kLanes, BurstFetch, kScaled>;
  if constexpr (MR > 1) SetOuterTiles<M, MR - 1, NV, kScaled>(kernel);
}

template <class M, bool kScaled>
void SetOuter(LinearKernel& kernel) {
  constexpr int kRows = OuterRows<M, kScaled>(), kVectors = OuterVectors<M, kScaled>();
  kernel.outer_rows = kRows;
  kernel.outer_columns = kVectors * M::kVectorLanes;
  constexpr int kChunks = ChunksOfWord<M>();
  kernel.packed_chunk = kChunks * M::kChunk;
  kernel.packed_chunk_bytes = M::kWordSteps > 1 ? kChunks * M::kWeightChunkBytes : M::kChunkBytes;
  SetOuterTiles<M, kRows, kVectors, kScaled>(kernel);
}
