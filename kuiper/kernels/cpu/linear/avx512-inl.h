// Operations across AVX-512 registers for the linear layer. Included like tile-inl.h.
//
// Lane reductions 8+8, 4+4, 2+2, 1+1 of many 16-lane accumulators at once: four rows of x by four
// rows of W take about 50 instructions instead of 150.

HWY_INLINE __m128 Fold16To4(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

HWY_INLINE float Fold16To1(__m512 v) {
  __m128 q = Fold16To4(v);
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

HWY_INLINE __m128 Fold1x4(const __m512 (&a)[4]) {
  const __m128 p = Fold16To4(a[0]), q = Fold16To4(a[1]), r = Fold16To4(a[2]), s = Fold16To4(a[3]);
  const __m128 u = _mm_add_ps(_mm_movelh_ps(p, q), _mm_movehl_ps(q, p));
  const __m128 v = _mm_add_ps(_mm_movelh_ps(r, s), _mm_movehl_ps(s, r));
  return _mm_add_ps(_mm_shuffle_ps(u, v, 0x88), _mm_shuffle_ps(u, v, 0xDD));
}

// Returns [a reduced to 8 | b reduced to 8].
HWY_INLINE __m512 Fold8(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, a, b), _mm512_shuffle_f32x4(a, b, 0x4E));
}

// s = [a a' c c'], t = [b b' d d'], quarters of 4 lanes -> [a+a' b+b' c+c' d+d']
HWY_INLINE __m512 Fold4(__m512 s, __m512 t) {
  const __m512 q = _mm512_mask_blend_ps(0xF0F0, s, t);
  const __m512 p = _mm512_mask_blend_ps(0x0F0F, s, t);
  return _mm512_add_ps(q, _mm512_shuffle_f32x4(p, p, 0xB1));
}

HWY_INLINE __m512 InterleaveLow(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
HWY_INLINE __m512 InterleaveHigh(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// In each quarter: r0..r3, four lanes each -> their four sums.
HWY_INLINE __m512 FoldQuarters(__m512 r0, __m512 r1, __m512 r2, __m512 r3) {
  const __m512 u = _mm512_add_ps(InterleaveLow(r0, r1), InterleaveHigh(r0, r1));
  const __m512 v = _mm512_add_ps(InterleaveLow(r2, r3), InterleaveHigh(r2, r3));
  return _mm512_add_ps(_mm512_shuffle_ps(u, v, 0x88), _mm512_shuffle_ps(u, v, 0xDD));
}

HWY_INLINE void Put4(float* y, __m128 v, bool add) {
  _mm_storeu_ps(y, add ? _mm_add_ps(_mm_loadu_ps(y), v) : v);
}

template <int MR, int NR>
HWY_INLINE void FoldAvx512(const __m512 (&a)[MR][NR], float* y, size_t stride, bool add) {
  if constexpr (NR == 4) {
    constexpr int kFours = MR / 4 * 4;
    if constexpr (MR >= 4) {
      __m512 r[4];
      KU_UNROLL for (int n = 0; n < 4; ++n) {
        r[n] = Fold4(Fold8(a[0][n], a[2][n]), Fold8(a[1][n], a[3][n]));
      }
      const __m512 sums = FoldQuarters(r[0], r[1], r[2], r[3]);
      Put4(y, _mm512_castps512_ps128(sums), add);
      Put4(y + stride, _mm512_extractf32x4_ps(sums, 1), add);
      Put4(y + 2 * stride, _mm512_extractf32x4_ps(sums, 2), add);
      Put4(y + 3 * stride, _mm512_extractf32x4_ps(sums, 3), add);
    }
    if constexpr (MR % 4 >= 2) {
      __m512 r[4];
      KU_UNROLL for (int n = 0; n < 4; ++n) {
        const __m512 s = Fold8(a[kFours][n], a[kFours + 1][n]);
        r[n] = _mm512_add_ps(s, _mm512_shuffle_f32x4(s, s, 0xB1));
      }
      const __m512 sums = FoldQuarters(r[0], r[1], r[2], r[3]);
      Put4(y + kFours * stride, _mm512_castps512_ps128(sums), add);
      Put4(y + (kFours + 1) * stride, _mm512_extractf32x4_ps(sums, 2), add);
    }
    if constexpr (MR % 2 == 1) Put4(y + (MR - 1) * stride, Fold1x4(a[MR - 1]), add);
  } else {
    KU_UNROLL for (int m = 0; m < MR; ++m) KU_UNROLL for (int n = 0; n < NR; ++n) {
      const float sum = Fold16To1(a[m][n]);
      y[m * stride + n] = add ? y[m * stride + n] + sum : sum;
    }
  }
}

// Swaps quarter i of r[j] with quarter j of r[i].
HWY_INLINE void TransposeQuarters(__m512i (&r)[4]) {
  // a, c: quarters 0 and 2 of the first and of the last two registers; b, d: quarters 1 and 3.
  const __m512i a = _mm512_shuffle_i32x4(r[0], r[1], 0x88);
  const __m512i b = _mm512_shuffle_i32x4(r[0], r[1], 0xDD);
  const __m512i c = _mm512_shuffle_i32x4(r[2], r[3], 0x88);
  const __m512i d = _mm512_shuffle_i32x4(r[2], r[3], 0xDD);
  r[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  r[1] = _mm512_shuffle_i32x4(b, d, 0x88);
  r[2] = _mm512_shuffle_i32x4(a, c, 0xDD);
  r[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

// Transposes 16 rows of 16 words.
HWY_INLINE void TransposeWords(__m512i (&r)[16]) {
  __m512i t[16];
  // Four rows each: quarter q of t[4 i + j] has word 4 q + j of the rows [4 i, 4 i + 4).
  KU_UNROLL for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  KU_UNROLL for (int j = 0; j < 4; ++j) {
    __m512i quarters[4] = {t[j], t[4 + j], t[8 + j], t[12 + j]};
    TransposeQuarters(quarters);
    KU_UNROLL for (int q = 0; q < 4; ++q) r[4 * q + j] = quarters[q];
  }
}

// Transposes, and stores the words of each lane at LanePlace(lane) * to_stride.
HWY_INLINE void StoreTransposed(__m512i (&r)[16], uint8_t* to, size_t to_stride) {
  TransposeWords(r);
  KU_UNROLL for (int i = 0; i < 16; ++i) _mm512_store_si512(to + LanePlace(i) * to_stride, r[i]);
}
