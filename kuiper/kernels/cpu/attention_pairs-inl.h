// The register tiles of products of pairs (attention_pairs.h) over an instruction set M. Included
// inside the namespace and the target attributes of each set, so it has no include guard, includes
// and namespace of its own.
//
// M provides: kLanes, kAccRegisters; Acc, A and B (operands); Load and Store of Acc, LoadA (pair k
// of a row, in all lanes), LoadRows (2 * kLanes columns of two rows, as two B), LoadPacked,
// StorePacked, MulAdd.

// The columns [col, col + kN * kLanes) of kR rows; load(k, x) gives pair k of b.
template <class M, int kR, int kN, class F>
HWY_INLINE void PairTile(const PairProduct& p, int64_t col, const F& load) {
  typename M::Acc sum[kR][kN];
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) sum[r][n] = M::Load(p.c + r * p.c_stride + col + n * M::kLanes);
  }
  for (int k = p.begin; k < p.end; ++k) {
    typename M::B x[kN];
    load(k, x);
    for (int r = 0; r < kR; ++r) {
      const typename M::A y = M::LoadA(p.a + r * p.a_stride, k);
      for (int n = 0; n < kN; ++n) sum[r][n] = M::MulAdd(y, x[n], sum[r][n]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) M::Store(sum[r][n], p.c + r * p.c_stride + col + n * M::kLanes);
  }
}

// Registers per row of a tile: as many as there are sums, up to 8, in steps of two.
template <class M, int kR>
constexpr int PairVectors() {
  const int fit = M::kAccRegisters / kR;
  return fit >= 8 ? 8 : fit >= 4 ? 4 : 2;
}

// Pairs from rows, from column `col` on.
template <class M>
struct RowLoader {
  const uint16_t* const* rows;
  int64_t col;
  int ahead;
  RowFetcher* next;
  template <int kN>
  HWY_INLINE void operator()(int k, typename M::B (&x)[kN]) const {
    const uint16_t *even = rows[2 * k] + col, *odd = rows[2 * k + 1] + col;
    constexpr int kBytes = 2 * kN * M::kLanes * static_cast<int>(sizeof(uint16_t));
    if (next != nullptr) next->Fetch((kBytes + 63) / 64);
    for (int n = 0; ahead > 0 && n < kN * M::kLanes; n += 32) {
      __builtin_prefetch(rows[2 * k + ahead] + col + n);
      __builtin_prefetch(rows[2 * k + 1 + ahead] + col + n);
    }
    for (int n = 0; n < kN; n += 2) M::LoadRows(even + n * M::kLanes, odd + n * M::kLanes, x + n);
  }
};

// Packed pairs.
template <class M>
struct PackedLoader {
  const uint32_t* pairs;
  int64_t stride;
  template <int kN>
  HWY_INLINE void operator()(int k, typename M::B (&x)[kN]) const {
    for (int n = 0; n < kN; ++n) x[n] = M::LoadPacked(pairs + k * stride + n * M::kLanes);
  }
};

template <class M, int kR>
HWY_NOINLINE void MultiplyRowPairs(const PairProduct& p, const uint16_t* const* rows) {
  constexpr int kN = PairVectors<M, kR>();
  int64_t col = 0;
  for (; col + kN * M::kLanes <= p.cols; col += kN * M::kLanes) {
    PairTile<M, kR, kN>(p, col, RowLoader<M>{rows, col, p.ahead, p.next});
  }
  for (; col < p.cols; col += 2 * M::kLanes)
    PairTile<M, kR, 2>(p, col, RowLoader<M>{rows, col, p.ahead, p.next});
}

template <class M, int kR>
HWY_NOINLINE void MultiplyPackedPairs(const PairProduct& p, const uint32_t* pairs) {
  constexpr int kN = PairVectors<M, kR>();
  int64_t col = 0;
  for (; col + kN * M::kLanes <= p.cols; col += kN * M::kLanes) {
    PairTile<M, kR, kN>(p, col, PackedLoader<M>{pairs + col, p.cols});
  }
  for (; col < p.cols; col += 2 * M::kLanes) {
    PairTile<M, kR, 2>(p, col, PackedLoader<M>{pairs + col, p.cols});
  }
}

template <class M>
void PackPairs(const uint16_t* even, const uint16_t* odd, int64_t cols, uint32_t* pairs) {
  for (int64_t col = 0; col < cols; col += 2 * M::kLanes) {
    typename M::B x[2];
    M::LoadRows(even + col, odd + col, x);
    for (int n = 0; n < 2; ++n) M::StorePacked(x[n], pairs + col + n * M::kLanes);
  }
}

template <class M, int... kR>
constexpr PairKernel MakePairKernel(std::integer_sequence<int, kR...>) {
  PairKernel kernel;
  kernel.narrow = &M::Narrow;
  kernel.pack = &PackPairs<M>;
  kernel.multiply_rows = [](int num_rows, const PairProduct& p, const uint16_t* const* rows) {
    constexpr void (*kByRows[])(const PairProduct&,
                                const uint16_t* const*) = {&MultiplyRowPairs<M, kR + 1>...};
    kByRows[num_rows - 1](p, rows);
  };
  kernel.multiply_packed = [](int num_rows, const PairProduct& p, const uint32_t* pairs) {
    constexpr void (*kByRows[])(const PairProduct&,
                                const uint32_t*) = {&MultiplyPackedPairs<M, kR + 1>...};
    kByRows[num_rows - 1](p, pairs);
  };
  return kernel;
}
