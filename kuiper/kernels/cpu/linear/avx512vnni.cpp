// The micro-kernels of integer.h with vpdpbusd, which adds the products of four codes with four
// bytes of x to each of 16 sums. An int16 activation is two such bytes (digits), multiplied one
// after the other. Expected for tiles of six tokens, as shares of the peak of vdpbf16ps: 0.8
// (groups of 32) to 0.94 (128) with int16 activations, 1.4 to 1.8 with int8 ones. One token: memory
// bandwidth.
//
// A panel of 8-bit codes is [K / 4][32 columns][4 codes]. A panel of 4-bit codes is [K / 8][32
// columns] words, with four even codes in the low halves of their bytes and four odd codes in the
// high halves. These are words of rows as stored, transposed. x has its bytes in the same order:
// [digit][K], the high digit first.
#include "kuiper/kernels/cpu/avx512_attributes.h"
#include "kuiper/kernels/cpu/cpu_target.h"
#include "kuiper/kernels/cpu/linear/kernel.h"

#if KU_HAS_AVX512_ATTRIBUTES && !defined(HWY_COMPILE_ONLY_STATIC)
#include <algorithm>
#include <cstring>

#include "kuiper/kernels/common/int8_row.h"
#include "kuiper/kernels/cpu/unroll.h"

HWY_PUSH_ATTRIBUTES(KU_AVX512VNNI_ATTRIBUTES)
namespace kuiper::cpu {
namespace N_AVX3_VNNI {  // NOLINT(readability-identifier-naming): as Highway names its sets
namespace {

#include "kuiper/kernels/cpu/linear/avx512-inl.h"

constexpr int kRows = 16;    // words of a vector
constexpr int kVectors = 2;  // vectors of columns
constexpr int kLine = 64;    // bytes
constexpr int kColumns = kVectors * kRows;

// Vectors of four codes for each of 16 rows or columns; kParts of them make up one word of each.
struct Int4 {
  static constexpr int kBits = 4, kParts = 2;
  static HWY_INLINE void TakeApart(__m512i words, __m512i (&codes)[2]) {
    const __m512i low = _mm512_set1_epi8(15);
    codes[0] = _mm512_and_si512(words, low);
    codes[1] = _mm512_and_si512(_mm512_srli_epi16(words, 4), low);
  }
};
struct Int8 {
  static constexpr int kBits = 8, kParts = 1;
  static HWY_INLINE void TakeApart(__m512i words, __m512i (&codes)[1]) { codes[0] = words; }
};

// Reorders bytes of x to match words of W: of each eight, the even ones, then the odd ones.
template <class Codes>
HWY_INLINE __m128i InOrder(__m128i bytes) {
  if constexpr (Codes::kParts == 1) return bytes;
  return _mm_shuffle_epi8(bytes,
                          _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
}

HWY_INLINE __m512i LoadBroadcast(const uint8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  return _mm512_set1_epi32(word);
}

template <class Codes, int kDigits>
void Convert(const float* x, int k, int unit, uint8_t* integers, float* scales, int32_t* sums) {
  uint8_t* const low = integers + (kDigits - 1) * k;
  for (int begin = 0; begin < k; begin += unit, ++scales, ++sums) {
    const int end = std::min(begin + unit, k);
    __m512i max = _mm512_setzero_si512();
    for (int i = begin; i < end; i += 16) {
      const __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + i));
      max = _mm512_max_epu32(max, _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF)));
    }
    const uint32_t max_bits = _mm512_reduce_max_epu32(max);
    const CodeScale scale =
        kDigits == 2 ? PowerOfTwoScaleOf(max_bits) : CodeScaleOf(max_bits, kMaxInt8);
    const __m512 inverse = _mm512_set1_ps(scale.inverse);
    __m512i sum = _mm512_setzero_si512();
    for (int i = begin; i < end; i += 16) {
      const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
      sum = _mm512_add_epi32(sum, v);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(low + i),
                       InOrder<Codes>(_mm512_cvtepi32_epi8(v)));
      if constexpr (kDigits == 2) {
        const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(128)), 8);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(integers + i),
                         InOrder<Codes>(_mm512_cvtepi32_epi8(high)));
      }
    }
    *scales = scale.scale;
    *sums = _mm512_reduce_add_epi32(sum);
  }
}

// Loads up to a line of whole words of a row, which has `bytes` bytes from p on; the others are
// zeros.
HWY_INLINE __m512i LoadLine(const uint8_t* p, int bytes) {
  const __mmask64 there = bytes >= kLine ? ~__mmask64{0}
                          : bytes > 0    ? (__mmask64{1} << bytes) - 1
                                         : 0;
  return _mm512_maskz_loadu_epi8(there, p);
}

template <class Codes>
void Pack(const uint8_t* rows, size_t stride, int count, int k, uint8_t* panel, LineFetcher* next,
          int next_lines) {
  const int bytes = k * Codes::kBits / 8;
  for (int begin = 0; begin < bytes; begin += kLine) {
    const int words = std::min(kLine, bytes - begin) / 4;
    for (int half = 0; half < kVectors; ++half) {
      next->Fetch(next_lines);
      __m512i r[kRows];
      const int first = half * kRows;
      if (count >= first + kRows && words == kRows) {
        KU_UNROLL for (int i = 0; i < kRows; ++i) {
          r[i] = _mm512_loadu_si512(rows + (first + i) * stride + begin);
        }
      } else {
        for (int i = 0; i < kRows; ++i) {
          r[i] = LoadLine(rows + std::min(first + i, count - 1) * stride + begin, bytes - begin);
        }
      }
      TransposeWords(r);
      for (int i = 0; i < words; ++i) {
        _mm512_store_si512(panel + (begin / 4 + i) * kColumns * 4 + half * kLine, r[i]);
      }
    }
  }
}

// Loads `n` <= 16 numbers as 32-bit words; the others are zeros.
template <DType kType>
HWY_INLINE __m512i LoadNumbers(const uint8_t* p, int n) {
  const auto there = static_cast<__mmask16>((1u << n) - 1);
  if constexpr (kType == DType::kU8) {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(there, p));
  } else if constexpr (kType == DType::kF16) {
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, p)));
  } else if constexpr (kType == DType::kBF16) {
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, p)), 16);
  } else {
    return _mm512_maskz_loadu_epi32(there, p);
  }
}

template <DType kType>
void TransposeNumbers(const uint8_t* from, size_t stride, int count, int units, uint32_t* to,
                      size_t to_stride) {
  constexpr int kBytes = static_cast<int>(DTypeBytes(kType));
  for (int u = 0; u < units; u += kRows) {
    const int here = std::min(kRows, units - u);
    __m512i r[kRows];
    for (int i = 0; i < kRows; ++i) {
      const uint8_t* p = from + std::min(i, count - 1) * stride + u * kBytes;
      // A line lasts for several rows of codes, too slow a stream for the hardware prefetcher.
      __builtin_prefetch(p + kRows * stride);
      r[i] = LoadNumbers<kType>(p, here);
    }
    TransposeWords(r);
    for (int i = 0; i < here; ++i) _mm512_storeu_si512(to + (u + i) * to_stride, r[i]);
  }
}

void TransposeRows(const uint8_t* from, size_t stride, DType type, int count, int units,
                   uint32_t* to, size_t to_stride) {
  const auto transpose = type == DType::kU8     ? &TransposeNumbers<DType::kU8>
                         : type == DType::kF16  ? &TransposeNumbers<DType::kF16>
                         : type == DType::kBF16 ? &TransposeNumbers<DType::kBF16>
                                                : &TransposeNumbers<DType::kF32>;
  transpose(from, stride, count, units, to, to_stride);
}

// Load the scales of 16 columns, or their zero points.
HWY_INLINE __m512 LoadScales(const IntegerArgs& a, size_t i) {
  const uint8_t* p = static_cast<const uint8_t*>(a.scales) + i * DTypeBytes(a.scale_type);
  return _mm512_castsi512_ps(a.scale_type == DType::kF32    ? LoadNumbers<DType::kF32>(p, kRows)
                             : a.scale_type == DType::kBF16 ? LoadNumbers<DType::kBF16>(p, kRows)
                                                            : LoadNumbers<DType::kF16>(p, kRows));
}
HWY_INLINE __m512i LoadZeros(const IntegerArgs& a, size_t i) {
  const auto* p = static_cast<const uint8_t*>(a.zeros);
  return a.zero_type == DType::kU8 ? LoadNumbers<DType::kU8>(p + i, kRows)
                                   : LoadNumbers<DType::kI32>(p + i * sizeof(int32_t), kRows);
}

// Returns the start value of a quantisation block's sums, from the zero points of 16 columns.
HWY_INLINE __m512i StartOf(const IntegerArgs& a, size_t of_x, size_t of_zeros) {
  const int32_t sum = a.x_sums[of_x];
  if (a.zeros == nullptr) return _mm512_set1_epi32(-a.default_zero * sum);
  return _mm512_mullo_epi32(LoadZeros(a, of_zeros), _mm512_set1_epi32(-sum));
}

// Returns y plus the quantisation block's sums times both scales.
HWY_INLINE __m512 AddUnit(__m512i sums, float x_scale, __m512 scales, __m512 y) {
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(x_scale)), scales,
                         y);
}

// Adds the products of a quantisation block's codes with the digits of MR rows of x, which are
// digit_stride apart. Each digit has its own sums.
template <class Codes, int kDigits, int MR>
HWY_INLINE void AddDigits(const uint8_t* x, size_t x_stride, size_t digit_stride,
                          const uint8_t* panel, int columns,
                          __m512i (&acc)[kDigits][MR][kVectors]) {
  constexpr int kParts = Codes::kParts;
  for (int k = 0; k < columns; k += 4 * kParts, panel += kVectors * kLine) {
    __m512i codes[kVectors][kParts];
    KU_UNROLL for (int n = 0; n < kVectors; ++n) {
      Codes::TakeApart(_mm512_load_si512(panel + n * kLine), codes[n]);
    }
    KU_UNROLL for (int part = 0; part < kParts; ++part) KU_UNROLL for (int m = 0; m < MR; ++m) {
      KU_UNROLL for (int d = 0; d < kDigits; ++d) {
        const __m512i v = LoadBroadcast(x + d * digit_stride + m * x_stride + k + 4 * part);
        KU_UNROLL for (int n = 0; n < kVectors; ++n) {
          acc[d][m][n] = _mm512_dpbusd_epi32(acc[d][m][n], codes[n][part], v);
        }
      }
    }
  }
}

// Computes a quantisation block's sums, starting at `start(m, n)`. With few rows of x, both digits
// use one pass.
template <class Codes, int kDigits, int MR, class Start>
HWY_INLINE void SumUnit(const IntegerArgs& a, int begin, const uint8_t* panel, int columns,
                        const Start& start, __m512i (&sums)[1][MR][kVectors]) {
  const uint8_t* x = a.x + begin;
  const auto set = [&](auto& to, const auto& f) {
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kVectors; ++n) {
      to[m][n] = f(m, n);
    }
  };
  const auto zero = [&](int, int) { return _mm512_setzero_si512(); };
  if constexpr (kDigits == 1) {
    set(sums[0], start);
    AddDigits<Codes, 1, MR>(x, a.x_stride, 0, panel, columns, sums);
  } else if constexpr (kDigits * MR <= kMaxIntegerTokens) {
    __m512i digits[2][MR][kVectors];
    set(digits[0], zero);
    set(digits[1], start);
    AddDigits<Codes, 2, MR>(x, a.x_stride, a.k, panel, columns, digits);
    set(sums[0], [&](int m, int n) {
      return _mm512_add_epi32(_mm512_slli_epi32(digits[0][m][n], 8), digits[1][m][n]);
    });
  } else {
    set(sums[0], zero);
    AddDigits<Codes, 1, MR>(x, a.x_stride, 0, panel, columns, sums);
    set(sums[0], [&](int m, int n) {
      return _mm512_add_epi32(_mm512_slli_epi32(sums[0][m][n], 8), start(m, n));
    });
    AddDigits<Codes, 1, MR>(x + a.k, a.x_stride, 0, panel, columns, sums);
  }
}

template <class Codes, int kDigits, int MR>
void Tile(const IntegerArgs& a) {
  __m512 y[MR][kVectors];
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kVectors; ++n) {
    y[m][n] = _mm512_setzero_ps();
  }
  const uint8_t* panel = a.weights;
  for (int begin = 0, u = 0; begin < a.k; begin += a.unit, ++u) {
    a.next->Fetch(a.next_lines);
    const int columns = std::min(a.unit, a.k - begin);
    const size_t at = u * static_cast<size_t>(a.scale_stride);
    const auto start = [&](int m, int n) {
      return StartOf(a, m * static_cast<size_t>(a.units) + u, at + n * kRows);
    };
    __m512i sums[1][MR][kVectors];
    SumUnit<Codes, kDigits, MR>(a, begin, panel, columns, start, sums);
    panel += columns * kColumns * Codes::kBits / 8;
    KU_UNROLL for (int n = 0; n < kVectors; ++n) {
      const __m512 scales = LoadScales(a, at + n * kRows);
      KU_UNROLL for (int m = 0; m < MR; ++m) {
        y[m][n] = AddUnit(sums[0][m][n], a.x_scales[m * a.units + u], scales, y[m][n]);
      }
    }
  }
  KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < kVectors; ++n) {
    _mm512_storeu_ps(a.sums + m * a.sum_stride + n * kRows, y[m][n]);
  }
}

// Loads the words of x that match the words of a line of W: a vector for each part.
template <class Codes>
HWY_INLINE void LoadWords(const uint8_t* x, __m512i (&words)[Codes::kParts]) {
  const __m512i first = _mm512_loadu_si512(x);
  if constexpr (Codes::kParts == 1) {
    words[0] = first;
  } else {
    const __m512i second = _mm512_loadu_si512(x + kLine);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    words[0] = _mm512_permutex2var_epi32(first, even, second);
    words[1] =
        _mm512_permutex2var_epi32(first, _mm512_add_epi32(even, _mm512_set1_epi32(1)), second);
  }
}

// Multiplies a line of each of 16 rows by one token. Each quarter of a sum vector has the products
// of one quarter of the line.
template <class Codes, int kDigits>
HWY_INLINE void AddLine(const uint8_t* const (&rows)[kRows], int offset, int bytes,
                        const uint8_t* x, int k, __m512i (&acc)[kRows]) {
  constexpr int kParts = Codes::kParts;
  __m512i words[kDigits][kParts];
  KU_UNROLL for (int digit = 0; digit < kDigits; ++digit) {
    LoadWords<Codes>(x + digit * k, words[digit]);
  }
  KU_UNROLL for (int i = 0; i < kRows; ++i) {
    __m512i codes[kParts];
    Codes::TakeApart(LoadLine(rows[i] + offset, bytes), codes);
    __m512i high = _mm512_setzero_si512();
    if constexpr (kDigits == 2) {
      KU_UNROLL for (int part = 0; part < kParts; ++part) {
        high = _mm512_dpbusd_epi32(high, codes[part], words[0][part]);
      }
      high = _mm512_slli_epi32(high, 8);
    }
    acc[i] = _mm512_add_epi32(acc[i], high);
    KU_UNROLL for (int part = 0; part < kParts; ++part) {
      acc[i] = _mm512_dpbusd_epi32(acc[i], codes[part], words[kDigits - 1][part]);
    }
  }
}

// Adds the four words of each quarter of 16 vectors: quarters[q] has the sums of quarter q.
HWY_INLINE void AddQuarters(const __m512i (&acc)[kRows], __m512i (&quarters)[4]) {
  KU_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512i* r = acc + 4 * i;
    const __m512i a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
    const __m512i b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
    quarters[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  TransposeQuarters(quarters);
}

template <class Codes, int kDigits>
void Rows(const IntegerArgs& a) {
  constexpr int kLineCodes = kLine * 8 / Codes::kBits;
  const int bytes = a.k * Codes::kBits / 8;
  const uint8_t* rows[kRows];
  for (int i = 0; i < kRows; ++i) rows[i] = a.weights + std::min(i, a.rows - 1) * a.row_stride;
  // Columns per iteration: a line, which may have several quantisation blocks, or a block of
  // several lines.
  const int span = std::max(a.unit, kLineCodes);
  const int quarters_of_unit = a.unit >= kLineCodes ? 4 : 4 * a.unit / kLineCodes;
  __m512 y = _mm512_setzero_ps();
  for (int begin = 0, u = 0; begin < a.k; begin += span) {
    __m512i acc[kRows];
    KU_UNROLL for (int i = 0; i < kRows; ++i) acc[i] = _mm512_setzero_si512();
    a.next->Fetch(span / a.unit * a.next_lines);
    for (int k = begin; k < std::min(begin + span, a.k); k += kLineCodes) {
      const int offset = k * Codes::kBits / 8;
      AddLine<Codes, kDigits>(rows, offset, bytes - offset, a.x + k, a.k, acc);
    }
    __m512i quarters[4];
    AddQuarters(acc, quarters);
    for (int q = 0; q < 4 && u < a.units; q += quarters_of_unit, ++u) {
      const size_t at = u * static_cast<size_t>(a.scale_stride);
      __m512i sums = _mm512_add_epi32(StartOf(a, u, at), quarters[q]);
      for (int i = 1; i < quarters_of_unit; ++i) sums = _mm512_add_epi32(sums, quarters[q + i]);
      y = AddUnit(sums, a.x_scales[u], LoadScales(a, at), y);
    }
  }
  _mm512_storeu_ps(a.sums, y);
}

template <class Codes, int kDigits, int MR>
constexpr void SetTiles(IntegerKernel& kernel) {
  constexpr int kNarrow = kDigits == 1 ? 1 : 0;
  kernel.tiles[kNarrow][MR] = kernel.prepacked[kNarrow][MR] = &Tile<Codes, kDigits, MR>;
  if constexpr (MR > 1) SetTiles<Codes, kDigits, MR - 1>(kernel);
}

template <class Codes>
constexpr IntegerKernel MakeIntegerKernel() {
  IntegerKernel kernel;
  kernel.columns = kColumns;
  kernel.row_block = kRows;
  kernel.max_tokens = kMaxIntegerTokens;
  kernel.panel_bits = Codes::kBits;
  kernel.element_bytes[0] = 2;
  kernel.element_bytes[1] = 1;
  kernel.convert[0] = kernel.convert_for_prepacked[0] = &Convert<Codes, 2>;
  kernel.convert[1] = kernel.convert_for_prepacked[1] = &Convert<Codes, 1>;
  kernel.pack = &Pack<Codes>;
  kernel.transpose = &TransposeRows;
  kernel.takes_all_types = true;
  kernel.rows[0][1] = &Rows<Codes, 2>;
  kernel.rows[1][1] = &Rows<Codes, 1>;
  SetTiles<Codes, 2, kMaxIntegerTokens>(kernel);
  SetTiles<Codes, 1, kMaxIntegerTokens>(kernel);
  return kernel;
}

}  // namespace
}  // namespace N_AVX3_VNNI
}  // namespace kuiper::cpu
HWY_POP_ATTRIBUTES

namespace kuiper::cpu {

bool UpgradeToAvx512Vnni(LinearKernelSet& set) {
  // Highway has checked that the OS saves the registers of AVX3.
  if (strcmp(set.name, "AVX3") != 0 || !MayUseAvx512Vnni()) return false;
  set.name = "AVX3_VNNI";
  constexpr auto kType = DType::kBF16;  // and all other types with integer activations
  set[{WeightFormat::Kind::kInt4, kType}].integer =
      N_AVX3_VNNI::MakeIntegerKernel<N_AVX3_VNNI::Int4>();
  set[{WeightFormat::Kind::kInt8, kType}].integer =
      N_AVX3_VNNI::MakeIntegerKernel<N_AVX3_VNNI::Int8>();
  return true;
}

}  // namespace kuiper::cpu

#else

namespace kuiper::cpu {
bool UpgradeToAvx512Vnni(LinearKernelSet&) {
  return false;
}
}  // namespace kuiper::cpu

#endif
