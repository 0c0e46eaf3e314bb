// Causal attention over the KV cache. A work item is a block of query rows that share a kv head:
// consecutive positions of one sequence times the query heads of the group, so that each key and
// value is loaded (and converted) once for all of them. Both matrix products are one register-tiled
// kernel: scores = Q K^T reads a tile of keys transposed into scratch, values are read as they lie
// (decode) or from a converted tile (prefill, where it pays).
//
// Bits: a score is summed along head_dim in ascending order, an output along the key positions in
// ascending order, tiles start at absolute position 0, and nothing beyond a row's own length enters
// it. So a row's result does not depend on the block, chunk, page or batch it is computed in.
//
// Decode reads each K and V once and is bound by memory; a prefill of long rows is bound by FMA.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/attention.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/kernels.h"
#include "kuiper/kernels/cpu/simd-inl.h"

#ifndef KUIPER_KERNELS_CPU_ATTENTION_CPP_
#define KUIPER_KERNELS_CPU_ATTENTION_CPP_
namespace kuiper::cpu {

constexpr int kTile = 64;               // key positions per tile
constexpr int kKeyStride = kTile + 16;  // of the transposed tile: spreads its rows over cache sets
constexpr int kMicroRows = 6;           // rows of a register tile
constexpr int kFlashRows = 48;          // query rows of a work item
constexpr int kMhaRows = kMicroRows;

inline int MaxRows(AttentionKind kind) {
  return kind == AttentionKind::kMha ? kMhaRows : kFlashRows;
}
inline int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Query rows that are computed together: row r is head `head + r % num_heads` of batch row
// `q_row + r / num_heads`, whose own length is `len + r / num_heads`.
struct AttentionItem {
  int seq = 0;
  int kv_head = 0;
  int head = 0;
  int num_heads = 0;
  int q_row = 0;
  int num_positions = 0;
  int len = 0;
  int num_rows() const { return num_heads * num_positions; }
  int row_len(int r) const { return len + r / num_heads; }
  int max_len() const { return len + num_positions - 1; }
};

// One thread's memory, in floats; `dim` is head_dim rounded up to 16.
struct AttentionScratch {
  float* q;       // [rows, dim], scaled
  float* acc;     // [rows, dim]
  float* keys;    // [dim, kKeyStride], transposed
  float* values;  // [kTile, dim]
  float* sum;     // [rows, 16] running lanes of the softmax denominator
  float* max;     // [rows]
  float* scores;  // [rows, score_stride]
  int64_t dim;
  int64_t score_stride;

  // Splits `base` (null: only counts); returns the number of floats.
  size_t Carve(float* base, AttentionKind kind, int head_dim, int max_context) {
    const int64_t rows = MaxRows(kind);
    dim = RoundUp(head_dim, 16);
    score_stride = kind == AttentionKind::kMha ? RoundUp(max_context, kTile) : kTile;
    int64_t used = 0;
    const auto take = [base, &used](int64_t n) {
      float* p = base == nullptr ? nullptr : base + used;
      used += RoundUp(n, 16);
      return p;
    };
    q = take(rows * dim);
    acc = take(rows * dim);
    keys = take(dim * kKeyStride);
    values = take(kTile * dim);
    sum = take(rows * 16);
    max = take(rows);
    scores = take(rows * score_stride);
    return used;
  }
};

struct AttentionArgs {
  AttentionKind kind;
  Tensor out;  // [T, H*D]
  Tensor q;    // [T, H*D]
  KvView kv;
  float scale;
};

}  // namespace kuiper::cpu
#endif  // KUIPER_KERNELS_CPU_ATTENTION_CPP_

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// Registers per row of the tile: with 32 registers 6 x 4 sums, with 16 registers 6 x 2.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kVecs = 4;
#else
constexpr int kVecs = 2;
#endif

// --- the product: c[r][n] += sum over k of a[r][k] * b[k][n], k ascending ----------------------

// Rows of a dense matrix; the other kind of `b` is an array of row pointers.
struct StridedRows {
  const float* data;
  int64_t stride;
  HWY_INLINE const float* operator[](int k) const { return data + k * stride; }
};

template <int kR, int kN, class B>
HWY_INLINE void MultiplyTile(const float* a, int64_t a_stride, const B& b, int begin, int end,
                             int64_t col, bool from_zero, float* c, int64_t c_stride) {
  const DF d;
  VF sum[kR][kN];
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) {
      sum[r][n] = from_zero ? hn::Zero(d) : hn::LoadU(d, c + r * c_stride + col + n * kLanes);
    }
  }
  for (int k = begin; k < end; ++k) {
    const auto* row = b[k] + col;
    VF x[kN];
    for (int n = 0; n < kN; ++n) x[n] = LoadF32(d, row + n * kLanes);
    for (int r = 0; r < kR; ++r) {
      const VF y = hn::Set(d, a[r * a_stride + k]);
      for (int n = 0; n < kN; ++n) sum[r][n] = hn::MulAdd(y, x[n], sum[r][n]);
    }
  }
  for (int r = 0; r < kR; ++r) {
    for (int n = 0; n < kN; ++n) hn::StoreU(sum[r][n], d, c + r * c_stride + col + n * kLanes);
  }
}

template <int kR, class B>
HWY_NOINLINE void MultiplyRows(const float* a, int64_t a_stride, const B& b, int begin, int end,
                               int64_t cols, bool from_zero, float* c, int64_t c_stride) {
  int64_t col = 0;
  for (; col + kVecs * kLanes <= cols; col += kVecs * kLanes) {
    MultiplyTile<kR, kVecs>(a, a_stride, b, begin, end, col, from_zero, c, c_stride);
  }
  for (; col < cols; col += kLanes) {
    MultiplyTile<kR, 1>(a, a_stride, b, begin, end, col, from_zero, c, c_stride);
  }
}

// rows in [1, kMicroRows]; cols is rounded up to whole vectors.
template <class B>
HWY_INLINE void Multiply(int rows, const float* a, int64_t a_stride, const B& b, int begin, int end,
                         int64_t cols, bool from_zero, float* c, int64_t c_stride) {
  switch (rows) {
    case 1:
      return MultiplyRows<1>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 2:
      return MultiplyRows<2>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 3:
      return MultiplyRows<3>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 4:
      return MultiplyRows<4>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    case 5:
      return MultiplyRows<5>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
    default:
      return MultiplyRows<6>(a, a_stride, b, begin, end, cols, from_zero, c, c_stride);
  }
}

// --- tiles of the cache -----------------------------------------------------------------------

template <typename T>
HWY_INLINE int TokensPerPage(const PagedView<T>& view) {
  return 1 << view.page_shift;
}
template <typename T>
HWY_INLINE int TokensPerPage(const ContiguousView<T>& view) {
  return view.max_len;
}

// rows[i] = the K vector at position begin + i, i < count, then repeats of the last one up to a
// multiple of 16: one table look-up per page.
template <class View, typename T = typename View::Element>
HWY_INLINE void KeyRows(const View& view, int seq, int kv_head, int begin, int count,
                        const T** rows) {
  const int tokens = TokensPerPage(view);
  for (int pos = begin; pos < begin + count;) {
    const int run_end = std::min(begin + count, pos - pos % tokens + tokens);
    const T* row = view.Row(seq, pos, kv_head);
    for (; pos < run_end; ++pos, row += view.s.token_stride) rows[pos - begin] = row;
  }
  for (int i = count; i % 16 != 0; ++i) rows[i] = rows[count - 1];
}

// --- keys, transposed -------------------------------------------------------------------------

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;
constexpr int kPackKeys = 16;  // keys that are transposed together

#if HWY_TARGET != HWY_SCALAR
// 16 bytes of each of kLanes / 4 rows `apart` pointers apart, one row per 128-bit block.
template <typename T>
HWY_INLINE VU LoadBlocks(const T* const* rows, int apart, int offset) {
  const DU d;
  const auto load = [&](int block) HWY_ATTR {
    return hn::LoadDup128(d, reinterpret_cast<const uint32_t*>(rows[block * apart] + offset));
  };
  if constexpr (kLanes == 16) {
    return hn::ConcatUpperLower(d, hn::OddEvenBlocks(load(3), load(2)),
                                hn::OddEvenBlocks(load(1), load(0)));
  } else if constexpr (kLanes == 8) {
    return hn::OddEvenBlocks(load(1), load(0));
  } else {
    return load(0);
  }
}

// Stores a vector of one 32-bit word per key: an FP32 element, or two 16-bit ones for two rows.
HWY_INLINE void StoreWords(VU words, float* out, const float*) {
  hn::StoreU(hn::BitCast(DF(), words), DF(), out);
}
HWY_INLINE void StoreWords(VU words, float* out, const BFloat16*) {
  const DU d;
  hn::StoreU(hn::BitCast(DF(), hn::ShiftLeft<16>(words)), DF(), out);
  hn::StoreU(hn::BitCast(DF(), hn::And(words, hn::Set(d, 0xFFFF0000u))), DF(), out + kKeyStride);
}
HWY_INLINE void StoreWords(VU words, float* out, const Half*) {
  const hn::Rebind<uint16_t, DU> d16;
  uint16_t half[2][kLanes];
  hn::StoreU(hn::TruncateTo(d16, hn::And(words, hn::Set(DU(), 0xFFFFu))), d16, half[0]);
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(words)), d16, half[1]);
  for (int i = 0; i < 2; ++i) {
    const VF wide = LoadF32(DF(), reinterpret_cast<const Half*>(half[i]));
    hn::StoreU(wide, DF(), out + i * kKeyStride);
  }
}

// Transposes 16 bytes of each of kLanes keys: words within the 128-bit blocks, whose four rows are
// four consecutive keys.
template <typename T>
HWY_INLINE void TransposeStep(const T* const* rows, int offset, float* out) {
  const DU d;
  constexpr int kElements = 4 / sizeof(T);  // per word
  const VU a = LoadBlocks(rows, 4, offset), b = LoadBlocks(rows + 1, 4, offset);
  const VU c = LoadBlocks(rows + 2, 4, offset), e = LoadBlocks(rows + 3, 4, offset);
  const hn::RepartitionToWide<DU> d64;
  const auto ab_lo = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
  const auto ab_hi = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
  const auto ce_lo = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
  const auto ce_hi = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
  const T* type = nullptr;
  constexpr int kStep = kElements * kKeyStride;
  StoreWords(hn::BitCast(d, hn::InterleaveLower(d64, ab_lo, ce_lo)), out, type);
  StoreWords(hn::BitCast(d, hn::InterleaveUpper(d64, ab_lo, ce_lo)), out + kStep, type);
  StoreWords(hn::BitCast(d, hn::InterleaveLower(d64, ab_hi, ce_hi)), out + 2 * kStep, type);
  StoreWords(hn::BitCast(d, hn::InterleaveUpper(d64, ab_hi, ce_hi)), out + 3 * kStep, type);
}
#endif

// What decode will read from memory while a block of 16 keys is transposed: each step of 16 bytes
// per key fetches as much ahead, in the order of memory. Bytes of the 16 vectors of one block, or
// null where they are not contiguous.
struct Ahead {
  const char* keys = nullptr;
  const char* values = nullptr;

  HWY_INLINE void Fetch(int64_t step) const {
    for (int64_t byte = 256 * step; byte < 256 * step + 256; byte += 64) {
      if (keys != nullptr) hwy::Prefetch(keys + byte);
      if (values != nullptr) hwy::Prefetch(values + byte);
    }
  }
};

template <typename T>
HWY_INLINE const char* ContiguousBlock(const T* const* rows, int head_dim, int64_t offset) {
  const bool contiguous = rows[kPackKeys - 1] - rows[0] == int64_t{kPackKeys - 1} * head_dim;
  return contiguous ? reinterpret_cast<const char*>(rows[0] + offset) : nullptr;
}

// keys[i][j] = element i of row j, as FP32; `rows` is padded to a multiple of kPackKeys with valid
// pointers. Columns from `count` on hold anything. ahead(block) says what to fetch meanwhile.
template <typename T, class F>
void PackKeys(const T* const* rows, int count, int head_dim, [[maybe_unused]] const F& ahead,
              float* keys) {
  int vectorised = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int kStep = 16 / sizeof(T);
  vectorised = head_dim / kStep * kStep;
  for (int block = 0; block < count; block += kPackKeys) {
    const Ahead next = ahead(block);
    for (int i = 0; i < vectorised; i += kStep) {
      next.Fetch(i / kStep);
      for (int j = block; j < block + kPackKeys; j += kLanes) {
        TransposeStep(rows + j, i, keys + i * kKeyStride + j);
      }
    }
  }
#endif
  for (int i = vectorised; i < head_dim; ++i) {
    for (int j = 0; j < count; ++j) keys[i * kKeyStride + j] = ToFloat(rows[j][i]);
  }
}

// values[j] = row j + v_offset as FP32, padded with zeros to `dim`.
template <typename T>
void PackValues(const T* const* rows, int64_t v_offset, int count, int head_dim, int64_t dim,
                float* values) {
  for (int j = 0; j < count; ++j) {
    const T* row = rows[j] + v_offset;
    MapElements(values + j * dim, head_dim, [&](auto load) HWY_ATTR { return load(row); });
    std::fill(values + j * dim + head_dim, values + (j + 1) * dim, 0.0f);
  }
}

// --- softmax ----------------------------------------------------------------------------------

// Fills up to a multiple of 16 with -inf, so that whole groups of 16 lanes can be processed.
HWY_INLINE int PadScores(float* scores, int count) {
  const int padded = static_cast<int>(RoundUp(count, 16));
  std::fill(scores + count, scores + padded, -std::numeric_limits<float>::infinity());
  return padded;
}

HWY_INLINE float MaxOfScores(const float* scores, int padded, float max) {
  const DF d;
  VF m = hn::Set(d, max);
  for (int i = 0; i < padded; i += kLanes) m = hn::Max(m, hn::LoadU(d, scores + i));
  return hn::GetLane(hn::MaxOfLanes(d, m));
}

// scores = exp(scores - max), added to the 16 lanes of `sum`.
HWY_INLINE void ExpScores(float* scores, int padded, float max, float* sum) {
  const DF d;
  const VF m = hn::Set(d, max);
  for (int r = 0; r < kRegs; ++r) {
    VF total = hn::LoadU(d, sum + r * kLanes);
    for (int i = r * kLanes; i < padded; i += 16) {
      const VF p = ExpF32(d, hn::Sub(hn::LoadU(d, scores + i), m));
      hn::StoreU(p, d, scores + i);
      total = hn::Add(total, p);
    }
    hn::StoreU(total, d, sum + r * kLanes);
  }
}

HWY_INLINE void Scale(float* x, int64_t n, float factor) {
  const DF d;
  const VF f = hn::Set(d, factor);
  for (int64_t i = 0; i < n; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
}

// Takes the next tile of a row's scores into its running maximum, sum and output.
HWY_INLINE void OnlineSoftmax(float* scores, int count, float* max, float* sum, float* acc,
                              int64_t dim) {
  const int padded = PadScores(scores, count);
  const float new_max = MaxOfScores(scores, padded, *max);
  if (new_max != *max) {
    const float old_scale = hn::GetLane(ExpF32(DF(), hn::Set(DF(), *max - new_max)));
    Scale(acc, dim, old_scale);
    Scale(sum, 16, old_scale);
    *max = new_max;
  }
  ExpScores(scores, padded, new_max, sum);
}

// --- one work item ----------------------------------------------------------------------------

void LoadQueries(const AttentionArgs& args, const AttentionItem& item, const AttentionScratch& s,
                 int head_dim) {
  const VF scale = hn::Set(DF(), args.scale);
  for (int r = 0; r < item.num_rows(); ++r) {
    const float* q = args.q.row<float>(item.q_row + r / item.num_heads) +
                     static_cast<int64_t>(item.head + r % item.num_heads) * head_dim;
    MapElements(s.q + r * s.dim, head_dim,
                [&](auto load) HWY_ATTR { return hn::Mul(load(q), scale); });
  }
  std::fill(s.acc, s.acc + item.num_rows() * s.dim, 0.0f);
  std::fill(s.sum, s.sum + item.num_rows() * 16, 0.0f);
  std::fill(s.max, s.max + item.num_rows(), -std::numeric_limits<float>::infinity());
}

void StoreOutputs(const AttentionArgs& args, const AttentionItem& item, const AttentionScratch& s,
                  int head_dim) {
  for (int r = 0; r < item.num_rows(); ++r) {
    float* out = args.out.row<float>(item.q_row + r / item.num_heads) +
                 static_cast<int64_t>(item.head + r % item.num_heads) * head_dim;
    const VF factor = hn::Set(DF(), 1.0f / FoldLanes(s.sum + r * 16));
    const float* acc = s.acc + r * s.dim;
    MapElements(out, head_dim, [&](auto load) HWY_ATTR { return hn::Mul(load(acc), factor); });
  }
}

// acc += p V for rows [first, first + rows) and the tile at `tile`, where p points to the tile's
// scores of row `first`: together up to the shortest row, the rest of each row alone, so that no
// row sees a value beyond its own length.
template <class B>
void AddValues(const AttentionItem& item, const AttentionScratch& s, const float* p,
               const B& values, int first, int rows, int tile) {
  const auto count = [&](int r) { return std::clamp(item.row_len(r) - tile, 0, kTile); };
  float* acc = s.acc + first * s.dim;
  const int common = count(first);  // lengths ascend
  Multiply(rows, p, s.score_stride, values, 0, common, s.dim, false, acc, s.dim);
  for (int r = 0; r < rows; ++r) {
    const int own = count(first + r);
    if (own == common) continue;
    Multiply(1, p + r * s.score_stride, s.score_stride, values, common, own, s.dim, false,
             acc + r * s.dim, s.dim);
  }
}

// Calls f(first, rows) for register-tile groups of the item's rows of nearly equal size.
template <class F>
HWY_INLINE void ForEachRowGroup(int num_rows, const F& f) {
  const int groups = (num_rows + kMicroRows - 1) / kMicroRows;
  for (int g = 0; g < groups; ++g) {
    const int first = num_rows * g / groups;
    f(first, num_rows * (g + 1) / groups - first);
  }
}

// The rows of one tile and of the next, and whether the values were converted to scratch.
template <typename T>
struct Tile {
  const T* rows[kTile];
  const T* next_rows[kTile];
  int next_count = -1;  // of next_rows; -1: not looked up
  bool packed = false;

  // Calls f with the values, to be indexed by position in the tile.
  template <class F>
  HWY_INLINE void VisitValues(const AttentionScratch& s, const F& f) const {
    if (packed) {
      f(StridedRows{s.values, s.dim});
    } else {
      f(static_cast<const T* const*>(rows));
    }
  }
};

// Looks up the rows at `begin` and the ones after them.
template <class View, typename T = typename View::Element>
HWY_INLINE int NextRows(const View& view, const AttentionItem& item, int begin, Tile<T>* tile) {
  const auto count_at = [&](int pos) { return std::clamp(item.max_len() - pos, 0, kTile); };
  const int count = count_at(begin);
  if (tile->next_count < 0) {
    KeyRows(view, item.seq, item.kv_head, begin, count, tile->rows);
  } else {
    std::copy_n(tile->next_rows, kTile, tile->rows);
  }
  tile->next_count = count_at(begin + kTile);
  if (tile->next_count > 0) {
    KeyRows(view, item.seq, item.kv_head, begin + kTile, tile->next_count, tile->next_rows);
  }
  return count;
}

// Makes the keys and values of `count` positions ready for the products.
template <class View, typename T = typename View::Element>
HWY_INLINE void LoadTile(const View& view, const AttentionItem& item, const AttentionScratch& s,
                         int count, bool with_keys, bool with_values, Tile<T>* tile) {
  // Converting pays when several register tiles read the values; partial vectors need the padding.
  constexpr int kPackFromRows = 2 * kMicroRows;
  const int head_dim = view.s.head_dim;
  const bool many_rows = item.num_rows() > kPackFromRows;
  if (with_keys) {
    const auto ahead = [&](int block) {
      Ahead next;
      if (many_rows) return next;
      if (with_values && block + kPackKeys <= count) {
        next.values = ContiguousBlock(tile->rows + block, head_dim, view.s.v_offset);
      }
      if (block + kPackKeys <= tile->next_count) {
        next.keys = ContiguousBlock(tile->next_rows + block, head_dim, 0);
      }
      return next;
    };
    PackKeys(tile->rows, count, head_dim, ahead, s.keys);
  }
  if (!with_values) return;
  tile->packed = many_rows || s.dim != head_dim;
  if (tile->packed) {
    PackValues(tile->rows, view.s.v_offset, count, head_dim, s.dim, s.values);
  } else {
    for (int j = 0; j < count; ++j) tile->rows[j] += view.s.v_offset;
  }
}

// Online softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022).
template <class View>
void FlashItem(const View& view, const AttentionItem& item, const AttentionScratch& s) {
  const int head_dim = view.s.head_dim;
  Tile<typename View::Element> loaded;
  for (int tile = 0; tile < item.max_len(); tile += kTile) {
    const int count = NextRows(view, item, tile, &loaded);
    LoadTile(view, item, s, count, true, true, &loaded);
    ForEachRowGroup(item.num_rows(), [&](int first, int rows) HWY_ATTR {
      float* scores = s.scores + first * kTile;
      Multiply(rows, s.q + first * s.dim, s.dim, StridedRows{s.keys, kKeyStride}, 0, head_dim,
               RoundUp(count, kLanes), true, scores, kTile);
      for (int r = first; r < first + rows; ++r) {
        const int own = std::min(kTile, item.row_len(r) - tile);
        if (own <= 0) continue;
        OnlineSoftmax(s.scores + r * kTile, own, s.max + r, s.sum + r * 16, s.acc + r * s.dim,
                      s.dim);
      }
      loaded.VisitValues(
          s, [&](const auto& b) HWY_ATTR { AddValues(item, s, scores, b, first, rows, tile); });
    });
  }
}

// Plain softmax: all scores, their maximum, all exponentials, then the values.
template <class View>
void MhaItem(const View& view, const AttentionItem& item, const AttentionScratch& s) {
  Tile<typename View::Element> loaded;
  for (int tile = 0; tile < item.max_len(); tile += kTile) {
    const int count = NextRows(view, item, tile, &loaded);
    LoadTile(view, item, s, count, true, false, &loaded);
    Multiply(item.num_rows(), s.q, s.dim, StridedRows{s.keys, kKeyStride}, 0, view.s.head_dim,
             RoundUp(count, kLanes), true, s.scores + tile, s.score_stride);
  }
  for (int r = 0; r < item.num_rows(); ++r) {
    float* scores = s.scores + r * s.score_stride;
    const int padded = PadScores(scores, item.row_len(r));
    ExpScores(scores, padded, MaxOfScores(scores, padded, s.max[r]), s.sum + r * 16);
  }
  loaded.next_count = -1;
  for (int tile = 0; tile < item.max_len(); tile += kTile) {
    const int count = NextRows(view, item, tile, &loaded);
    LoadTile(view, item, s, count, false, true, &loaded);
    loaded.VisitValues(s, [&](const auto& b) HWY_ATTR {
      AddValues(item, s, s.scores + tile, b, 0, item.num_rows(), tile);
    });
  }
}

void AttentionBlock(const AttentionArgs& args, const AttentionItem& item,
                    const AttentionScratch& s) {
  const int head_dim = args.kv.s.head_dim;
  LoadQueries(args, item, s, head_dim);
  VisitKv(args.kv, [&](const auto& view) HWY_ATTR {
    if (args.kind == AttentionKind::kMha) {
      MhaItem(view, item, s);
    } else {
      FlashItem(view, item, s);
    }
  });
  StoreOutputs(args, item, s, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(AttentionBlock);

namespace {

// Numbers the work items sequence by sequence, the longest rows of a sequence first. Find takes
// ascending indices and walks the sequences once.
class ItemList {
 public:
  ItemList(const AttnMeta& meta, int num_heads, int kv_heads, int max_rows)
      : cu_q_(meta.cu_seqlens_q.ptr<int32_t>()),
        kv_lens_(meta.kv_lens.ptr<int32_t>()),
        num_seqs_(meta.num_seqs),
        kv_heads_(kv_heads),
        group_(num_heads / kv_heads),
        heads_(std::min(group_, max_rows)),
        head_chunks_((group_ + heads_ - 1) / heads_),
        positions_(std::max(1, max_rows / group_)) {}

  int64_t CountOf(int seq) const {
    const int64_t q_len = cu_q_[seq + 1] - cu_q_[seq];
    return (q_len + positions_ - 1) / positions_ * kv_heads_ * head_chunks_;
  }

  bool Find(int64_t index, AttentionItem* item) {
    while (seq_ < num_seqs_ && index >= first_ + CountOf(seq_)) first_ += CountOf(seq_++);
    if (seq_ == num_seqs_) return false;
    const int64_t in_seq = index - first_;
    const int chunk = static_cast<int>(in_seq % head_chunks_);
    const int kv_head = static_cast<int>(in_seq / head_chunks_ % kv_heads_);
    const int64_t block_from_end = in_seq / head_chunks_ / kv_heads_;
    const int q_len = cu_q_[seq_ + 1] - cu_q_[seq_];
    const int blocks = (q_len + positions_ - 1) / positions_;
    const int begin = static_cast<int>(blocks - 1 - block_from_end) * positions_;
    item->seq = seq_;
    item->kv_head = kv_head;
    item->head = kv_head * group_ + chunk * heads_;
    item->num_heads = std::min(heads_, group_ - chunk * heads_);
    item->q_row = cu_q_[seq_] + begin;
    item->num_positions = std::min(positions_, q_len - begin);
    item->len = kv_lens_[seq_] - q_len + begin + 1;
    return true;
  }

 private:
  const int32_t* cu_q_;
  const int32_t* kv_lens_;
  int num_seqs_, kv_heads_, group_, heads_, head_chunks_, positions_;
  int seq_ = 0;
  int64_t first_ = 0;  // index of the first item of seq_
};

}  // namespace

size_t AttentionScratchBytes(AttentionKind kind, int max_context) {
  AttentionScratch scratch;
  return scratch.Carve(nullptr, kind, kMaxHeadDim, max_context) * sizeof(float);
}

void Attention(ThreadPool& pool, AttentionKind kind, void* scratch, size_t scratch_stride,
               int max_context, Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta,
               float scale) {
  const auto block = HWY_DYNAMIC_DISPATCH(AttentionBlock);
  const int head_dim = kv.s.head_dim;
  const int num_heads = static_cast<int>(q.shape[1]) / head_dim;
  const AttentionArgs args{kind, out, q, kv, scale};
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    AttentionScratch s;
    s.Carve(reinterpret_cast<float*>(static_cast<char*>(scratch) + thread * scratch_stride), kind,
            head_dim, max_context);
    ItemList items(meta, num_heads, kv.kv_heads, MaxRows(kind));
    AttentionItem item;
    while (items.Find(next.fetch_add(1, std::memory_order_relaxed), &item)) block(args, item, s);
  };
  // A short chat's step is over before another thread is awake.
  constexpr int64_t kMinParallelScores = 2048;
  int64_t scores = 0;
  for (int s = 0; s < meta.num_seqs; ++s) {
    const int32_t* cu_q = meta.cu_seqlens_q.ptr<int32_t>();
    scores += int64_t{1} * (cu_q[s + 1] - cu_q[s]) * meta.kv_lens.ptr<int32_t>()[s] * num_heads;
  }
  if (scores < kMinParallelScores || pool.size() == 1) {
    work(0);
  } else {
    pool.Run(work);
  }
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
