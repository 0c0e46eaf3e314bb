// Tiles of the KV cache for attention: the addresses of a tile's keys and values, and converted
// copies of them in scratch. Included once per instruction set (hwy/foreach_target.h).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_fetch-inl.h"
#include "kuiper/kernels/cpu/attention_int8_model-inl.h"
#include "kuiper/kernels/cpu/attention_math-inl.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/ops/kv_view.h"

#if defined(KUIPER_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef KUIPER_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define KUIPER_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// rows[i] = the key at position tile + i for i in `keys`. Looks up the block table once per page.
template <class View, class Row = typename View::Row>
HWY_INLINE void KeyRows(const View& view, int seq, int kv_head, int tile, KeyRange keys,
                        Row* rows) {
  ForEachPage(view.page_size(), tile + keys.begin, tile + keys.end, [&](int pos, int n) HWY_ATTR {
    Row row = view.Key(seq, pos, kv_head);
    for (int i = 0; i < n; ++i, row = view.Next(row)) rows[pos - tile + i] = row;
  });
}

// --- rows in scratch --------------------------------------------------------------------------

// True for rows that are multiplied in BF16 pairs (attention_pairs.h).
template <class Row>
constexpr bool kUsesBf16Pairs = IsPaired(DTypeOf<typename Row::Unit>::value);

// True for FP8 rows, which are read in place or converted to BF16 in scratch.
template <class Row>
constexpr bool kIsFloat8 = kUsesBf16Pairs<Row> && !std::is_same_v<typename Row::Unit, BFloat16>;

// True for rows that are multiplied in integers (attention_int8.h).
template <class Row>
constexpr bool kIsInt8 = std::is_same_v<typename Row::Unit, int8_t>;

// values[j] = the elements of the value of key j, as FP32, for j in `range`; padded with zeros to
// `dim`.
template <class View, class Row = typename View::Row>
void PackValues(const View& view, const Row* keys, KeyRange range, int64_t dim, float* values) {
  const int head_dim = view.head_dim();
  for (int j = range.begin; j < range.end; ++j) {
    const Row row = view.ValueOf(keys[j]);
    MapElements(values + j * dim, head_dim, [&](auto load) HWY_ATTR { return load(row); });
    std::fill(values + j * dim + head_dim, values + (j + 1) * dim, 0.0f);
  }
}

// --- one tile of an item ----------------------------------------------------------------------

// Returns the kernel that multiplies and packs the values.
template <class Row>
HWY_INLINE const auto& ValueKernel(const AttentionCall& call) {
  if constexpr (kIsInt8<Row>) {
    return call.int8;
  } else {
    return call.pairs;
  }
}

// Calls f with the query rows of each kv head of the item and their scratch memory.
template <class F>
HWY_INLINE void ForEachKvHead(const AttentionItem& item, const AttentionScratch& s, const F& f) {
  for (int i = 0; i < item.num_kv_heads; ++i) f(item.ForKvHead(i), s.From(i * item.num_rows()));
}

// The KV rows of one tile, their scales, and whether the values were converted to scratch. Arrays
// of rows extend to `fetched`, with the rows that are needed next.
template <class Row>
struct Tile {
  KeyRange keys;  // keys the item attends to, counted from the start of the tile
  Row rows[kTile + kMaxPrefetchedRows];
  int ahead = 0;                    // reading a row prefetches the row this much later; 0 if none
  RangePrefetcher* next = nullptr;  // if not null, prefetched instead
  int fetched = 0;           // end of the last panel of keys, plus kMaxPrefetchedRows if ahead > 0
  bool packed = false;       // values are packed in scratch
  bool keys_packed = false;  // keys are packed in scratch
  // Kernels for rows in place. Rows of 8-bit elements are not copied if reads_in_place is set.
  bool reads_in_place = false;
  const DotFn* dots = nullptr;
  PairKernel::RowsFn multiply_pairs = nullptr;
  // Operands of the products. Keys: repeats of the first and last key complete groups of
  // kPanelRows. Values are set for pairs and integers only; zeros at both ends complete pairs.
  const uint8_t* key_rows[kTile + kMaxPrefetchedRows];
  const uint8_t* value_rows[kTile + kMaxPrefetchedRows];
  // Scales of the loaded keys and their values (formats with scales only); 0 elsewhere.
  float key_scales[Row::kIsScaled ? kTile : 1];
  float value_scales[Row::kIsScaled ? kTile : 1];

  // ScaleByKeys multiplies scores by the scales of their keys and by q_factor. ScaleByValues
  // multiplies softmax weights by the scales of their values. The pointer is to the tile's first
  // column; `seen` is a part of the tile's keys.
  HWY_INLINE void ScaleByKeys(float* scores, KeyRange seen, float q_factor) const {
    if constexpr (Row::kIsScaled) ScaleScores(scores, seen, key_scales, q_factor);
  }
  HWY_INLINE void ScaleByValues(float* weights, KeyRange seen) const {
    if constexpr (Row::kIsScaled) {
      ScaleScores(weights, seen, value_scales, 1.0f);
      // A row may attend to one key of a pair only; the scale of the other need not be finite.
      std::fill(weights + seen.begin / 16 * 16, weights + seen.begin, 0.0f);
      std::fill(weights + seen.end, weights + RoundUp(seen.end, 16), 0.0f);
    }
  }

  // Calls f with the values, indexed by position in the tile.
  template <class F>
  HWY_INLINE void VisitValues(const AttentionScratch& s, const F& f) const {
    if (packed) {
      f(StridedRows{s.values, s.dim});
    } else {
      f(StoredRows<Row>{rows, ahead, next});
    }
  }
};

// Looks up the rows of the tile at position `begin`, and some later rows to prefetch unless `next`
// is prefetched instead.
template <class View>
HWY_INLINE void FindRows(const View& view, const AttentionItem& item, int begin,
                         RangePrefetcher* next, Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const KeyRange all = item.keys();
  tile->keys = InTile(all, begin);
  // With many query rows, TilePrefetcher prefetches the whole tile during the previous one.
  tile->ahead = item.num_rows() > kFewRows || next != nullptr ? 0
                : sizeof(typename Row::Unit) == 1             ? kMaxPrefetchedRows
                                                              : kMaxPrefetchedRows / 2;
  tile->next = next;
  tile->fetched = static_cast<int>(RoundUp(tile->keys.end, kPanelRows)) +
                  (tile->ahead > 0 ? kMaxPrefetchedRows : 0);
  const int end = std::min(all.end - begin, tile->fetched);
  KeyRows(view, item.seq, item.kv_head, begin, {tile->keys.begin, end}, tile->rows);
  std::fill(tile->rows + end, tile->rows + tile->fetched, tile->rows[end - 1]);
  if constexpr (Row::kHasScale) {
    // Scales are needed before the products; a cache line holds 16 of them.
    const int end_of_next = std::min(all.end, begin + 2 * kTile);
    for (int pos = begin + kTile; tile->ahead > 0 && pos < end_of_next; pos += 16) {
      const Row key = view.Key(item.seq, pos, item.kv_head);
      hwy::Prefetch(key.scale);
      hwy::Prefetch(view.ValueOf(key).scale);
    }
  }
}

// Prefetches the row that ahead() returns, or the same number of cache lines of `next`.
template <class Row, class F>
HWY_INLINE void PrefetchRowOrLines(const Tile<Row>& tile, int head_dim, const F& ahead) {
  const auto lines = (head_dim * static_cast<int64_t>(sizeof(typename Row::Unit)) + 63) / 64;
  if (tile.next != nullptr) tile.next->Fetch(lines);
  if (tile.ahead == 0) return;
  const auto* data = reinterpret_cast<const char*>(ahead().data);
  for (int64_t i = 0; i < lines; ++i) hwy::Prefetch(data + i * 64);
}

// scales[j] = the scale of row_of(j) for j in `keys`, 0 for other j in the tile.
template <class F>
HWY_INLINE void GatherScales(KeyRange keys, const F& row_of, float* scales) {
  std::fill_n(scales, kTile, 0.0f);
  for (int j = keys.begin; j < keys.end; ++j) scales[j] = row_of(j).Scale();
}

// A row of zeros: the value of a missing key.
HWY_INLINE const uint8_t* ZeroRow() {
  alignas(64) static constexpr uint8_t kZeros[kMaxHeadDim * sizeof(BFloat16)] = {};
  return kZeros;
}

// Copies the row to scratch as BF16, padded with zeros to `dim`, and returns the copy. BF16 is
// exact here: the lower half of each FP32 element is zero.
template <class Row>
HWY_INLINE const uint8_t* CopyToScratch(Row row, int head_dim, int64_t dim, float* scratch) {
  const hn::RebindToUnsigned<DF> d32;
  const hn::Rebind<uint16_t, DF> d16;
  auto* wide = reinterpret_cast<uint16_t*>(scratch);
  const auto store = [&](VF v, int i) HWY_ATTR {
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(hn::BitCast(d32, v))), d16, wide + i);
  };
  int i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<uint16_t, DF> both;
  for (; i + 2 * kLanes <= head_dim; i += 2 * kLanes) {
    const auto low = hn::BitCast(both, LoadF32(DF(), row + i));
    const auto high = hn::BitCast(both, LoadF32(DF(), row + i + kLanes));
    hn::StoreU(hn::ConcatOdd(both, high, low), both, wide + i);
  }
#endif
  for (; i + kLanes <= head_dim; i += kLanes) store(LoadF32(DF(), row + i), i);
  if (i < head_dim) {
    store(LoadPartial(DF(), row + i, head_dim - i), i);
    i += kLanes;
  }
  std::fill(wide + i, wide + dim, uint16_t{0});
  return reinterpret_cast<const uint8_t*>(wide);
}

// Copies an INT8 row to scratch, padded with zeros to `dim`, and returns the copy.
HWY_INLINE const uint8_t* CopyToScratch(KvRow<int8_t> row, int head_dim, int64_t dim,
                                        float* scratch) {
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  std::memcpy(codes, row.data, head_dim);
  std::memset(codes + head_dim, 0, dim - head_dim);
  return codes;
}

// Prepares the keys of the tile for the products.
template <class View>
HWY_INLINE void LoadKeys(const View& view, const AttentionScratch& s,
                         Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const int head_dim = view.head_dim();
  const KeyRange keys = tile->keys;
  if constexpr (Row::kIsScaled)
    GatherScales(
        keys, [&](int j) { return tile->rows[j]; }, tile->key_scales);
  for (int j = keys.begin; j < tile->fetched; ++j) {
    tile->key_rows[j] = reinterpret_cast<const uint8_t*>(tile->rows[j].data);
  }
  if constexpr (kIsFloat8<Row> || kIsInt8<Row>) {
    if (!tile->reads_in_place) {
      for (int j = keys.begin; j < keys.end; ++j) {
        PrefetchRowOrLines(*tile, head_dim, [&] { return tile->rows[j + tile->ahead]; });
        tile->key_rows[j] = CopyToScratch(tile->rows[j], head_dim, s.dim, s.keys + j * s.dim / 2);
      }
      std::fill(tile->key_rows + keys.end, tile->key_rows + tile->fetched,
                tile->key_rows[keys.end - 1]);
    }
  }
  const int first = keys.begin / kPanelRows * kPanelRows;
  std::fill(tile->key_rows + first, tile->key_rows + keys.begin, tile->key_rows[keys.begin]);
}

// Packs the keys of the tile as panels for outer products, or as columns of INT8 pairs.
template <class Row>
void PackKeys(const LinearKernel& kernel, int head_dim, const AttentionScratch& s,
              Tile<Row>* tile) {
  const uint8_t** const rows = tile->key_rows;
  std::fill(rows, rows + tile->keys.begin, rows[tile->keys.begin]);
  if constexpr (kIsInt8<Row>) {
    const int count = static_cast<int>(RoundUp(tile->keys.end, kPairColumns));
    std::fill(rows + tile->keys.end, rows + count, rows[tile->keys.begin]);
    return PackCodeColumns(rows, count, s.dim, reinterpret_cast<uint32_t*>(s.panels));
  }
  const int width = kernel.outer_columns;
  const size_t stride = kernel.PanelStride(kernel.PackedWords(head_dim), width);
  for (int column = 0; column < tile->keys.end; column += width) {
    kernel.pack_scattered(
        rows + column, std::min(width, tile->keys.end - column), head_dim,
        reinterpret_cast<uint8_t*>(s.panels) + column / width * kSumLanes * stride, stride);
  }
}

// Prepares the values of the tile for the products. If FP32 or FP16 values are read in place,
// replaces the keys in tile->rows by them.
template <class View>
HWY_INLINE void LoadValues(const AttentionCall& call, const View& view, const AttentionItem& item,
                           const AttentionScratch& s, Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const int head_dim = view.head_dim();
  const KeyRange keys = tile->keys;
  const auto value = [&](int j) { return view.ValueOf(tile->rows[j]); };
  if constexpr (Row::kIsScaled) GatherScales(keys, value, tile->value_scales);
  // Converting is worth it if several register tiles read the values; partial vectors need padding.
  const bool many_rows = item.num_rows() > kFewRows;
  if constexpr (kUsesBf16Pairs<Row> || kIsInt8<Row>) {
    constexpr bool kHasBytes = sizeof(typename Row::Unit) == 1;
    const bool as_it_lies = kHasBytes ? tile->reads_in_place : s.dim == head_dim;
    tile->value_rows[keys.begin / 2 * 2] = ZeroRow();
    for (int j = keys.begin; j < (as_it_lies ? tile->fetched : keys.end); ++j) {
      if (as_it_lies) {
        tile->value_rows[j] = reinterpret_cast<const uint8_t*>(value(j).data);
        continue;
      }
      PrefetchRowOrLines(*tile, head_dim, [&] { return value(j + tile->ahead); });
      tile->value_rows[j] =
          CopyToScratch(value(j), head_dim, s.dim, s.copied_values() + j * s.dim / 2);
    }
    if (!as_it_lies)
      std::fill(tile->value_rows + keys.end, tile->value_rows + tile->fetched, ZeroRow());
    if (keys.end % 2 != 0) tile->value_rows[keys.end] = ZeroRow();
    tile->packed = many_rows;
    if (!many_rows) return;
    using Element = std::conditional_t<kIsInt8<Row>, int8_t, BFloat16>;
    const auto row = [&](int i) { return reinterpret_cast<const Element*>(tile->value_rows[i]); };
    const auto& kernel = ValueKernel<Row>(call);
    for (int k = keys.begin / 2; k < (keys.end + 1) / 2; ++k) {
      kernel.pack(row(2 * k), row(2 * k + 1), s.dim, s.pairs() + k * s.dim);
    }
    return;
  }
  tile->packed = many_rows || s.dim != head_dim;
  if (tile->packed) {
    PackValues(view, tile->rows, keys, s.dim, s.values);
  } else {
    for (int j = keys.begin; j < tile->fetched; ++j) tile->rows[j] = value(j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
