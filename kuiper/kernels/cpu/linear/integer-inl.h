// The micro-kernels of integer.h in Highway code, over Codes, which loads pairs of codes. Included
// by quantized.cpp after fp32-inl.h.
//
// A packed panel is [K / 2][columns][2 codes] of 16 bits. x is 16-bit integers in the order of K,
// also if its values are int8. The products are multiply-adds of pairs, which all sets have
// and which run at the rate of FP32 ones. Prepacked W has whole words of rows, which are split into
// codes of 16 bits. Its pairs are of codes kPairsOfWord apart, and x is in the same order.
//
// On x86, 4-bit codes stay bytes if x is int8: products of bytes in 16-bit sums, which are half the
// instructions. (Two products of 8-bit codes would not fit in 16 bits.)

inline constexpr int kLanes32 = Fp32Model::kVectorLanes;
inline constexpr int kPanelVectors = HWY_TARGET == HWY_SCALAR ? 4 : 2;
inline constexpr int kPanelColumns = kPanelVectors * kLanes32;
inline constexpr int kBlockRows = 4;  // rows of W multiplied together in place
// Tokens of a tile. NEON holds the sums of products of pairs in two vectors.
inline constexpr int kIntegerTokens = HWY_TARGET == HWY_AVX3 ? 6 : HWY_ARCH_X86 ? 4 : 5;

// Sets with x86 registers; defined anew for each set. Highway's emulated set uses arrays.
#undef KU_X86_VECTORS
#define KU_X86_VECTORS (HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)

// Keeps sums in their registers. Integers may be added in any order, so GCC would store the
// products and add them later.
template <class V>
HWY_INLINE void PinSums([[maybe_unused]] V& sums) {
#if KU_X86_VECTORS
  asm("" : "+v"(sums.raw));
#endif
}

// Sums of products of pairs. On some sets the products of a pair go to lanes of two vectors.
#if HWY_TARGET == HWY_SCALAR
struct PairSums {
  I32Vec sums;

  HWY_INLINE void Clear() { sums = hn::Zero(I32Tag()); }
  HWY_INLINE void Add(I32Vec a, I32Vec b) {
    const auto low = [](I32Vec v) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
    const auto high = [](I32Vec v) HWY_ATTR { return hn::ShiftRight<16>(v); };
    sums = hn::Add(sums, hn::Add(hn::Mul(low(a), low(b)), hn::Mul(high(a), high(b))));
  }
  HWY_INLINE I32Vec Total() const { return sums; }
};
#else
struct PairSums {
  I32Vec sums, others;

  HWY_INLINE PairSums() {}  // GCC compiles an implicit one without the set's instructions
  HWY_INLINE void Clear() { sums = others = hn::Zero(I32Tag()); }
  HWY_INLINE void Add(I32Vec a, I32Vec b) {
    const hn::RepartitionToNarrow<I32Tag> d16;
    sums = hn::ReorderWidenMulAccumulate(I32Tag(), hn::BitCast(d16, a), hn::BitCast(d16, b), sums,
                                         others);
  }
  HWY_INLINE I32Vec Total() const { return hn::RearrangeToOddPlusEven(sums, others); }
};
#endif

// Broadcasts a word of x to all columns.
HWY_INLINE I32Vec LoadWord(const uint8_t* p) {
  int32_t word;
  memcpy(&word, p, sizeof(word));
  return hn::Set(I32Tag(), word);
}
HWY_INLINE I32Vec LoadWords(const uint8_t* p) {
  return hn::BitCast(I32Tag(), LoadBytes(I32Tag(), p));
}

// Pairs in a word of codes.
template <class Codes>
inline constexpr int kPairsOfWord = 4 / Codes::kPairBytes;

// Interleaves the halves of each 2 * kPairs integers: a b c d -> a c b d. A word has that many
// codes.
template <int kPairs>
HWY_INLINE void PutBesidePairs(int16_t* x, int columns) {
  for (; columns > 0; columns -= 2 * kPairs, x += 2 * kPairs) {
    int16_t word[2 * kPairs];
    memcpy(word, x, sizeof(word));
    for (int i = 0; i < kPairs; ++i) {
      x[2 * i] = word[i];
      x[2 * i + 1] = word[kPairs + i];
    }
  }
}

// Converts x for words of W with kPairs pairs; with one pair, integers stay in the order of K.
template <bool kWide, int kPairs>
void ConvertToIntegers(const float* x, int k, int unit, uint8_t* integers, float* scales,
                       int32_t* sums) {
  auto* const to = reinterpret_cast<int16_t*>(integers);
  for (int begin = 0; begin < k; begin += unit, ++scales, ++sums) {
    const int columns = HWY_MIN(unit, k - begin);
    const uint32_t max_bits = MaxMagnitudeBits(x + begin, columns);
    const CodeScale scale = kWide ? PowerOfTwoScaleOf(max_bits) : CodeScaleOf(max_bits, kMaxInt8);
    *scales = StoreQuantized(x + begin, columns, scale, to + begin);
    int32_t sum = 0;
    for (int i = 0; i < columns; ++i) sum += to[begin + i];
    *sums = sum;
    if constexpr (kPairs > 1) PutBesidePairs<kPairs>(to + begin, columns);
  }
}

// Transposes vectors of pairs, one per row: writes one pair of all rows together, then the next,
// `stride` words apart.
HWY_INLINE void StorePairs(const I32Vec* rows, int32_t* to, [[maybe_unused]] size_t stride) {
#if HWY_TARGET == HWY_AVX3
  __m512i raw[16];
  KU_UNROLL for (int i = 0; i < 16; ++i) raw[i] = rows[i].raw;
  TransposeWords(raw);
  KU_UNROLL for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * stride, raw[i]);
#elif HWY_TARGET == HWY_SCALAR
  hn::StoreU(rows[0], I32Tag(), to);
#else
  alignas(64) int32_t words[4 * kLanes32];
  hn::StoreInterleaved4(rows[0], rows[1], rows[2], rows[3], I32Tag(), words);
  for (int i = 0; i < kLanes32; ++i) memcpy(to + i * stride, words + 4 * i, 4 * sizeof(int32_t));
#endif
}
inline constexpr int kStoredRows = HWY_TARGET == HWY_AVX3 ? 16 : HWY_TARGET == HWY_SCALAR ? 1 : 4;

template <class Codes>
void PackPairs(const uint8_t* rows, size_t stride, int count, int k, uint8_t* panel,
               LineFetcher* next, int next_lines) {
  constexpr int kLinePairs = 64 / Codes::kPairBytes;
  auto* const words = reinterpret_cast<int32_t*>(panel);
  for (int pair = 0; pair < k / 2; pair += kLanes32) {
    if (pair % kLinePairs == 0) next->Fetch(next_lines * (kPanelColumns / kBlockRows));
    for (int first = 0; first < kPanelColumns; first += kStoredRows) {
      I32Vec pairs[kStoredRows];
      for (int i = 0; i < kStoredRows; ++i) {
        const uint8_t* row = rows + HWY_MIN(first + i, count - 1) * stride;
        pairs[i] = Codes::LoadPairs(row + pair * Codes::kPairBytes);
      }
      StorePairs(pairs, words + static_cast<size_t>(pair) * kPanelColumns + first, kPanelColumns);
    }
  }
}

inline void TransposeBlock(const uint8_t* from, size_t stride, DType, int count, int units,
                           uint32_t* to, size_t to_stride) {
  const uint32_t* rows[kBlockRows];
  for (int i = 0; i < kBlockRows; ++i) {
    rows[i] = reinterpret_cast<const uint32_t*>(from + HWY_MIN(i, count - 1) * stride);
  }
  for (int u = 0; u < units; ++u, to += to_stride) {
    KU_UNROLL for (int i = 0; i < kBlockRows; ++i) to[i] = rows[i][u];
  }
}

// Loads scales and zero points as IntegerArgs has them for rows and packed panels.
struct WideFactors {
  template <class D>
  static HWY_INLINE hn::Vec<D> Scales(D d, const IntegerArgs& a, size_t at) {
    return hn::LoadU(d, static_cast<const float*>(a.scales) + at);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Zeros(D d, const IntegerArgs& a, size_t at) {
    return hn::LoadU(d, static_cast<const int32_t*>(a.zeros) + at);
  }
};
// Loads scales and zero points of prepacked W.
struct StoredFactors {
  static HWY_INLINE F32Vec Scales(F32Tag, const IntegerArgs& a, size_t at) {
    const uint8_t* p = static_cast<const uint8_t*>(a.scales) + at * DTypeBytes(a.scale_type);
    if (a.scale_type == DType::kF32) return LoadF32(p);
    if (a.scale_type == DType::kF16) return LoadF16(p);
    return LoadBF16(p);
  }
  static HWY_INLINE I32Vec Zeros(I32Tag, const IntegerArgs& a, size_t at) {
    const hn::Rebind<uint8_t, I32Tag> d;
    return hn::PromoteTo(I32Tag(), hn::LoadU(d, static_cast<const uint8_t*>(a.zeros) + at));
  }
};

// Returns y plus a quantisation block's sums, less the contribution of the zero points, times both
// scales.
template <class D>
HWY_INLINE hn::Vec<D> AddUnit(D d, hn::Vec<hn::RebindToSigned<D>> sums,
                              hn::Vec<hn::RebindToSigned<D>> of_zeros, float x_scale,
                              hn::Vec<D> scales, hn::Vec<D> y) {
  const auto scaled = hn::Mul(hn::ConvertTo(d, hn::Sub(sums, of_zeros)), hn::Set(d, x_scale));
  return hn::MulAdd(scaled, scales, y);
}

// Packed panels: a word is one pair.
struct PackedPanel {
  using Factors = WideFactors;
  static constexpr int kPairs = 1, kCodes = 2;  // per word
  static HWY_INLINE I32Vec Pairs(I32Vec words, int) { return words; }
};
#if HWY_TARGET != HWY_SCALAR
// Prepacked panels: a word is a stored word of a row.
template <class Codes>
struct StoredPanel {
  using Factors = StoredFactors;
  static constexpr int kPairs = kPairsOfWord<Codes>, kCodes = 2 * kPairs, kBits = 16 / kPairs;
  static HWY_INLINE I32Vec Pairs(I32Vec words, int i) {
    const hn::RepartitionToNarrow<I32Tag> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    const auto halves = hn::ShiftRightSame(hn::BitCast(du16, words), kBits * i);
    const auto codes = i == kPairs - 1 ? halves : hn::And(halves, hn::Set(du16, (1 << kBits) - 1));
    return hn::BitCast(I32Tag(), codes);
  }
};
#endif

// Adds the products of columns [begin, end) with MR rows of x, pair by pair.
template <class Panel, int MR>
HWY_INLINE void AddProducts(Panel, const IntegerArgs& a, int begin, int end, const uint8_t*& panel,
                            PairSums (&acc)[MR][kPanelVectors]) {
  for (int k = begin; k < end; k += Panel::kCodes, panel += kPanelColumns * sizeof(int32_t)) {
    KU_UNROLL for (int i = 0; i < Panel::kPairs; ++i) {
      I32Vec codes[kPanelVectors];
      KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
        codes[n] = Panel::Pairs(LoadWords(panel + n * sizeof(I32Vec)), i);
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        const I32Vec v = LoadWord(a.x + m * a.x_stride + (k + 2 * i) * sizeof(int16_t));
        KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
          acc[m][n].Add(codes[n], v);
          PinSums(acc[m][n].sums);
        }
      }
    }
  }
}

#if KU_X86_VECTORS
// Converts x to int8 in bytes. Of each eight, the even ones come first, then the odd ones: 4-bit
// codes have that order in the low and high halves of the bytes of a word.
inline void ConvertToBytes(const float* x, int k, int unit, uint8_t* integers, float* scales,
                           int32_t* sums) {
  ConvertToIntegers<false, 1>(x, k, unit, integers, scales, sums);
  for (int i = 0; i < k; i += 8) {
    int16_t word[8];
    memcpy(word, integers + i * sizeof(int16_t), sizeof(word));
    for (int j = 0; j < 4; ++j) {
      integers[i + j] = static_cast<uint8_t>(word[2 * j]);
      integers[i + 4 + j] = static_cast<uint8_t>(word[2 * j + 1]);
    }
  }
}

// 16-bit sums can hold the products of this many codes of a column: 16 * 15 * 127 = 30480.
inline constexpr int kSafeCodes = 32;

using BytePairs = hn::Vec<hn::RepartitionToNarrow<I32Tag>>;

// Multiplies bytes of codes by bytes of x; each 16-bit result is the sum of two products.
HWY_INLINE BytePairs MultiplyBytes(I32Vec codes, I32Vec x) {
#if HWY_TARGET == HWY_AVX3
  return BytePairs{_mm512_maddubs_epi16(codes.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return BytePairs{_mm256_maddubs_epi16(codes.raw, x.raw)};
#else
  return BytePairs{_mm_maddubs_epi16(codes.raw, x.raw)};
#endif
}

// Adds the products of kSafeCodes codes of each column with MR rows of x.
template <int MR>
HWY_INLINE void AddBytes(const uint8_t* panel, const uint8_t* x, size_t x_stride,
                         PairSums (&acc)[MR][kPanelVectors]) {
  const hn::RepartitionToNarrow<I32Tag> d16;
  BytePairs pairs[MR][kPanelVectors];
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
    pairs[m][n] = hn::Zero(d16);
  }
  for (int k = 0; k < kSafeCodes; k += 8, panel += kPanelColumns * sizeof(int32_t)) {
    KU_UNROLL for (int odd = 0; odd < 2; ++odd) {
      I32Vec codes[kPanelVectors];
      KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
        const I32Vec words = LoadWords(panel + n * sizeof(I32Vec));
        codes[n] =
            hn::And(odd == 0 ? words : hn::ShiftRight<4>(words), hn::Set(I32Tag(), 0x0f0f0f0f));
      }
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        const I32Vec v = LoadWord(x + m * x_stride + k + 4 * odd);
        KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
          pairs[m][n] = hn::Add(pairs[m][n], MultiplyBytes(codes[n], v));
          PinSums(pairs[m][n]);
        }
      }
    }
  }
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
    acc[m][n].Add(hn::BitCast(I32Tag(), pairs[m][n]), hn::Set(I32Tag(), 0x00010001));
  }
}

// Prepacked panels of 4-bit codes, for x in bytes.
struct BytePanel {
  using Factors = StoredFactors;
};
template <int MR>
HWY_INLINE void AddProducts(BytePanel, const IntegerArgs& a, int begin, int end,
                            const uint8_t*& panel, PairSums (&acc)[MR][kPanelVectors]) {
  for (int k = begin; k < end; k += kSafeCodes, panel += kPanelColumns * kSafeCodes / 2) {
    AddBytes<MR>(panel, a.x + k, a.x_stride, acc);
  }
}
#endif

template <class Panel, int MR>
void IntegerTile(const IntegerArgs& a) {
  const F32Tag d;
  const uint8_t* panel = a.weights;
  F32Vec y[MR][kPanelVectors];
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
    y[m][n] = hn::Zero(d);
  }
  for (int begin = 0, u = 0; begin < a.k; begin += a.unit, ++u) {
    a.next->Fetch(a.next_lines);
    PairSums acc[MR][kPanelVectors];
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
      acc[m][n].Clear();
    }
    AddProducts(Panel(), a, begin, HWY_MIN(begin + a.unit, a.k), panel, acc);
    KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
      const size_t at = u * static_cast<size_t>(a.scale_stride) + n * kLanes32;
      const auto scales = Panel::Factors::Scales(d, a, at);
      const I32Vec zeros = a.zeros == nullptr ? hn::Set(I32Tag(), a.default_zero)
                                              : Panel::Factors::Zeros(I32Tag(), a, at);
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        const size_t of_x = m * static_cast<size_t>(a.units) + u;
        const I32Vec of_zeros = hn::Mul(zeros, hn::Set(I32Tag(), a.x_sums[of_x]));
        y[m][n] = AddUnit(d, acc[m][n].Total(), of_zeros, a.x_scales[of_x], scales, y[m][n]);
      }
    }
  }
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kPanelVectors; ++n) {
    hn::StoreU(y[m][n], d, a.sums + m * a.sum_stride + n * kLanes32);
  }
}

// Multiplies a quantisation block of kBlockRows rows of W by MR tokens.
template <class Codes, int MR>
HWY_INLINE void MultiplyRows(const uint8_t* const (&rows)[kBlockRows], int begin, int end,
                             const IntegerArgs& a, PairSums (&acc)[MR][kBlockRows]) {
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int i = 0; i < kBlockRows; ++i) {
    acc[m][i].Clear();
  }
  for (int k = begin; k < end; k += 2 * kLanes32) {
    I32Vec v[MR];
    KU_UNROLL for (int m = 0; m < MR; ++m) {
      v[m] = LoadWords(a.x + m * a.x_stride + k * sizeof(int16_t));
    }
    KU_UNROLL for (int i = 0; i < kBlockRows; ++i) {
      const I32Vec codes = Codes::LoadPairs(rows[i] + k / 2 * Codes::kPairBytes);
      KU_UNROLL for (int m = 0; m < MR; ++m) acc[m][i].Add(codes, v[m]);
    }
  }
}

// AddUnit for rows of W from `row` on.
template <class D>
HWY_INLINE hn::Vec<D> AddRows(D d, hn::Vec<hn::RebindToSigned<D>> sums, const IntegerArgs& a,
                              int token, int unit, int row, hn::Vec<D> y) {
  const hn::RebindToSigned<D> di;
  const size_t at = unit * static_cast<size_t>(a.scale_stride) + row;
  const size_t of_x = token * static_cast<size_t>(a.units) + unit;
  const int32_t x_sum = a.x_sums[of_x];
  const auto of_zeros = a.zeros == nullptr
                            ? hn::Set(di, a.default_zero * x_sum)
                            : hn::Mul(WideFactors::Zeros(di, a, at), hn::Set(di, x_sum));
  return AddUnit(d, sums, of_zeros, a.x_scales[of_x], WideFactors::Scales(d, a, at), y);
}

template <class Codes, int MR>
void IntegerRows(const IntegerArgs& a) {
  using Tag = hn::CappedTag<float, kBlockRows>;
  constexpr int kVecLanes = static_cast<int>(hn::MaxLanes(Tag()));
  const Tag d;
  const uint8_t* rows[kBlockRows];
  for (int i = 0; i < kBlockRows; ++i) rows[i] = a.weights + HWY_MIN(i, a.rows - 1) * a.row_stride;
  hn::Vec<Tag> y[MR][kBlockRows / kVecLanes];
  for (auto& of_token : y) {
    for (auto& v : of_token) v = hn::Zero(d);
  }
  for (int begin = 0, u = 0; begin < a.k; begin += a.unit, ++u) {
    a.next->Fetch(a.next_lines);
    PairSums acc[MR][kBlockRows];
    MultiplyRows<Codes, MR>(rows, begin, HWY_MIN(begin + a.unit, a.k), a, acc);
    KU_UNROLL for (int m = 0; m < MR; ++m) {
      I32Vec totals[kBlockRows];
      KU_UNROLL for (int i = 0; i < kBlockRows; ++i) totals[i] = acc[m][i].Total();
#if HWY_TARGET == HWY_SCALAR
      for (int i = 0; i < kBlockRows; ++i) y[m][i] = AddRows(d, totals[i], a, m, u, i, y[m][i]);
#else
      y[m][0] = AddRows(d, TotalsOfFour(I32Tag(), totals), a, m, u, 0, y[m][0]);
#endif
    }
  }
  for (int m = 0; m < MR; ++m) {
    float* const sums = a.sums + m * a.sum_stride;
    for (int i = 0; i < kBlockRows; i += kVecLanes) hn::StoreU(y[m][i / kVecLanes], d, sums + i);
  }
}

template <class Panel, int MR>
constexpr void SetIntegerTiles(IntegerFn (&tiles)[kMaxIntegerTokens + 1]) {
  tiles[MR] = &IntegerTile<Panel, MR>;
  if constexpr (MR > 1) SetIntegerTiles<Panel, MR - 1>(tiles);
}

template <class Codes>
constexpr void SetPrepackedTiles([[maybe_unused]] IntegerKernel& kernel) {
#if HWY_TARGET != HWY_SCALAR  // the scalar set cannot split words
  for (auto& tiles : kernel.prepacked) SetIntegerTiles<StoredPanel<Codes>, kIntegerTokens>(tiles);
  kernel.convert_for_prepacked[0] = &ConvertToIntegers<true, kPairsOfWord<Codes>>;
  kernel.convert_for_prepacked[1] = &ConvertToIntegers<false, kPairsOfWord<Codes>>;
#endif
#if KU_X86_VECTORS
  if constexpr (kPairsOfWord<Codes> == 4) {
    SetIntegerTiles<BytePanel, kIntegerTokens>(kernel.prepacked[1]);
    kernel.convert_for_prepacked[1] = &ConvertToBytes;
  }
#endif
}

template <class Codes>
constexpr IntegerKernel MakeIntegerKernel() {
  IntegerKernel kernel;
  kernel.columns = kPanelColumns;
  kernel.row_block = kBlockRows;
  kernel.max_tokens = kIntegerTokens;
  kernel.panel_bits = 16;
  kernel.element_bytes[0] = kernel.element_bytes[1] = sizeof(int16_t);
  kernel.convert[0] = &ConvertToIntegers<true, PackedPanel::kPairs>;
  kernel.convert[1] = &ConvertToIntegers<false, PackedPanel::kPairs>;
  kernel.pack = &PackPairs<Codes>;
  kernel.transpose = &TransposeBlock;
  kernel.rows[0][1] = kernel.rows[1][1] = &IntegerRows<Codes, 1>;
  kernel.rows[0][2] = kernel.rows[1][2] = &IntegerRows<Codes, 2>;
  for (auto& tiles : kernel.tiles) SetIntegerTiles<PackedPanel, kIntegerTokens>(tiles);
  SetPrepackedTiles<Codes>(kernel);
  return kernel;
}
