// The outer products of the linear layer over an instruction set M, for many tokens: a tile of rows
// of x by vectors of columns of y, one lane of all sums after the other, or two. A multiply-add
// needs no fold across a register, and W is read once per tile from a panel in the L2 cache.
// Expected: 0.9 of the multiply-add peak; sums of lanes that wait for their partners cost the rest.
// linear_dense-inl.h has what only dense kinds have.
//
// Included like linear_tile-inl.h, after it and with what it asks of M; further
//   Vec Broadcast(const uint8_t* word) gives M the factor of all columns for a row of x,
//   Vec LoadPanel(const uint8_t* words) one vector of a panel, Acc Add(Acc, Acc),
//   FusedMultiplyAdd(Vec w, Vec x, Acc& acc) is Multiply and leaves a sum in its register,
//   MultiplyAdd(Acc unit, Acc scale, Acc acc) acc + scale * unit, Acc Splat(float) a scale in all
//   lanes,
//   int kWordSteps: if more than one, words of a panel of W hold the factors of so many steps as
//   they are stored, of one chunk or of several, and Vec LoadPairs(const uint8_t* words, int step)
//   takes them apart,
//   void StoreLanes(const Vec (&rows)[kPackRows], int vector, uint8_t* to, size_t to_stride) writes
//   a vector of rows as kPackRows words of each of its lanes, a lane at its place.

// What a tile fetches: a burst before each lane,
struct BurstFetch {
  const OuterArgs& a;
  HWY_INLINE void BeforeLane() { a.next->Fetch(a.next_lines); }
  HWY_INLINE void InWord(int) {}
};
// nothing, or kLines lines in each word, or each second one as far on as both. Products wait behind
// a burst of prefetches: without bursts 12 and 16 tokens took 0.86 of the time, 32 0.93, 64 and
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

// 16 registers of eight lanes, as AVX2 has: what is measured there is done nowhere else.
template <class M>
constexpr bool IsNarrow() {
  return M::kVectorLanes == 8 && M::kRegisters == 16;
}

// Chunks that a word of a panel has parts of.
template <class M>
constexpr int ChunksOfWord() {
  return M::kWordSteps > M::kSteps ? M::kWordSteps / M::kSteps : 1;
}

// The factors that a vector of words of a panel has for a step.
template <class M>
HWY_INLINE typename M::Vec LoadFactors(const uint8_t* words, [[maybe_unused]] int step) {
  if constexpr (M::kWordSteps > 1) {
    return M::LoadPairs(words, step);
  } else {
    return M::LoadPanel(words);
  }
}

// The next word of one lane, of which it takes kSteps: kRows of x and kColumns of W are side by
// side, of which the tile takes the first MR by NV vectors.
template <class M, int MR, int NV, int kRows, int kColumns, int kSteps, class Fetch>
struct OuterWord {
  static constexpr size_t kVectorBytes = M::kVectorLanes * sizeof(float);
  const uint8_t*& x;
  const uint8_t*& w;
  Fetch& fetch;
  typename M::Acc (&acc)[MR][NV];

  HWY_INLINE void operator()(int i) const {
    fetch.InWord(i);
    KU_UNROLL for (int s = 0; s < kSteps; ++s, x += kRows * sizeof(float)) {
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

// Gives each word its place among those of a branch. Four have one: a CPU does not foresee the end
// of a lane's loop, which costs the time of 40 multiply-adds (Zen 3).
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

// Accumulates `steps` of one lane of any dense panel.
template <class M, int MR, int NV, int kRows, int kColumns, class Fetch>
HWY_INLINE void AccumulatePanel(const uint8_t*& x, const uint8_t*& w, int steps, Fetch& fetch,
                                typename M::Acc (&acc)[MR][NV]) {
  constexpr int kSteps = M::kWordSteps;
  RepeatWord<M>(steps / kSteps,
                OuterWord<M, MR, NV, kRows, kColumns, kSteps, Fetch>{x, w, fetch, acc});
  if constexpr (ChunksOfWord<M>() > 1) {
    if (steps % kSteps != 0) {
      OuterWord<M, MR, NV, kRows, kColumns, M::kSteps, Fetch>{x, w, fetch, acc}(0);
    }
  }
}

template <class M, int MR, int NV>
HWY_INLINE void SetZero(typename M::Acc (&acc)[MR][NV]) {
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
      M::Zero();
}

// Adds the sums of `count` lanes, or of as many groups of them: part(i, acc) gives those at place i
// of that order, and they meet as in the fold. The last sums go to a.sums.
template <class M, int MR, int NV, class F>
HWY_INLINE void AddLanes(const OuterArgs& a, int count, F part) {
  constexpr int kDepth = 4;  // of the fold
  constexpr int kLanes = M::kVectorLanes;
  alignas(64) float waiting[kDepth][MR][NV][kLanes];
  auto* top = waiting;  // behind those that wait
  typename M::Acc acc[MR][NV];
  for (int place = 0;;) {
    part(place, acc);
    // A lane meets its partner, both theirs, and so on: as many times as its place ends in ones.
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

// One lane of all sums of a tile.
template <class M, int MR, int NV, int kRows, bool kScaled>
struct OneLane {
  static constexpr int kLanes = M::kVectorLanes, kColumns = NV * kLanes;
  const OuterArgs& a;

  HWY_INLINE void operator()(int place, typename M::Acc (&acc)[MR][NV]) const {
    const uint8_t* x = a.rows + place * (a.steps * kRows * sizeof(float));
    const uint8_t* w = a.panel + place * a.panel_stride;
    BurstFetch fetch{a};
    fetch.BeforeLane();
    SetZero<M>(acc);
    if constexpr (kScaled) {
      const float* scales = a.scales;
      for (int i = 0; i < a.steps; i += a.unit_steps, scales += a.scale_stride) {
        typename M::Acc unit[MR][NV];
        SetZero<M>(unit);
        const int here = a.steps - i < a.unit_steps ? a.steps - i : a.unit_steps;
        const OuterWord<M, MR, NV, kRows, kColumns, 1, BurstFetch> word{x, w, fetch, unit};
        for (int j = 0; j < here; ++j) word(0);
        KU_UNROLL for (int n = 0; n < NV; ++n) {
          const typename M::Acc scale = M::LoadAcc(scales + n * kLanes);
          KU_UNROLL for (int m = 0; m < MR; ++m) {
            acc[m][n] = M::MultiplyAdd(unit[m][n], scale, acc[m][n]);
          }
        }
      }
    } else {
      AccumulatePanel<M, MR, NV, kRows, kColumns>(x, w, a.steps, fetch, acc);
    }
  }
};

// kRows of x are side by side, of which the tile takes MR.
template <class M, int MR, int NV, int kRows, bool kScaled>
HWY_NOINLINE void OuterTile(const OuterArgs& a) {
  AddLanes<M, MR, NV>(a, kSumLanes, OneLane<M, MR, NV, kRows, kScaled>{a});
}

// The next lane, or the next two. They are asked for in order: pointers go on, since a compiler
// that is short of registers keeps addresses in vector registers, where they wait behind products.
template <class M, int MR, int NV, int kRows, int kColumns, int L, class Fetch>
struct NextLanes {
  static constexpr int kSteps = M::kWordSteps;  // for which a word is read
  const OuterArgs& a;
  Fetch fetch{a};
  const uint8_t* x = a.rows;
  const uint8_t* w = a.panel;
  // Between lanes of W.
  size_t gap = a.panel_stride - (a.steps + kSteps - 1) / kSteps * kColumns * sizeof(float);

  HWY_INLINE void Lane(typename M::Acc (&acc)[MR][NV]) {
    SetZero<M>(acc);
    fetch.BeforeLane();
    AccumulatePanel<M, MR, NV, kRows, kColumns>(x, w, a.steps, fetch, acc);
    w += gap;
  }
  HWY_INLINE void operator()(int, typename M::Acc (&acc)[MR][NV]) {
    static_assert(L == 1 || L == 2);
    if constexpr (L == 1) return Lane(acc);
    typename M::Acc first[MR][NV];
    Lane(first);
    Lane(acc);
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NV; ++n) acc[m][n] =
        M::Add(acc[m][n], first[m][n]);
  }
};

// kRows of x and kColumns of W are side by side. With two lanes at once half as many sums wait in
// memory, whose stores take the time of two products each on Zen 4; x is read twice as often. One
// thread and a panel in L2, BF16 of 1,024 columns: 0.97 of the multiply-add peak, and 0.92 with
// lanes one by one.
template <class M, int MR, int NV, int kRows, int kColumns, int L, class Fetch>
HWY_NOINLINE void NextLanesTile(const OuterArgs& a) {
  AddLanes<M, MR, NV>(a, kSumLanes / L, NextLanes<M, MR, NV, kRows, kColumns, L, Fetch>{a});
}

// Chunk c of `rows` rows as `columns` columns of a panel, the first of which is at `panel`;
// load(row, chunk, vector, v) gives the factors of one vector of a chunk. Columns that are not
// there repeat the last row: nobody reads their sums.
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

// The factors of `rows` rows of W as a panel.
template <class M, class F>
HWY_INLINE void PackPanel(int rows, int columns, int chunks, uint8_t* panel, size_t panel_stride,
                          const F& load) {
  const size_t step_bytes = columns * sizeof(float);
  for (int c = 0; c < chunks; ++c, panel += M::kSteps * step_bytes) {
    PackChunk<M>(rows, columns, c, panel, step_bytes, panel_stride, load);
  }
}

// Quantised kinds hold the sums of a unit and those of the fold block in registers. Products of
// pairs hold those of two lanes: a lane has half of the steps of FP32, whose prompts took 1.05 to
// 1.19 times as long so.
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
  constexpr int kMax = 64 * 64 / M::kChunkBytes / M::kVectorLanes;  // of a panel that L2 holds
  return kFit < kMax ? kFit : kMax;
}

template <class M, int MR, int NV, int kRows, bool kScaled>
void SetOuterTiles(LinearKernel& kernel) {
  if constexpr (TakesPairedLanes<M, kScaled>()) {
    kernel.outer[MR] = &NextLanesTile<M, MR, NV, kRows, NV * M::kVectorLanes, 2, BurstFetch>;
  } else {
    kernel.outer[MR] = &OuterTile<M, MR, NV, kRows, kScaled>;
  }
  if constexpr (MR > 1) SetOuterTiles<M, MR - 1, NV, kRows, kScaled>(kernel);
}

template <class M, bool kScaled>
void SetOuter(LinearKernel& kernel) {
  constexpr int kRows = OuterRows<M, kScaled>(), kVectors = OuterVectors<M, kScaled>();
  kernel.outer_rows = kRows;
  kernel.outer_columns = kVectors * M::kVectorLanes;
  constexpr int kChunks = ChunksOfWord<M>();
  kernel.packed_chunk = kChunks * M::kChunk;
  kernel.packed_chunk_bytes = M::kWordSteps > 1 ? kChunks * M::kWeightChunkBytes : M::kChunkBytes;
  SetOuterTiles<M, kRows, kVectors, kRows, kScaled>(kernel);
}
