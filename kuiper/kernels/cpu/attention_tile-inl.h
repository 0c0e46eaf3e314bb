// Tiles of the KV cache for attention: where the keys and values of a tile lie, converted copies of
// them in scratch, what to fetch for decode. Included once per instruction set
// (hwy/foreach_target.h).
#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_math-inl.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/linear_kernel.h"
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

// rows[i] = the key at position tile + i for i in `keys`, with one table look-up per page.
template <class View, class Row = typename View::Row>
HWY_INLINE void KeyRows(const View& view, int seq, int kv_head, int tile, KeyRange keys,
                        Row* rows) {
  const int tokens = view.page_size();
  for (int pos = tile + keys.begin; pos < tile + keys.end;) {
    const int run_end = std::min(tile + keys.end, pos - pos % tokens + tokens);
    Row row = view.Key(seq, pos, kv_head);
    for (; pos < run_end; ++pos, row = view.Next(row)) rows[pos - tile] = row;
  }
}

// --- rows in scratch --------------------------------------------------------------------------

// Rows whose products are those of pairs (attention_pairs.h).
template <class Row>
constexpr bool kTakesPairs = IsPaired(DTypeOf<typename Row::Unit>::value);

// Rows that become BF16 in scratch before they are multiplied.
template <class Row>
constexpr bool kIsWidened = kTakesPairs<Row> && !std::is_same_v<typename Row::Unit, BFloat16>;

// values[j] = the elements of the value of key j for j in `range`, padded with zeros to `dim`.
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

// Whether a tile of few rows fetches the next one, keys and values in the order of their addresses:
// memory reads the 8 KB of a head in a page of 16 tokens faster than twice 4 KB at different
// moments. Pages of one token became slower; of two, and with AVX-512, nobody measured it.
template <class View>
HWY_INLINE bool FetchesInOrder(const View& view) {
  constexpr int kMinTokens = 4;  // of a page
  return HWY_TARGET != HWY_AVX3 && view.page_size() >= kMinTokens;
}

// The rows of one tile, their scales, and whether the values were converted to scratch. Arrays of
// rows go on up to `fetched`, with rows that are needed next.
template <class Row>
struct Tile {
  KeyRange keys;  // that the item sees, from the start of the tile
  Row rows[kTile + kMaxAhead];
  int ahead = 0;             // rows to fetch in advance
  int fetched = 0;           // kMaxAhead behind the last panel of keys
  bool packed = false;       // values
  bool keys_packed = false;  // keys
  // For the products. Keys: repeats of the first fill a group of kPanelRows. Values, of pairs only:
  // zeros at both ends fill pairs.
  const uint8_t* key_rows[kTile + kMaxAhead];
  const uint16_t* value_rows[kTile + kMaxAhead];
  // What the products of this tile fetch of the next one, unless they fetch `ahead`.
  const uint8_t* next_rows[2 * kTile];
  mutable RowFetcher next;
  // Of rows with scales, for the keys of the tile that are loaded; zeros beside them.
  float key_scales[Row::kIsScaled ? kTile : 1];
  float value_scales[Row::kIsScaled ? kTile : 1];

  // Scores of elements to scores of keys, and weights of values to weights of elements; `scores` is
  // the tile's first column and `seen` a part of its keys.
  HWY_INLINE void ScaleByKeys(float* scores, KeyRange seen) const {
    if constexpr (Row::kIsScaled) ScaleScores(scores, seen, key_scales);
  }
  HWY_INLINE void ScaleByValues(float* weights, KeyRange seen) const {
    if constexpr (Row::kIsScaled) ScaleScores(weights, seen, value_scales);
  }

  RowFetcher* Next() const { return next.rows != nullptr ? &next : nullptr; }

  // Calls f with the values, to be indexed by position in the tile.
  template <class F>
  HWY_INLINE void VisitValues(const AttentionScratch& s, const F& f) const {
    if (packed) {
      f(StridedRows{s.values, s.dim});
    } else {
      f(StoredRows<Row>{rows, ahead, Next()});
    }
  }
};

// Looks up the rows of the tile at position `begin` and some after them.
template <class View>
HWY_INLINE void FindRows(const View& view, const AttentionItem& item, int begin,
                         Tile<typename View::Row>* tile) {
  const KeyRange all = item.keys();
  tile->keys = InTile(all, begin);
  tile->fetched = static_cast<int>(RoundUp(tile->keys.end, kPanelRows)) + kMaxAhead;
  const int end = std::min(all.end - begin, tile->fetched);
  KeyRows(view, item.seq, item.kv_head, begin, {tile->keys.begin, end}, tile->rows);
  std::fill(tile->rows + end, tile->rows + tile->fetched, tile->rows[end - 1]);
  // While many rows use a tile, the memory has time enough.
  using Row = typename View::Row;
  tile->ahead = item.num_rows() > kFewRows        ? 0
                : sizeof(typename Row::Unit) == 1 ? kMaxAhead
                                                  : kMaxAhead / 2;
  if constexpr (Row::kHasScale) {
    // Scales are needed before the products; a line has 16 of them.
    const int next = begin + kTile, next_end = std::min(all.end, next + kTile);
    for (int pos = next; tile->ahead > 0 && pos < next_end; pos += 16) {
      const Row key = view.Key(item.seq, pos, item.kv_head);
      hwy::Prefetch(key.scale);
      hwy::Prefetch(view.ValueOf(key).scale);
    }
  }
}

// The rows of the tile at position `begin`, for the one before it to fetch.
template <class View>
HWY_INLINE void FindNextRows(const View& view, const AttentionItem& item, int begin,
                             Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const int tokens = view.page_size(), end = std::min(item.keys().end, begin + kTile);
  int count = 0;
  for (int pos = begin, run_end; pos < end; pos = run_end) {
    run_end = std::min(end, pos - pos % tokens + tokens);
    const Row key = view.Key(item.seq, pos, item.kv_head);
    for (Row row : {key, view.ValueOf(key)}) {
      for (int i = pos; i < run_end; ++i, row = view.Next(row)) {
        tile->next_rows[count++] = reinterpret_cast<const uint8_t*>(row.data);
      }
    }
  }
  const auto bytes = static_cast<int>(view.head_dim() * sizeof(typename Row::Unit));
  tile->next = {tile->next_rows, count, (bytes + 63) / 64};
  tile->ahead = 0;
}

// The bytes of a row into the cache.
template <class Row>
HWY_INLINE void Fetch(Row row, int head_dim) {
  const auto* data = reinterpret_cast<const char*>(row.data);
  const auto bytes = static_cast<int64_t>(head_dim * sizeof(*row.data));
  for (int64_t i = 0; i < bytes; i += 64) hwy::Prefetch(data + i);
}

// scales[j] = that of row_of(j) for j in `keys`.
template <class F>
HWY_INLINE void GatherScales(KeyRange keys, const F& row_of, float* scales) {
  std::fill_n(scales, kTile, 0.0f);
  for (int j = keys.begin; j < keys.end; ++j) scales[j] = row_of(j).Scale();
}

// The value of a key that is not there.
HWY_INLINE const uint16_t* ZeroRow() {
  alignas(64) static constexpr uint16_t kZeros[kMaxHeadDim] = {};
  return kZeros;
}

// The row as BF16 in scratch, padded with zeros to `dim`. The elements are exact in it: their upper
// halves are all there is.
template <class Row>
HWY_INLINE const void* Widened(Row row, int head_dim, int64_t dim, float* scratch) {
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
  return wide;
}

// Makes the keys of the tile ready for the products.
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
    if constexpr (kIsWidened<Row>) {
      if (j >= keys.end) break;
      if (tile->ahead > 0) Fetch(tile->rows[j + tile->ahead], head_dim);
      tile->next.Fetch(tile->next.lines);
      tile->key_rows[j] = static_cast<const uint8_t*>(
          Widened(tile->rows[j], head_dim, s.dim, s.keys + j * s.dim / 2));
    } else {
      tile->key_rows[j] = reinterpret_cast<const uint8_t*>(tile->rows[j].data);
    }
  }
  const int first = keys.begin / kPanelRows * kPanelRows;
  std::fill(tile->key_rows + first, tile->key_rows + keys.begin, tile->key_rows[keys.begin]);
  if (kIsWidened<Row>) {
    std::fill(tile->key_rows + keys.end, tile->key_rows + tile->fetched,
              tile->key_rows[keys.end - 1]);
  }
}

// The keys of the tile as panels of outer products.
template <class Row>
void PackKeys(const LinearKernel& kernel, int head_dim, const AttentionScratch& s,
              Tile<Row>* tile) {
  const uint8_t** const rows = tile->key_rows;
  std::fill(rows, rows + tile->keys.begin, rows[tile->keys.begin]);
  const int width = kernel.outer_columns;
  const size_t stride = kernel.PanelStride(head_dim, width);
  for (int column = 0; column < tile->keys.end; column += width) {
    kernel.pack_scattered(
        rows + column, std::min(width, tile->keys.end - column), head_dim,
        reinterpret_cast<uint8_t*>(s.panels) + column / width * kSumLanes * stride, stride);
  }
}

// Makes the values of the tile ready for the products; tile->rows become theirs where they are read
// as they lie.
template <class View>
HWY_INLINE void LoadValues(const View& view, const AttentionItem& item, const AttentionScratch& s,
                           [[maybe_unused]] const PairKernel& pairs,
                           Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const int head_dim = view.head_dim();
  const KeyRange keys = tile->keys;
  const auto value = [&](int j) { return view.ValueOf(tile->rows[j]); };
  if constexpr (Row::kIsScaled) GatherScales(keys, value, tile->value_scales);
  // Converting pays when several register tiles read the values; partial vectors need the padding.
  const bool many_rows = item.num_rows() > kFewRows;
  if constexpr (kTakesPairs<Row>) {
    const bool as_it_lies = !kIsWidened<Row> && s.dim == head_dim;
    tile->value_rows[keys.begin / 2 * 2] = ZeroRow();
    for (int j = keys.begin; j < (as_it_lies ? tile->fetched : keys.end); ++j) {
      if (as_it_lies) {
        tile->value_rows[j] = reinterpret_cast<const uint16_t*>(value(j).data);
        continue;
      }
      if (tile->ahead > 0) Fetch(value(j + tile->ahead), head_dim);
      tile->next.Fetch(tile->next.lines);
      tile->value_rows[j] = static_cast<const uint16_t*>(
          Widened(value(j), head_dim, s.dim, s.wide_values() + j * s.dim / 2));
    }
    if (!as_it_lies)
      std::fill(tile->value_rows + keys.end, tile->value_rows + tile->fetched, ZeroRow());
    if (keys.end % 2 != 0) tile->value_rows[keys.end] = ZeroRow();
    tile->packed = many_rows;
    if (!many_rows) return;
    for (int k = keys.begin / 2; k < (keys.end + 1) / 2; ++k) {
      pairs.pack(tile->value_rows[2 * k], tile->value_rows[2 * k + 1], s.dim,
                 s.pairs() + k * s.dim);
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
