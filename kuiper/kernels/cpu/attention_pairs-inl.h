// The register tiles of products of pairs (attention_pairs.h) for an instruction set M. Included
// inside the namespace and the target attributes of each set, so this file has no include guard,
// includes or namespace.
//
// M provides:
//   kLanes                 32-bit lanes of a register.
//   kAccRegisters, kLoads  registers for sums; maximum registers of b loaded at once.
//   kSteps                 multiply-add steps per pair; if two, the odd element comes first.
//   Acc, A, B              a register of sums, and the operands of a step.
//   MulAdd                 multiplies and adds one step.
//   LoadA                  loads pair k of a row of a into all lanes.
//   BeginSums, EndSums     load Acc from c and store it to c.
//   LoadRows, LoadPacked   load B from two rows (BF16, FP8 or INT8) or from packed pairs.
//   StorePacked            stores packed pairs from the B of all steps.
// Columns are processed 2 * kLanes at a time, in two vectors, in an order that M chooses.

#include "kuiper/kernels/cpu/unroll.h"

// Computes columns [col, col + kN * kLanes) of kR rows. load(k, n, step, x) loads vectors n and
// n + 1 of pair k of b into x.
template <class M, int kR, int kN, class Loader>
HWY_INLINE void PairTile(const PairProduct& p, int64_t col, const Loader& load) {
  constexpr int kLoads = kN < M::kLoads ? kN : M::kLoads;
  const auto sums_at = [&](int r, int n) { return p.c + r * p.c_stride + col + n * M::kLanes; };
  typename M::Acc sum[kR][kN];
  KU_UNROLL for (int r = 0; r < kR; ++r) {
    KU_UNROLL for (int n = 0; n < kN; n += 2) M::BeginSums(sums_at(r, n), sum[r] + n);
  }
  for (int k = p.begin; k < p.end; ++k) {
    load.Fetch(k, kN);
    KU_UNROLL for (int first = 0; first < kN; first += kLoads) {
      KU_UNROLL for (int step = 0; step < M::kSteps; ++step) {
        typename M::B x[kLoads];
        KU_UNROLL for (int n = 0; n < kLoads; n += 2) load(k, first + n, step, x + n);
        KU_UNROLL for (int r = 0; r < kR; ++r) {
          const typename M::A y = M::LoadA(p.a + r * p.a_stride, k, step);
          KU_UNROLL for (int n = 0; n < kLoads; ++n) {
            sum[r][first + n] = M::MulAdd(y, x[n], sum[r][first + n]);
          }
        }
      }
    }
  }
  KU_UNROLL for (int r = 0; r < kR; ++r) {
    KU_UNROLL for (int n = 0; n < kN; n += 2) M::EndSums(sum[r] + n, p, r, sums_at(r, n));
  }
}

// Returns the registers per row of a tile: the largest of 8, 4 and 2 for which all sums fit.
template <class M, int kR>
constexpr int PairVectors() {
  const int fit = M::kAccRegisters / kR;
  return fit >= 8 ? 8 : fit >= 4 ? 4 : 2;
}

// Loads pairs from rows of T, from column `col` on.
template <class M, typename T>
struct RowLoader {
  const uint8_t* const* rows;
  int64_t col;
  int ahead;
  RangePrefetcher* next;
  HWY_INLINE void operator()(int k, int n, int step, typename M::B* x) const {
    const int64_t at = col + n * M::kLanes;
    M::LoadRows(Row(2 * k) + at, Row(2 * k + 1) + at, step, x);
  }
  // Prefetches while `num` vectors of pair k are multiplied.
  HWY_INLINE void Fetch(int k, int num) const {
    constexpr int kBytes = static_cast<int>(sizeof(T)), kLine = 64 / kBytes;
    const int columns = num * M::kLanes;
    if (next != nullptr) next->Fetch((2 * columns * kBytes + 63) / 64);
    for (int n = 0; ahead > 0 && n < columns; n += kLine) {
      __builtin_prefetch(Row(2 * k + ahead) + col + n);
      __builtin_prefetch(Row(2 * k + 1 + ahead) + col + n);
    }
  }
  HWY_INLINE const T* Row(int i) const { return reinterpret_cast<const T*>(rows[i]); }
};

// Loads packed pairs.
template <class M>
struct PackedLoader {
  const uint32_t* pairs;
  int64_t stride;
  HWY_INLINE void operator()(int k, int n, int step, typename M::B* x) const {
    const uint32_t* at = pairs + k * stride + n * M::kLanes;
    for (int i = 0; i < 2; ++i) x[i] = M::LoadPacked(at + i * M::kLanes, step);
  }
  HWY_INLINE void Fetch(int, int) const {}
};

template <class M, int kR, typename T>
HWY_NOINLINE void MultiplyRowPairs(const PairProduct& p, const uint8_t* const* rows) {
  constexpr int kN = PairVectors<M, kR>();
  int64_t col = 0;
  for (; col + kN * M::kLanes <= p.cols; col += kN * M::kLanes) {
    PairTile<M, kR, kN>(p, col, RowLoader<M, T>{rows, col, p.ahead, p.next});
  }
  for (; col < p.cols; col += 2 * M::kLanes) {
    PairTile<M, kR, 2>(p, col, RowLoader<M, T>{rows, col, p.ahead, p.next});
  }
}

template <class M, int kR>
HWY_NOINLINE void MultiplyPackedPairs(const PairProduct& p, const uint32_t* pairs) {
  constexpr int kN = PairVectors<M, kR>();
  int64_t col = 0;
  for (; col + kN * M::kLanes <= p.cols; col += kN * M::kLanes) {
    PairTile<M, kR, kN>(p, col, PackedLoader<M>{pairs + col, p.b_stride});
  }
  for (; col < p.cols; col += 2 * M::kLanes) {
    PairTile<M, kR, 2>(p, col, PackedLoader<M>{pairs + col, p.b_stride});
  }
}

template <class M, typename T>
void PackPairs(const T* even, const T* odd, int64_t cols, uint32_t* pairs) {
  for (int64_t col = 0; col < cols; col += 2 * M::kLanes) {
    typename M::B x[M::kSteps][2];
    for (int step = 0; step < M::kSteps; ++step) M::LoadRows(even + col, odd + col, step, x[step]);
    for (int n = 0; n < 2; ++n) M::StorePacked(x, n, pairs + col + n * M::kLanes);
  }
}

template <class M, typename T, int... kR>
constexpr PairKernel::RowsFn MultiplyRowsOf(std::integer_sequence<int, kR...>) {
  return [](int num_rows, const PairProduct& p, const uint8_t* const* rows) {
    constexpr void (*kByRows[])(const PairProduct&,
                                const uint8_t* const*) = {&MultiplyRowPairs<M, kR + 1, T>...};
    kByRows[num_rows - 1](p, rows);
  };
}

template <class M, int... kR>
constexpr PairKernel::PackedFn MultiplyPackedOf(std::integer_sequence<int, kR...>) {
  return [](int num_rows, const PairProduct& p, const uint32_t* pairs) {
    constexpr void (*kByRows[])(const PairProduct&,
                                const uint32_t*) = {&MultiplyPackedPairs<M, kR + 1>...};
    kByRows[num_rows - 1](p, pairs);
  };
}

template <class M, int... kR>
constexpr PairKernel MakePairKernel(std::integer_sequence<int, kR...> rows) {
  PairKernel kernel;
  kernel.narrow = &M::Narrow;
  kernel.pack = &PackPairs<M, BFloat16>;
  kernel.multiply_rows = MultiplyRowsOf<M, BFloat16>(rows);
  kernel.multiply_packed = MultiplyPackedOf<M>(rows);
  return kernel;
}
