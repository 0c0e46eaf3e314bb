// Tiles of the KV cache for attention: where the keys of a tile lie, keys transposed and values
// converted to FP32 scratch, prefetches for decode. Included once per instruction set
// (hwy/foreach_target.h).
#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_math-inl.h"
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

// rows[i] = the key at position tile + i for i in `keys`, with one table look-up per page. Repeats
// of the first and of the last one fill groups of kPackKeys.
template <class View, class Row = typename View::Row>
HWY_INLINE void KeyRows(const View& view, int seq, int kv_head, int tile, KeyRange keys,
                        Row* rows) {
  const int tokens = view.page_size();
  for (int pos = tile + keys.begin; pos < tile + keys.end;) {
    const int run_end = std::min(tile + keys.end, pos - pos % tokens + tokens);
    Row row = view.Key(seq, pos, kv_head);
    for (; pos < run_end; ++pos, row = view.Next(row)) rows[pos - tile] = row;
  }
  for (int i = keys.begin / kPackKeys * kPackKeys; i < keys.begin; ++i) rows[i] = rows[keys.begin];
  for (int i = keys.end; i % kPackKeys != 0; ++i) rows[i] = rows[keys.end - 1];
}

// --- keys, transposed -------------------------------------------------------------------------

using DU = hn::RebindToUnsigned<DF>;
using VU = hn::Vec<DU>;

#if HWY_TARGET != HWY_SCALAR
// 16 bytes of each of kLanes / 4 rows, `apart` of the array apart, one row per 128-bit block.
template <typename T>
HWY_INLINE VU LoadBlocks(const KvRow<T>* rows, int apart, int offset) {
  const DU d;
  const auto load = [&](int block) HWY_ATTR {
    return hn::LoadDup128(d, reinterpret_cast<const uint32_t*>(rows[block * apart].data + offset));
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

// Stores a vector of one 32-bit word per key: an FP32 element, or two or four narrower ones for as
// many rows.
HWY_INLINE void StoreWords(VU words, float* out, const float*) {
  hn::StoreU(hn::BitCast(DF(), words), DF(), out);
}
HWY_INLINE void StoreWords(VU words, float* out, const BFloat16*) {
  const DU d;
  hn::StoreU(hn::BitCast(DF(), hn::ShiftLeft<16>(words)), DF(), out);
  hn::StoreU(hn::BitCast(DF(), hn::And(words, hn::Set(d, 0xFFFF0000u))), DF(), out + kKeyStride);
}
// Two FP16 elements for rows that are `apart` of each other.
HWY_INLINE void StoreHalves(VU words, float* out, int apart) {
  const hn::Rebind<uint16_t, DU> d16;
  const auto low = hn::TruncateTo(d16, hn::And(words, hn::Set(DU(), 0xFFFFu)));
  const auto high = hn::TruncateTo(d16, hn::ShiftRight<16>(words));
  hn::StoreU(WidenHalves(DF(), low), DF(), out);
  hn::StoreU(WidenHalves(DF(), high), DF(), out + apart * kKeyStride);
}
HWY_INLINE void StoreWords(VU words, float* out, const Half*) {
  StoreHalves(words, out, 1);
}
// Both types of FP8: the even and the odd elements are two FP16 each.
template <typename T>
HWY_INLINE void StoreWords(VU words, float* out, const T* type) {
  const hn::Repartition<uint16_t, DU> d16;
  const auto codes = hn::BitCast(d16, words);
  const auto even = HalvesOf(d16, hn::ShiftLeft<8>(codes), type);
  const auto odd = HalvesOf(d16, hn::And(codes, hn::Set(d16, uint16_t{0xFF00})), type);
  StoreHalves(hn::BitCast(DU(), even), out, 2);
  StoreHalves(hn::BitCast(DU(), odd), out + kKeyStride, 2);
}
HWY_INLINE void StoreWords(VU words, float* out, const int8_t*) {
  const hn::RebindToSigned<DU> d32;
  const auto codes = hn::BitCast(d32, words);
  const auto store = [&](hn::Vec<decltype(d32)> first, int row) HWY_ATTR {
    const VF wide = hn::ConvertTo(DF(), hn::ShiftRight<24>(first));
    hn::StoreU(wide, DF(), out + row * kKeyStride);
  };
  store(hn::ShiftLeft<24>(codes), 0);
  store(hn::ShiftLeft<16>(codes), 1);
  store(hn::ShiftLeft<8>(codes), 2);
  store(codes, 3);
}

// Transposes 16 bytes of each of kLanes keys: words within the 128-bit blocks, whose four rows are
// four consecutive keys.
template <typename T>
HWY_INLINE void TransposeStep(const KvRow<T>* rows, int offset, float* out) {
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

// The bytes to fetch for decode while a block of 16 keys is transposed: each step of 16 bytes per
// key fetches as much ahead, in the order of memory. Points to the 16 vectors of one block; null
// where they are not contiguous.
struct Ahead {
  const char* keys = nullptr;
  const char* values = nullptr;
  // Scales of the block's keys and values; nobody streams through these.
  const char* key_scales = nullptr;
  const char* value_scales = nullptr;

  HWY_INLINE void Fetch(int64_t step) const {
    if (step == 0 && key_scales != nullptr) {
      hwy::Prefetch(key_scales);
      hwy::Prefetch(value_scales);
    }
    for (int64_t byte = 256 * step; byte < 256 * step + 256; byte += 64) {
      if (keys != nullptr) hwy::Prefetch(keys + byte);
      if (values != nullptr) hwy::Prefetch(values + byte);
    }
  }
};

// Whether kPackKeys rows lie side by side.
template <typename T>
HWY_INLINE bool IsContiguousBlock(const KvRow<T>* rows, int head_dim) {
  return rows[kPackKeys - 1].data - rows[0].data == int64_t{kPackKeys - 1} * head_dim;
}

// keys[i][j] = element i of row j for j in `range`, before its scale; `rows` is padded to multiples
// of kPackKeys with valid rows. Other columns hold anything. ahead(block) says what to fetch
// meanwhile.
template <typename T, class F>
void PackKeys(const KvRow<T>* rows, KeyRange range, int head_dim, [[maybe_unused]] const F& ahead,
              float* keys) {
  int vectorised = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int kStep = 16 / sizeof(T);
  vectorised = head_dim / kStep * kStep;
  for (int block = range.begin / kPackKeys * kPackKeys; block < range.end; block += kPackKeys) {
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
    for (int j = range.begin; j < range.end; ++j)
      keys[i * kKeyStride + j] = LoadElement(rows[j], i);
  }
}

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

// The rows of one tile and of the next, their scales, and whether the values were converted to
// scratch.
template <class Row>
struct Tile {
  KeyRange keys;  // that the item sees, from the start of the tile
  Row rows[kTile];
  Row next_rows[kTile];
  int next_end = -1;  // of next_rows; -1: not looked up
  bool packed = false;
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

  // Calls f with the values, to be indexed by position in the tile.
  template <class F>
  HWY_INLINE void VisitValues(const AttentionScratch& s, const F& f) const {
    if (packed) {
      f(StridedRows{s.values, s.dim});
    } else {
      f(static_cast<const Row*>(rows));
    }
  }
};

// Looks up the rows of the tile at position `begin` and the ones after them.
template <class View>
HWY_INLINE void NextRows(const View& view, const AttentionItem& item, int begin,
                         Tile<typename View::Row>* tile) {
  const KeyRange all = item.keys();
  tile->keys = InTile(all, begin);
  if (tile->next_end < 0) {
    KeyRows(view, item.seq, item.kv_head, begin, tile->keys, tile->rows);
  } else {
    std::copy_n(tile->next_rows, kTile, tile->rows);
  }
  const KeyRange next = InTile(all, begin + kTile);
  tile->next_end = next.end;
  if (next.end > 0) {
    KeyRows(view, item.seq, item.kv_head, begin + kTile, next, tile->next_rows);
  }
}

// scales[j] = that of row_of(j) for j in `keys`.
template <class F>
HWY_INLINE void GatherScales(KeyRange keys, const F& row_of, float* scales) {
  std::fill_n(scales, kTile, 0.0f);
  for (int j = keys.begin; j < keys.end; ++j) scales[j] = row_of(j).Scale();
}

// Makes the keys and values of the tile ready for the products.
template <class View>
HWY_INLINE void LoadTile(const View& view, const AttentionItem& item, const AttentionScratch& s,
                         bool with_keys, bool with_values, Tile<typename View::Row>* tile) {
  // Converting pays when several register tiles read the values; partial vectors need the padding.
  constexpr int kPackFromRows = 2 * kMicroRows;
  const int head_dim = view.head_dim();
  const KeyRange keys = tile->keys;
  const bool many_rows = item.num_rows() > kPackFromRows;
  if constexpr (View::Row::kIsScaled) {
    const auto key = [&](int j) { return tile->rows[j]; };
    if (with_keys) GatherScales(keys, key, tile->key_scales);
    const auto value = [&](int j) { return view.ValueOf(tile->rows[j]); };
    if (with_values) GatherScales(keys, value, tile->value_scales);
  }
  if (with_keys) {
    const auto ahead = [&](int block) {
      Ahead next;
      if (many_rows) return next;
      const auto address = [](auto row) { return reinterpret_cast<const char*>(row.data); };
      const bool whole = block >= keys.begin && block + kPackKeys <= keys.end;
      if (with_values && whole && IsContiguousBlock(tile->rows + block, head_dim)) {
        next.values = address(view.ValueOf(tile->rows[block]));
      }
      if (block + kPackKeys <= tile->next_end &&
          IsContiguousBlock(tile->next_rows + block, head_dim)) {
        next.keys = address(tile->next_rows[block]);
        if constexpr (View::Row::kHasScale) {
          const auto key = tile->next_rows[block];
          next.key_scales = reinterpret_cast<const char*>(key.scale);
          next.value_scales = reinterpret_cast<const char*>(view.ValueOf(key).scale);
        }
      }
      return next;
    };
    PackKeys(tile->rows, keys, head_dim, ahead, s.keys);
  }
  if (!with_values) return;
  tile->packed = many_rows || s.dim != head_dim;
  if (tile->packed) {
    PackValues(view, tile->rows, keys, s.dim, s.values);
  } else {
    for (int j = keys.begin; j < keys.end; ++j) tile->rows[j] = view.ValueOf(tile->rows[j]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
