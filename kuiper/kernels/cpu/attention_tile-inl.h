// Tiles of the KV cache for attention: where the keys and values of a tile lie, and converted
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
  ForEachPage(view.page_size(), tile + keys.begin, tile + keys.end, [&](int pos, int n) HWY_ATTR {
    Row row = view.Key(seq, pos, kv_head);
    for (int i = 0; i < n; ++i, row = view.Next(row)) rows[pos - tile + i] = row;
  });
}

// --- rows in scratch --------------------------------------------------------------------------

// Rows whose products are those of pairs (attention_pairs.h).
template <class Row>
constexpr bool kTakesPairs = IsPaired(DTypeOf<typename Row::Unit>::value);

// Rows of floats of eight bits, which are read as they lie or widened to BF16 in scratch.
template <class Row>
constexpr bool kIsCodes = kTakesPairs<Row> && !std::is_same_v<typename Row::Unit, BFloat16>;

// Rows whose products are those of integers (attention_int8.h).
template <class Row>
constexpr bool kIsInt8 = std::is_same_v<typename Row::Unit, int8_t>;

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

// What multiplies and packs the values.
template <class Row>
HWY_INLINE const auto& ProductsOf(const AttentionCall& call) {
  if constexpr (kIsInt8<Row>) {
    return call.int8;
  } else {
    return call.pairs;
  }
}

// Calls f with the rows of each kv head of the item and their memory.
template <class F>
HWY_INLINE void ForEachKvHead(const AttentionItem& item, const AttentionScratch& s, const F& f) {
  for (int i = 0; i < item.num_kv_heads; ++i) f(item.OfKvHead(i), s.From(i * item.num_rows()));
}

// The rows of one tile, their scales, and whether the values were converted to scratch. Arrays of
// rows go on up to `fetched`, with rows that are needed next.
template <class Row>
struct Tile {
  KeyRange keys;  // that the item sees, from the start of the tile
  Row rows[kTile + kMaxAhead];
  int ahead = 0;                 // rows to fetch in advance
  RangeFetcher* next = nullptr;  // or what to fetch
  int fetched = 0;               // the last panel of keys; with `ahead` kMaxAhead behind it
  bool packed = false;           // values
  bool keys_packed = false;      // keys
  // The products of rows where they lie. Those of eight bits are not copied if as_codes is set.
  bool as_codes = false;
  const DotFn* dots = nullptr;
  PairKernel::RowsFn multiply_pairs = nullptr;
  // For the products. Keys: repeats of the first fill a group of kPanelRows. Values, of pairs only:
  // zeros at both ends fill pairs.
  const uint8_t* key_rows[kTile + kMaxAhead];
  const uint8_t* value_rows[kTile + kMaxAhead];
  // Of rows with scales, for the keys of the tile that are loaded; zeros beside them.
  float key_scales[Row::kIsScaled ? kTile : 1];
  float value_scales[Row::kIsScaled ? kTile : 1];

  // Scores of elements to scores of keys, and weights of values to weights of elements; `scores` is
  // the tile's first column and `seen` a part of its keys.
  HWY_INLINE void ScaleByKeys(float* scores, KeyRange seen, float q_factor) const {
    if constexpr (Row::kIsScaled) ScaleScores(scores, seen, key_scales, q_factor);
  }
  HWY_INLINE void ScaleByValues(float* weights, KeyRange seen) const {
    if constexpr (Row::kIsScaled) {
      ScaleScores(weights, seen, value_scales, 1.0f);
      // Of a pair a row may see one key; the other one's scale need not be finite.
      std::fill(weights + seen.begin / 16 * 16, weights + seen.begin, 0.0f);
      std::fill(weights + seen.end, weights + RoundUp(seen.end, 16), 0.0f);
    }
  }

  // Calls f with the values, to be indexed by position in the tile.
  template <class F>
  HWY_INLINE void VisitValues(const AttentionScratch& s, const F& f) const {
    if (packed) {
      f(StridedRows{s.values, s.dim});
    } else {
      f(StoredRows<Row>{rows, ahead, next});
    }
  }
};

// Looks up the rows of the tile at position `begin`, and some after them unless `next` is fetched.
template <class View>
HWY_INLINE void FindRows(const View& view, const AttentionItem& item, int begin, RangeFetcher* next,
                         Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const KeyRange all = item.keys();
  tile->keys = InTile(all, begin);
  // Many rows have the whole tile fetched while they multiply the one before.
  tile->ahead = item.num_rows() > kFewRows || next != nullptr ? 0
                : sizeof(typename Row::Unit) == 1             ? kMaxAhead
                                                              : kMaxAhead / 2;
  tile->next = next;
  tile->fetched =
      static_cast<int>(RoundUp(tile->keys.end, kPanelRows)) + (tile->ahead > 0 ? kMaxAhead : 0);
  const int end = std::min(all.end - begin, tile->fetched);
  KeyRows(view, item.seq, item.kv_head, begin, {tile->keys.begin, end}, tile->rows);
  std::fill(tile->rows + end, tile->rows + tile->fetched, tile->rows[end - 1]);
  if constexpr (Row::kHasScale) {
    // Scales are needed before the products; a line has 16 of them.
    const int end_of_next = std::min(all.end, begin + 2 * kTile);
    for (int pos = begin + kTile; tile->ahead > 0 && pos < end_of_next; pos += 16) {
      const Row key = view.Key(item.seq, pos, item.kv_head);
      hwy::Prefetch(key.scale);
      hwy::Prefetch(view.ValueOf(key).scale);
    }
  }
}

// Fetches the row that ahead() gives, or as many lines of `next`.
template <class Row, class F>
HWY_INLINE void FetchBeside(const Tile<Row>& tile, int head_dim, const F& ahead) {
  const auto lines = (head_dim * static_cast<int64_t>(sizeof(typename Row::Unit)) + 63) / 64;
  if (tile.next != nullptr) tile.next->Fetch(lines);
  if (tile.ahead == 0) return;
  const auto* data = reinterpret_cast<const char*>(ahead().data);
  for (int64_t i = 0; i < lines; ++i) hwy::Prefetch(data + i * 64);
}

// scales[j] = that of row_of(j) for j in `keys`.
template <class F>
HWY_INLINE void GatherScales(KeyRange keys, const F& row_of, float* scales) {
  std::fill_n(scales, kTile, 0.0f);
  for (int j = keys.begin; j < keys.end; ++j) scales[j] = row_of(j).Scale();
}

// The value of a key that is not there.
HWY_INLINE const uint8_t* ZeroRow() {
  alignas(64) static constexpr uint8_t kZeros[kMaxHeadDim * sizeof(BFloat16)] = {};
  return kZeros;
}

// The row as BF16 in scratch, padded with zeros to `dim`. The elements are exact in it: their upper
// halves are all there is.
template <class Row>
HWY_INLINE const uint8_t* Copied(Row row, int head_dim, int64_t dim, float* scratch) {
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

// The codes of a row in scratch, padded with zeros to `dim`.
HWY_INLINE const uint8_t* Copied(KvRow<int8_t> row, int head_dim, int64_t dim, float* scratch) {
  auto* codes = reinterpret_cast<uint8_t*>(scratch);
  std::memcpy(codes, row.data, head_dim);
  std::memset(codes + head_dim, 0, dim - head_dim);
  return codes;
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
    tile->key_rows[j] = reinterpret_cast<const uint8_t*>(tile->rows[j].data);
  }
  if constexpr (kIsCodes<Row> || kIsInt8<Row>) {
    if (!tile->as_codes) {
      for (int j = keys.begin; j < keys.end; ++j) {
        FetchBeside(*tile, head_dim, [&] { return tile->rows[j + tile->ahead]; });
        tile->key_rows[j] = Copied(tile->rows[j], head_dim, s.dim, s.keys + j * s.dim / 2);
      }
      std::fill(tile->key_rows + keys.end, tile->key_rows + tile->fetched,
                tile->key_rows[keys.end - 1]);
    }
  }
  const int first = keys.begin / kPanelRows * kPanelRows;
  std::fill(tile->key_rows + first, tile->key_rows + keys.begin, tile->key_rows[keys.begin]);
}

// The keys of the tile as panels of outer products, or as columns of pairs of integers.
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

// Makes the values of the tile ready for the products; tile->rows become theirs where they are read
// as they lie.
template <class View>
HWY_INLINE void LoadValues(const AttentionCall& call, const View& view, const AttentionItem& item,
                           const AttentionScratch& s, Tile<typename View::Row>* tile) {
  using Row = typename View::Row;
  const int head_dim = view.head_dim();
  const KeyRange keys = tile->keys;
  const auto value = [&](int j) { return view.ValueOf(tile->rows[j]); };
  if constexpr (Row::kIsScaled) GatherScales(keys, value, tile->value_scales);
  // Converting pays when several register tiles read the values; partial vectors need the padding.
  const bool many_rows = item.num_rows() > kFewRows;
  if constexpr (kTakesPairs<Row> || kIsInt8<Row>) {
    constexpr bool kHasBytes = sizeof(typename Row::Unit) == 1;
    const bool as_it_lies = kHasBytes ? tile->as_codes : s.dim == head_dim;
    tile->value_rows[keys.begin / 2 * 2] = ZeroRow();
    for (int j = keys.begin; j < (as_it_lies ? tile->fetched : keys.end); ++j) {
      if (as_it_lies) {
        tile->value_rows[j] = reinterpret_cast<const uint8_t*>(value(j).data);
        continue;
      }
      FetchBeside(*tile, head_dim, [&] { return value(j + tile->ahead); });
      tile->value_rows[j] = Copied(value(j), head_dim, s.dim, s.wide_values() + j * s.dim / 2);
    }
    if (!as_it_lies)
      std::fill(tile->value_rows + keys.end, tile->value_rows + tile->fetched, ZeroRow());
    if (keys.end % 2 != 0) tile->value_rows[keys.end] = ZeroRow();
    tile->packed = many_rows;
    if (!many_rows) return;
    using Element = std::conditional_t<kIsInt8<Row>, int8_t, BFloat16>;
    const auto row = [&](int i) { return reinterpret_cast<const Element*>(tile->value_rows[i]); };
    const auto& kernel = ProductsOf<Row>(call);
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
