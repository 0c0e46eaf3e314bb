// Converts FP8, 64 elements at a time, to pairs of BF16, which are exact, before kElementScale is
// applied. For each byte of BF16 a table of 128 magnitudes fits in two registers: five
// instructions. Included like linear/tile-inl.h, inside the attributes of AVX512-VBMI.

// The low and high byte of the BF16 value of each magnitude.
struct CodeTable {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};

// E5M2 is the upper byte of FP16. The bits of E4M3 after the sign are bits of FP16, with a smaller
// bias.
template <typename T>
constexpr float MagnitudeValue(uint32_t magnitude) {
  constexpr bool kIsE4M3 = std::is_same_v<T, Float8E4M3>;
  if (magnitude > (kIsE4M3 ? float8::E4M3() : float8::E5M2()).infinity - (kIsE4M3 ? 1 : 0)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (!kIsE4M3 && magnitude == float8::E5M2().infinity) {
    return std::numeric_limits<float>::infinity();
  }
  const uint32_t half = magnitude << (kIsE4M3 ? 7 : 8);
  if (half >> 10 == 0) return static_cast<float>(half) * 0x1p-24f;
  return std::bit_cast<float>((half << 13) + ((127u - 15u) << 23));
}

template <typename T>
constexpr CodeTable MakeCodeTable() {
  CodeTable table{};
  for (uint32_t i = 0; i < 128; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(MagnitudeValue<T>(i));
    table.low[i] = static_cast<uint8_t>(bits >> 16);
    table.high[i] = static_cast<uint8_t>(bits >> 24);
  }
  return table;
}
template <typename T>
inline constexpr CodeTable kCodeTable = MakeCodeTable<T>();

// For each byte of two result vectors, the index of its source byte: 64 low bytes, then 64 high
// bytes.
struct ByteOrder {
  alignas(64) uint8_t index[2][64];
};
// 16-bit words in the order of the FP8 elements.
constexpr ByteOrder MakeCodeOrder() {
  ByteOrder order{};
  for (int i = 0; i < 128; ++i) {
    order.index[i / 64][i % 64] = static_cast<uint8_t>(i / 2 + i % 2 * 64);
  }
  return order;
}
// Pairs of an element of the first half and an element of the second half.
constexpr ByteOrder MakeHalvesOrder() {
  ByteOrder order{};
  for (int i = 0; i < 128; ++i) {
    order.index[i / 64][i % 64] = static_cast<uint8_t>(i / 4 + i % 2 * 64 + i / 2 % 2 * 32);
  }
  return order;
}
inline constexpr ByteOrder kCodeOrder = MakeCodeOrder(), kHalvesOrder = MakeHalvesOrder();

HWY_INLINE __m512i LookUp(const uint8_t (&table)[128], __m512i index) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + 64));
}

template <typename T>
HWY_INLINE void Float8ToBf16Pairs(__m512i codes, const ByteOrder& order, __m512bh* v) {
  constexpr int kSelect = 0xF8;  // a | (b & c)
  const __m512i signs = _mm512_set1_epi32(static_cast<int>(0x80808080));
  const __m512i low = LookUp(kCodeTable<T>.low, codes);
  const __m512i high =
      _mm512_ternarylogic_epi32(LookUp(kCodeTable<T>.high, codes), codes, signs, kSelect);
  for (int i = 0; i < 2; ++i) {
    v[i] = (__m512bh)_mm512_permutex2var_epi8(low, _mm512_load_si512(order.index[i]), high);
  }
}
