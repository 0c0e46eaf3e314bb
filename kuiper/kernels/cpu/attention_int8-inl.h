// The register tiles that compute the scores of attention_int8.h for an instruction set M, and the
// kernel made of them. Include it after attention_pairs-inl.h and, like that file, inside the
// namespace and the target attributes of each set.
//
// M provides, besides the members that attention_pairs-inl.h lists:
//   Factors       a register of operands; kCodes is its number of elements.
//   kDotRows      the maximum number of query rows of a register tile.
//   LoadCodes     loads INT8 elements as Factors.
//   LoadQuery     loads int16 queries as Factors.
//   ZeroSum       returns an Acc of zeros.
//   Dot           adds all products of two Factors to some lanes of an Acc.
//   StoreTotals   stores, as FP32, the sum of all lanes of each of kPanelRows Acc.

template <class M, int MR>
HWY_NOINLINE void Int8Dots(const DotArgs& a) {
  constexpr int kLine = 64;
  for (int j = 0; j < a.count; j += kPanelRows) {
    const uint8_t* const* rows = a.rows + j;
    typename M::Acc acc[MR][kPanelRows];
    for (int m = 0; m < MR; ++m) {
      for (int n = 0; n < kPanelRows; ++n) acc[m][n] = M::ZeroSum();
    }
    for (int k = 0; k < a.k; k += M::kCodes) {
      if (k % kLine == 0) {
        if (a.next != nullptr) a.next->Fetch(kPanelRows + 1);  // + 1: scales occupy lines, too
        for (int n = 0; a.ahead > 0 && n < kPanelRows; ++n) {
          __builtin_prefetch(rows[a.ahead + n] + k);
        }
      }
      typename M::Factors x[MR];
      for (int m = 0; m < MR; ++m) {
        x[m] = M::LoadQuery(reinterpret_cast<const int16_t*>(a.x + m * a.x_stride) + k);
      }
      for (int n = 0; n < kPanelRows; ++n) {
        const typename M::Factors codes =
            M::LoadCodes(reinterpret_cast<const int8_t*>(rows[n]) + k);
        for (int m = 0; m < MR; ++m) acc[m][n] = M::Dot(codes, x[m], acc[m][n]);
      }
    }
    for (int m = 0; m < MR; ++m) M::StoreTotals(acc[m], a.sums + m * a.sum_stride + j);
  }
}

template <class M, int MR>
constexpr void SetInt8Dots(Int8Kernel& kernel) {
  kernel.dots[MR] = &Int8Dots<M, MR>;
  if constexpr (MR > 1) SetInt8Dots<M, MR - 1>(kernel);
}

template <class M>
constexpr Int8Kernel MakeInt8Kernel() {
  constexpr std::make_integer_sequence<int, kMicroRows> kRows{};
  Int8Kernel kernel;
  SetInt8Dots<M, M::kDotRows>(kernel);
  kernel.dot_rows = M::kDotRows;
  kernel.multiply_rows = MultiplyRowsOf<M, int8_t>(kRows);
  kernel.multiply_packed = MultiplyPackedOf<M>(kRows);
  kernel.pack = &PackPairs<M, int8_t>;
  return kernel;
}
