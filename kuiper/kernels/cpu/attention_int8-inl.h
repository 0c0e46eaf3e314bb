// The register tiles of scores of attention_int8.h over an instruction set M, and its kernel.
// Included behind attention_pairs-inl.h, like that inside the namespace and the target attributes
// of each set.
//
// M provides, beside what attention_pairs-inl.h asks for: kCodes, the elements of a Factors;
// kDotRows; LoadCodes and LoadQuery (Factors of codes and of integers of 16 bits); Dot, which adds
// all products of two Factors to some lanes of an Acc; ZeroSum; StoreTotals, the sums of all lanes
// of kPanelRows of them as FP32.

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
        if (a.next != nullptr) a.next->Fetch(kPanelRows + 1);  // scales have lines, too
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
