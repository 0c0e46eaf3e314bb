// Computes scores, softmax and outputs of a group of query rows for one tile of keys and values.
// Included once per instruction set (hwy/foreach_target.h).
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "hwy/highway.h"
// After highway.h.
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/attention_math-inl.h"
#include "kuiper/kernels/cpu/attention_tile-inl.h"
#include "kuiper/kernels/cpu/linear/kernel.h"

#if defined(KUIPER_KERNELS_CPU_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KUIPER_KERNELS_CPU_ATTENTION_ROWS_INL_H_
#undef KUIPER_KERNELS_CPU_ATTENTION_ROWS_INL_H_
#else
#define KUIPER_KERNELS_CPU_ATTENTION_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// Adds the ALiBi terms of query row r to its scores for `keys`, counted from position `origin`.
HWY_INLINE void AddBias(const AttentionCall& call, const AttentionItem& item, int r, KeyRange keys,
                        int origin, float* scores) {
  if (call.alibi_slopes == nullptr) return;
  AddAlibi(scores, keys, call.alibi_slopes[item.row_head(r)], origin - item.row_pos(r));
}

// Query rows [first, first + rows) of an item for one tile. `p` points to the scores, later the
// softmax weights, of row `first`.
struct RowGroup {
  const AttentionCall& call;
  const AttentionScratch& s;
  int first, rows;
  float* p;
  KeyRange keys[kMicroRows];  // keys each row attends to, counted from the start of the tile

  RowGroup(const AttentionCall& call, const AttentionItem& item, const AttentionScratch& s,
           int first, int rows, int tile, float* p)
      : call(call), s(s), first(first), rows(rows), p(p) {
    for (int r = 0; r < rows; ++r) keys[r] = InTile(item.row_keys(first + r), tile);
  }
  float* scores(int r) const { return p + r * s.score_stride; }
  float* acc(int r) const { return s.acc + (first + r) * s.dim; }
};

// Calls together(begin, end) for the common part of the ranges range(r) of all rows, and alone(r,
// begin, end) for the remainder of each row's range. So no value enters a row that does not attend
// to it. The calls ascend for each row; both ends of range(r) must ascend with r.
template <class Range, class Together, class Alone>
HWY_INLINE void ForCommonRange(int rows, const Range& range, const Together& together,
                               const Alone& alone) {
  KeyRange common{range(rows - 1).begin, range(0).end};
  if (common.empty()) common = {kTile, kTile};
  for (int r = 0; r < rows; ++r) {
    const KeyRange own = range(r);
    if (own.begin < common.begin) alone(r, own.begin, std::min(own.end, common.begin));
  }
  if (!common.empty()) together(common.begin, common.end);
  for (int r = 0; r < rows; ++r) {
    const KeyRange own = range(r);
    if (common.end < own.end) alone(r, common.end, own.end);
  }
}

// acc += p V.
template <class B>
void AddValues(const RowGroup& g, const B& values) {
  const auto multiply = [&](int r, int rows, int begin, int end) HWY_ATTR {
    Multiply(rows, Product<B>{g.scores(r), g.s.score_stride, values, begin, end, g.s.dim, g.acc(r),
                              g.s.dim});
  };
  ForCommonRange(
      g.rows, [&](int r) { return g.keys[r]; },
      [&](int begin, int end) HWY_ATTR { multiply(0, g.rows, begin, end); },
      [&](int r, int begin, int end) HWY_ATTR { multiply(r, 1, begin, end); });
}

// acc += p V in pairs. If a row attends to one key of a pair only, zeros replace the other value.
template <class Row>
void AddValuePairs(const RowGroup& g, const Tile<Row>& loaded) {
  const PairKernel& kernel = g.call.pairs;
  const auto product = [&](int r, int begin, int end) {
    return PairProduct{.a = g.scores(r),
                       .a_stride = g.s.score_stride,
                       .begin = begin,
                       .end = end,
                       .cols = g.s.dim,
                       .c = g.acc(r),
                       .c_stride = g.s.dim,
                       .b_stride = g.s.dim};
  };
  const auto alone = [&](int r, int begin, int end) {
    loaded.multiply_pairs(1, product(r, begin, end), loaded.value_rows);
  };
  const auto half = [&](int r, int key) {
    const uint8_t* rows[kTile];  // only the two rows of the pair are set and read
    rows[key / 2 * 2] = rows[key / 2 * 2 + 1] = ZeroRow();
    rows[key] = loaded.value_rows[key];
    loaded.multiply_pairs(1, product(r, key / 2, key / 2 + 1), rows);
  };
  // Pairs that each row attends to as a whole. At both ends of the loaded keys, zeros complete a
  // pair.
  KeyRange whole[kMicroRows] = {};
  for (int r = 0; r < g.rows; ++r) {
    const KeyRange own = g.keys[r];
    whole[r] = {own.begin == loaded.keys.begin ? own.begin / 2 : (own.begin + 1) / 2,
                own.end == loaded.keys.end ? (own.end + 1) / 2 : own.end / 2};
    if (!own.empty() && own.begin < 2 * whole[r].begin) half(r, own.begin);
  }
  ForCommonRange(
      g.rows, [&](int r) { return whole[r]; },
      [&](int begin, int end) {
        if (loaded.packed) {
          kernel.multiply_packed(g.rows, product(0, begin, end), g.s.pairs());
        } else {
          PairProduct rows = product(0, begin, end);
          if (g.first == 0) {
            rows.ahead = loaded.ahead;
            rows.next = loaded.next;
          }
          loaded.multiply_pairs(g.rows, rows, loaded.value_rows);
        }
      },
      alone);
  for (int r = 0; r < g.rows; ++r) {
    const KeyRange own = g.keys[r];
    if (!own.empty() && own.end > 2 * whole[r].end) half(r, own.end - 1);
  }
}

// Calls f(first, rows) for groups of the item's query rows, each at most a register tile and of
// nearly equal size.
template <class F>
HWY_INLINE void ForEachRowGroup(int num_rows, const F& f) {
  const int groups = (num_rows + kMicroRows - 1) / kMicroRows;
  for (int g = 0; g < groups; ++g) {
    const int first = num_rows * g / groups;
    f(first, num_rows * (g + 1) / groups - first);
  }
}

// Computes the scores with packed keys.
inline void ScorePackedKeys(const RowGroup& g) {
  const LinearKernel& kernel = g.call.dots;
  const int head_dim = g.call.head_dim, words = static_cast<int>(kernel.Words(head_dim));
  const int width = kernel.outer_columns, end = g.keys[g.rows - 1].end;
  OuterArgs args;
  args.rows = reinterpret_cast<const uint8_t*>(g.s.q_tiles + int64_t{1} * g.first * words);
  args.panel_stride = kernel.PanelStride(kernel.PackedWords(head_dim), width);
  args.steps = words / kSumLanes;
  args.sum_stride = static_cast<size_t>(g.s.score_stride);
  int column = g.keys[0].begin / kernel.short_columns * kernel.short_columns;
  for (; column < end; column += kernel.short_columns) {
    args.panel = reinterpret_cast<const uint8_t*>(g.s.panels) +
                 column / width * kSumLanes * args.panel_stride + column % width * sizeof(float);
    args.sums = g.p + column;
    kernel.short_outer[g.rows](args);
  }
}

// Computes the scores with packed INT8 keys.
inline void ScorePackedInt8(const RowGroup& g) {
  static constexpr float kOnes[] = {1, 1, 1, 1, 1, 1};
  static_assert(std::size(kOnes) == kMicroRows);
  const int begin = g.keys[0].begin / kPairColumns * kPairColumns;
  const int64_t columns = RoundUp(g.keys[g.rows - 1].end, kPairColumns) - begin;
  if (columns <= 0) return;
  for (int r = 0; r < g.rows; ++r) std::fill_n(g.scores(r) + begin, columns, 0.0f);
  g.call.int8.multiply_packed(g.rows,
                              {.a = g.s.q + g.first * g.s.dim,
                               .a_stride = g.s.dim,
                               .begin = 0,
                               .end = static_cast<int>(g.s.dim / 2),
                               .cols = columns,
                               .c = g.p + begin,
                               .c_stride = g.s.score_stride,
                               .factors = kOnes,
                               .b_stride = kTile},
                              reinterpret_cast<const uint32_t*>(g.s.panels) + begin);
}

// p = Q K^T for the loaded keys, as the linear layers compute it with keys as weights, or in
// integers for INT8.
template <class Row>
HWY_INLINE void ScoreTile(const RowGroup& g, const Tile<Row>& loaded) {
  if (loaded.keys_packed) return kIsInt8<Row> ? ScorePackedInt8(g) : ScorePackedKeys(g);
  const AttentionScratch& s = g.s;
  const int begin = loaded.keys.begin / kPanelRows * kPanelRows;
  const int most = kIsInt8<Row> ? g.call.int8.dot_rows : g.call.dots.tile_rows;
  for (int r = 0, rows; r < g.rows; r += rows) {
    rows = std::min(g.rows - r, most);
    loaded.dots[rows]({.x = reinterpret_cast<const uint8_t*>(s.q + (g.first + r) * s.dim),
                       .x_stride = s.dim * sizeof(float),
                       .rows = loaded.key_rows + begin,
                       .count = static_cast<int>(RoundUp(loaded.keys.end - begin, kPanelRows)),
                       .k = kIsInt8<Row> ? static_cast<int>(s.dim) : g.call.head_dim,
                       .ahead = r == 0 && g.first == 0 ? loaded.ahead : 0,
                       .next = r == 0 && g.first == 0 ? loaded.next : nullptr,
                       .sums = g.p + r * s.score_stride + begin,
                       .sum_stride = static_cast<size_t>(s.score_stride)});
  }
}

// Turns the scores of the tile at position `tile` into softmax weights: first the maxima of all
// rows, then all exponentials, so that neither waits for the other.
template <class Row>
HWY_INLINE void SoftmaxTile(const RowGroup& g, const AttentionItem& item, const Tile<Row>& loaded,
                            int tile) {
  const AttentionScratch& s = g.s;
  KeyRange padded[kMicroRows] = {};
  for (int r = 0; r < g.rows; ++r) {
    const int row = g.first + r;
    if (g.keys[r].empty()) continue;
    loaded.ScaleByKeys(g.scores(r), g.keys[r], s.q_factors[row]);
    AddBias(g.call, item, row, g.keys[r], tile, g.scores(r));
    padded[r] = PadScores(g.scores(r), g.keys[r]);
    RaiseMax(g.scores(r), padded[r], s.max + row, s.sum + row * 16, g.acc(r), s.dim);
  }
  for (int r = 0; r < g.rows; ++r) {
    if (padded[r].empty()) continue;
    ExpScores(g.scores(r), padded[r], s.max[g.first + r], s.sum + (g.first + r) * 16);
  }
}

// Quantises the weights of a row for the tile's keys `all` to int16, in the first half of their
// memory. Keys outside `seen` get weight 0. Returns the scale.
HWY_INLINE float QuantizeWeights(float* weights, KeyRange seen, KeyRange all) {
  auto* integers = reinterpret_cast<int16_t*>(weights);
  const int first = all.begin / 2 * 2, last = static_cast<int>(RoundUp(all.end, 2));
  const int begin = seen.empty() ? first : seen.begin / 16 * 16;
  const int end = seen.empty() ? first : static_cast<int>(RoundUp(seen.end, 16));
  const float factor = StoreQuantized(weights + begin, end - begin, static_cast<float>(kMaxInteger),
                                      integers + begin);
  if (first < begin) std::fill(integers + first, integers + begin, int16_t{0});
  if (end < last) std::fill(integers + end, integers + last, int16_t{0});
  return factor;
}

// acc += p V in integers.
template <class Row>
void AddValueIntegers(const RowGroup& g, const Tile<Row>& loaded) {
  const KeyRange all{g.keys[0].begin, g.keys[g.rows - 1].end};
  if (all.empty()) return;
  float factors[kMicroRows];
  for (int r = 0; r < g.rows; ++r) factors[r] = QuantizeWeights(g.scores(r), g.keys[r], all);
  PairProduct product{.a = g.p,
                      .a_stride = g.s.score_stride,
                      .begin = all.begin / 2,
                      .end = (all.end + 1) / 2,
                      .cols = g.s.dim,
                      .c = g.acc(0),
                      .c_stride = g.s.dim,
                      .factors = factors,
                      .b_stride = g.s.dim};
  if (loaded.packed) return g.call.int8.multiply_packed(g.rows, product, g.s.pairs());
  if (g.first == 0) {
    product.ahead = loaded.ahead;
    product.next = loaded.next;
  }
  g.call.int8.multiply_rows(g.rows, product, loaded.value_rows);
}

// Adds the values of the loaded tile, weighted by the softmax weights at g.p, to the outputs.
template <class Row>
HWY_INLINE void AddTile(const RowGroup& g, const Tile<Row>& loaded) {
  for (int r = 0; r < g.rows; ++r) loaded.ScaleByValues(g.scores(r), g.keys[r]);
  if constexpr (kIsInt8<Row>) {
    AddValueIntegers(g, loaded);
  } else if constexpr (kUsesBf16Pairs<Row>) {
    for (int r = 0; r < g.rows; ++r) {
      const KeyRange own = g.keys[r];
      if (!own.empty()) g.call.pairs.narrow(g.scores(r), own.begin / 16 * 16, RoundUp(own.end, 16));
    }
    AddValuePairs(g, loaded);
  } else {
    loaded.VisitValues(g.s, [&](const auto& b) HWY_ATTR { AddValues(g, b); });
  }
}

// Arranges the queries of an item as tiles of outer products.
inline void SpreadQueries(const LinearKernel& kernel, int num_rows, int head_dim,
                          const AttentionScratch& s) {
  const size_t words = kernel.Words(head_dim), steps = words / kSumLanes;
  ForEachRowGroup(num_rows, [&](int first, int rows) {
    auto* to = reinterpret_cast<uint32_t*>(s.q_tiles + first * words);
    for (int r = 0; r < rows; ++r) {
      SpreadWords(reinterpret_cast<const uint32_t*>(s.q + (first + r) * s.dim), steps, rows,
                  steps * rows, to + r);
    }
  });
}

// Chooses the kernels for a tile. INT8 rows are read in place unless they need padding. FP8 rows
// are read in place only for few query rows and if the kernels support it: many query rows share
// the cost of converting them.
template <class Row>
void ChooseProducts(const AttentionCall& call, const AttentionItem& item, const AttentionScratch& s,
                    Tile<Row>* tile) {
  tile->dots = call.dots.dots;
  tile->multiply_pairs = call.pairs.multiply_rows;
  if constexpr (kIsInt8<Row>) {
    tile->reads_in_place = s.dim == call.head_dim;
    tile->dots = call.int8.dots;
  } else if constexpr (kIsFloat8<Row>) {
    constexpr int kType = Float8Index(DTypeOf<typename Row::Unit>::value);
    const DotFn* dots = call.dots.float8_dots[kType];
    const PairKernel::RowsFn multiply_pairs = call.pairs.multiply_float8[kType];
    tile->reads_in_place = item.num_rows() <= kFewRows && s.dim == call.head_dim &&
                           dots[1] != nullptr && multiply_pairs != nullptr;
    if (!tile->reads_in_place) return;
    tile->dots = dots;
    tile->multiply_pairs = multiply_pairs;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
