// Attention over the KV cache. A work item is a block of query rows that share a kv head:
// consecutive positions of one sequence times the query heads of the group, so that each key and
// value is loaded (and converted) once for all of them. One of few rows may have several kv heads,
// which take turns tile by tile. Scores are those of a linear layer whose
// weights are keys: dot products with keys where they lie, or, for many rows (prefill), outer
// products with panels of them. Values are read as they lie for few rows (decode), from converted
// tiles for more.
//
// Bits: a score is a sum of one fold block of linear_kernel.h, with the scaled query as
// activations, an output is summed along the key positions in ascending order (BF16 and narrower
// caches: in pairs of rounded weights, see attention_pairs.h), tiles start at absolute position 0,
// and nothing beyond a row's own length enters it. The scale of a key multiplies its finished
// score, that of a value its weight, before the products with its elements. So a row's result does
// not depend on the block, chunk, page or batch it is computed in.
//
// Cascade (AttnMeta::shared_lens): an item can also be the rows of several sequences that begin
// with the same pages. They go through the tiles they share together, and each goes on alone.
//
// Decode reads each K and V once and is bound by memory, which rows fetched in advance keep busy. A
// prefill of long rows is bound by multiply-adds: expected are 0.8 of their peak in both products,
// and a tenth of the time for the softmax between them.
#include <algorithm>
#include <atomic>
#include <limits>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/attention.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cpu/attention_fetch-inl.h"
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/attention_math-inl.h"
#include "kuiper/kernels/cpu/attention_tile-inl.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear_kernel.h"
#include "kuiper/kernels/cpu/simd-inl.h"

#ifndef KUIPER_KERNELS_CPU_ATTENTION_CPP_
#define KUIPER_KERNELS_CPU_ATTENTION_CPP_
namespace kuiper::cpu {

// The arguments of a call, the same for all of its items.
struct AttentionCall {
  AttentionKind kind;
  const AttentionArgs& args;
  const LinearKernel& dots;  // of keys as weights
  const PairKernel& pairs;
  const float* alibi_slopes;   // [H], or null
  const int32_t* kv_lens;      // [S]
  const int32_t* shared_lens;  // [S], or null: no item has several sequences
};

}  // namespace kuiper::cpu
#endif  // KUIPER_KERNELS_CPU_ATTENTION_CPP_

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// Element 0 of row r of the item in a matrix of tokens, each with its heads head_stride apart.
template <typename T>
HWY_INLINE T* ItemRow(const Tensor& matrix, const AttentionItem& item, int r, int64_t head_stride) {
  return matrix.row<T>(item.q_row + r / item.num_heads) + item.row_head(r) * head_stride;
}

void LoadQueries(const AttentionCall& call, const AttentionItem& item, const AttentionScratch& s,
                 int head_dim) {
  const VF scale = hn::Set(DF(), call.args.scale);
  float scaled[kMaxHeadDim];
  VisitFloat(call.args.q.dtype, [&](auto zero) HWY_ATTR {
    for (int r = 0; r < item.num_rows(); ++r) {
      const auto* q = ItemRow<decltype(zero)>(call.args.q, item, r, call.args.QHeadStride());
      MapElements(scaled, head_dim, [&](auto load) HWY_ATTR { return hn::Mul(load(q), scale); });
      call.dots.convert(scaled, head_dim, reinterpret_cast<uint8_t*>(s.q + r * s.dim));
    }
  });
  std::fill(s.acc, s.acc + item.num_rows() * s.dim, 0.0f);
  std::fill(s.sum, s.sum + item.num_rows() * 16, 0.0f);
  std::fill(s.max, s.max + item.num_rows(), -std::numeric_limits<float>::infinity());
}

void StoreOutputs(const AttentionCall& call, const AttentionItem& item, const AttentionScratch& s,
                  int head_dim) {
  VisitFloat(call.args.out.dtype, [&](auto zero) HWY_ATTR {
    for (int r = 0; r < item.num_rows(); ++r) {
      auto* out = ItemRow<decltype(zero)>(call.args.out, item, r, head_dim);
      const VF factor = hn::Set(DF(), 1.0f / FoldLanes(s.sum + r * 16));
      const float* acc = s.acc + r * s.dim;
      MapElements(out, head_dim, [&](auto load) HWY_ATTR { return hn::Mul(load(acc), factor); });
    }
  });
}

// Adds the ALiBi terms of row r to its scores for `keys`, which are counted from position `origin`.
HWY_INLINE void AddBias(const AttentionCall& call, const AttentionItem& item, int r, KeyRange keys,
                        int origin, float* scores) {
  if (call.alibi_slopes == nullptr) return;
  AddAlibi(scores, keys, call.alibi_slopes[item.row_head(r)], origin - item.row_pos(r));
}

// The rows [first, first + rows) of an item over one tile, whose scores and then softmax weights
// are at `p`, that of row `first`.
struct RowGroup {
  const AttentionCall& call;
  const AttentionScratch& s;
  int first, rows;
  float* p;
  KeyRange keys[kMicroRows];  // that each row sees, from the start of the tile

  RowGroup(const AttentionCall& call, const AttentionItem& item, const AttentionScratch& s,
           int first, int rows, int tile, float* p)
      : call(call), s(s), first(first), rows(rows), p(p) {
    for (int r = 0; r < rows; ++r) keys[r] = InTile(item.row_keys(first + r), tile);
  }
  float* scores(int r) const { return p + r * s.score_stride; }
  float* acc(int r) const { return s.acc + (first + r) * s.dim; }
};

// Calls together(begin, end) for the part of the ranges [range(r)) that all rows have, and alone(r,
// begin, end) for the rest of each row, so that no value enters a row that does not see it.
// Ascending for each row. Both ends ascend with the row.
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

// The same in pairs. A row that sees one key of a pair takes it with zeros for the other.
template <class Row>
void AddValuePairs(const RowGroup& g, const Tile<Row>& loaded) {
  const PairKernel& kernel = g.call.pairs;
  const auto product = [&](int r, int begin, int end) {
    return PairProduct{g.scores(r), g.s.score_stride, begin, end, g.s.dim, g.acc(r), g.s.dim};
  };
  const auto alone = [&](int r, int begin, int end) {
    loaded.multiply_pairs(1, product(r, begin, end), loaded.value_rows);
  };
  const auto half = [&](int r, int key) {
    const uint8_t* rows[kTile];  // that of the pair is used
    rows[key / 2 * 2] = rows[key / 2 * 2 + 1] = ZeroRow();
    rows[key] = loaded.value_rows[key];
    loaded.multiply_pairs(1, product(r, key / 2, key / 2 + 1), rows);
  };
  // Whole pairs; beside the loaded keys are zeros.
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

// Calls f(first, rows) for register-tile groups of the item's rows of nearly equal size.
template <class F>
HWY_INLINE void ForEachRowGroup(int num_rows, const F& f) {
  const int groups = (num_rows + kMicroRows - 1) / kMicroRows;
  for (int g = 0; g < groups; ++g) {
    const int first = num_rows * g / groups;
    f(first, num_rows * (g + 1) / groups - first);
  }
}

// The scores of packed keys.
void ScorePanels(const RowGroup& g) {
  const LinearKernel& kernel = g.call.dots;
  const int head_dim = g.call.args.kv.head_dim(), words = static_cast<int>(kernel.Words(head_dim));
  const int width = kernel.outer_columns, end = g.keys[g.rows - 1].end;
  Prefetcher nothing;
  OuterArgs args;
  args.rows = reinterpret_cast<const uint8_t*>(g.s.q_tiles + int64_t{1} * g.first * words);
  args.panel_stride = kernel.PanelStride(words, width);
  args.steps = words / kSumLanes;
  args.sum_stride = static_cast<size_t>(g.s.score_stride);
  args.next = &nothing;
  int column = g.keys[0].begin / kernel.short_columns * kernel.short_columns;
  for (; column < end; column += kernel.short_columns) {
    args.panel = reinterpret_cast<const uint8_t*>(g.s.panels) +
                 column / width * kSumLanes * args.panel_stride + column % width * sizeof(float);
    args.sums = g.p + column;
    kernel.short_outer[g.rows](args);
  }
}

// p = Q K^T for the loaded keys: what the linear layers compute with keys as weights.
template <class Row>
HWY_INLINE void ScoreTile(const RowGroup& g, const Tile<Row>& loaded) {
  if (loaded.keys_packed) return ScorePanels(g);
  const AttentionScratch& s = g.s;
  const int begin = loaded.keys.begin / kPanelRows * kPanelRows;
  for (int r = 0, rows; r < g.rows; r += rows) {
    rows = std::min(g.rows - r, g.call.dots.tile_rows);
    loaded.dots[rows]({.x = reinterpret_cast<const uint8_t*>(s.q + (g.first + r) * s.dim),
                       .x_stride = s.dim * sizeof(float),
                       .rows = loaded.key_rows + begin,
                       .count = static_cast<int>(RoundUp(loaded.keys.end - begin, kPanelRows)),
                       .k = g.call.args.kv.head_dim(),
                       .ahead = r == 0 && g.first == 0 ? loaded.ahead : 0,
                       .next = r == 0 && g.first == 0 ? loaded.next : nullptr,
                       .sums = g.p + r * s.score_stride + begin,
                       .sum_stride = static_cast<size_t>(s.score_stride)});
  }
}

// The scores of the tile at position `tile` to softmax weights: first the maxima of all rows, then
// all exponentials, so that neither waits for the other.
template <class Row>
HWY_INLINE void SoftmaxTile(const RowGroup& g, const AttentionItem& item, const Tile<Row>& loaded,
                            int tile) {
  const AttentionScratch& s = g.s;
  KeyRange padded[kMicroRows] = {};
  for (int r = 0; r < g.rows; ++r) {
    const int row = g.first + r;
    if (g.keys[r].empty()) continue;
    loaded.ScaleByKeys(g.scores(r), g.keys[r]);
    AddBias(g.call, item, row, g.keys[r], tile, g.scores(r));
    padded[r] = PadScores(g.scores(r), g.keys[r]);
    RaiseMax(g.scores(r), padded[r], s.max + row, s.sum + row * 16, g.acc(r), s.dim);
  }
  for (int r = 0; r < g.rows; ++r) {
    if (padded[r].empty()) continue;
    ExpScores(g.scores(r), padded[r], s.max[g.first + r], s.sum + (g.first + r) * 16);
  }
}

// Adds the values of the loaded tile, which the finished weights at g.p multiply.
template <class Row>
HWY_INLINE void AddTile(const RowGroup& g, const Tile<Row>& loaded) {
  for (int r = 0; r < g.rows; ++r) loaded.ScaleByValues(g.scores(r), g.keys[r]);
  if constexpr (kTakesPairs<Row>) {
    for (int r = 0; r < g.rows; ++r) {
      const KeyRange own = g.keys[r];
      if (!own.empty()) g.call.pairs.narrow(g.scores(r), own.begin / 16 * 16, RoundUp(own.end, 16));
    }
    AddValuePairs(g, loaded);
  } else {
    loaded.VisitValues(g.s, [&](const auto& b) HWY_ATTR { AddValues(g, b); });
  }
}

// The queries of an item as tiles of outer products.
void SpreadQueries(const LinearKernel& kernel, int num_rows, int head_dim,
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

// Few rows read eight bits as they lie, where the kernels can: many rows share what is widened.
template <class Row>
void ChooseProducts(const AttentionCall& call, const AttentionItem& item, const AttentionScratch& s,
                    Tile<Row>* tile) {
  tile->dots = call.dots.dots;
  tile->multiply_pairs = call.pairs.multiply_rows;
  if constexpr (kIsCodes<Row>) {
    constexpr int kType = CodeTypeIndex(DTypeOf<typename Row::Unit>::value);
    const DotFn* dots = call.dots.code_dots[kType];
    const PairKernel::RowsFn multiply_pairs = call.pairs.multiply_codes[kType];
    tile->as_codes = item.num_rows() <= kFewRows && s.dim == call.args.kv.head_dim() &&
                     dots[1] != nullptr && multiply_pairs != nullptr;
    if (!tile->as_codes) return;
    tile->dots = dots;
    tile->multiply_pairs = multiply_pairs;
  }
}

// Takes the tiles from position `begin` on into the rows' softmax and outputs: online softmax
// (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022). `after` is null or the item that
// the thread takes next.
template <class View>
void FlashTiles(const AttentionCall& call, const View& view, const AttentionItem& item, int begin,
                const AttentionItem* after, const AttentionScratch& s) {
  const KeyRange all = item.keys();
  Tile<typename View::Row> loaded;
  TileFetcher<typename View::Row> fetcher;
  const bool in_order = FetchesInOrder(view.page_size()) && item.num_rows() <= kFewRows;
  RangeFetcher* const lines = in_order ? &fetcher.lines() : nullptr;
  ChooseProducts(call, item, s, &loaded);
  loaded.keys_packed = item.num_rows() > kManyRows;
  if (loaded.keys_packed) SpreadQueries(call.dots, item.num_rows(), view.head_dim(), s);
  for (int tile = std::max(begin, WholeTiles(all.begin)); tile < all.end; tile += kTile) {
    if (in_order) fetcher.FindAfter(view, item, tile, after);
    ForEachKvHead(item, s, [&](const AttentionItem& one, const AttentionScratch& own) HWY_ATTR {
      FindRows(view, one, tile, lines, &loaded);
      LoadKeys(view, own, &loaded);
      if (loaded.keys_packed) PackKeys(call.dots, view.head_dim(), own, &loaded);
      LoadValues(view, one, own, call.pairs, &loaded);
      ForEachRowGroup(one.num_rows(), [&](int first, int rows) HWY_ATTR {
        const RowGroup group(call, one, own, first, rows, tile, own.scores);
        ScoreTile(group, loaded);
        SoftmaxTile(group, one, loaded, tile);
        AddTile(group, loaded);
      });
    });
  }
}

// Takes the tiles from position `begin` on: first those that all sequences of a run share, then
// those of the runs within it that share more, down to single sequences.
template <class View>
void FlashItem(const AttentionCall& call, const View& view, const AttentionItem& item, int begin,
               const AttentionItem* after, const AttentionScratch& s) {
  if (item.num_seqs == 1) return FlashTiles(call, view, item, begin, after, s);
  const int32_t* shared_lens = call.shared_lens + item.seq;
  const int shared = WholeTiles(*std::min_element(shared_lens + 1, shared_lens + item.num_seqs));
  FlashTiles(call, view, item.OfShared(shared), begin, nullptr, s);
  for (int first = 0, end; first < item.num_seqs; first = end) {
    end = first + 1;
    while (end < item.num_seqs && WholeTiles(shared_lens[end]) > shared) ++end;
    FlashItem(call, view, item.Sequences(first, end, call.kv_lens), shared,
              end < item.num_seqs ? nullptr : after, s.From(first * item.num_heads));
  }
}

// Plain softmax: all scores, their maximum, all exponentials, then the values.
template <class View>
void MhaItem(const AttentionCall& call, const View& view, const AttentionItem& item,
             const AttentionScratch& s) {
  const KeyRange all = item.keys();
  const int first_tile = all.begin / kTile * kTile;
  Tile<typename View::Row> loaded;
  ChooseProducts(call, item, s, &loaded);
  const auto group = [&](int tile) {
    return RowGroup(call, item, s, 0, item.num_rows(), tile, s.scores + tile);
  };
  for (int tile = first_tile; tile < all.end; tile += kTile) {
    FindRows(view, item, tile, nullptr, &loaded);
    LoadKeys(view, s, &loaded);
    ScoreTile(group(tile), loaded);
    for (int r = 0; r < item.num_rows(); ++r) {
      loaded.ScaleByKeys(s.scores + r * s.score_stride + tile, loaded.keys);
    }
  }
  for (int r = 0; r < item.num_rows(); ++r) {
    float* scores = s.scores + r * s.score_stride;
    const KeyRange own = item.row_keys(r);
    AddBias(call, item, r, own, 0, scores);
    const KeyRange padded = PadScores(scores, own);
    ExpScores(scores, padded, MaxOfScores(scores, padded, s.max[r]), s.sum + r * 16);
  }
  for (int tile = first_tile; tile < all.end; tile += kTile) {
    FindRows(view, item, tile, nullptr, &loaded);
    LoadValues(view, item, s, call.pairs, &loaded);
    AddTile(group(tile), loaded);
  }
}

// The way of this set; `fast` is the instruction for pairs of the machine, or null.
const PairKernel* ChoosePairKernel([[maybe_unused]] const PairKernel* fast) {
  static constexpr PairKernel kKernel = MakePlainPairKernel();
#if HWY_TARGET == HWY_AVX3
  if (fast != nullptr) return fast;
#endif
  return &kKernel;
}

void AttentionBlock(const AttentionCall& call, const AttentionItem& item,
                    const AttentionItem* after, const AttentionScratch& s) {
  const int head_dim = call.args.kv.head_dim();
  ForEachKvHead(item, s, [&](const AttentionItem& one, const AttentionScratch& own) HWY_ATTR {
    LoadQueries(call, one, own, head_dim);
  });
  VisitKv(call.args.kv, [&](const auto& view) HWY_ATTR {
    if (call.kind == AttentionKind::kMha) {
      MhaItem(call, view, item, s);
    } else {
      FlashItem(call, view, item, 0, after, s);
    }
  });
  ForEachKvHead(item, s, [&](const AttentionItem& one, const AttentionScratch& own) HWY_ATTR {
    StoreOutputs(call, one, own, head_dim);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(AttentionBlock);
HWY_EXPORT(ChoosePairKernel);
HWY_EXPORT(MaxItemKvHeads);

size_t AttentionScratchBytes(AttentionKind kind, int max_context) {
  AttentionScratch scratch;
  return scratch.Carve(nullptr, kind, kMaxHeadDim, max_context) * sizeof(float);
}

void Run(const Resources& resources, const AttentionArgs& args) {
  const auto block = HWY_DYNAMIC_DISPATCH(AttentionBlock);
  const AttentionKind kind = resources.attention;
  const AttnMeta& meta = args.meta;
  const int head_dim = args.kv.head_dim(), max_context = resources.limits.max_context;
  KU_CHECK(head_dim <= kMaxHeadDim, "head_dim is too large");
  KU_CHECK(meta.max_kv_len <= max_context, "more than was reserved");
  const int num_heads = static_cast<int>(args.q.shape[1]) / head_dim;
  const Tensor& slopes = args.options.alibi_slopes;
  // The shared tiles have no bias and no edge of a window.
  const bool cascade = !meta.shared_lens.empty() && kind != AttentionKind::kMha &&
                       args.options.window == 0 && slopes.empty();
  const PairKernel& pairs = *HWY_DYNAMIC_DISPATCH(ChoosePairKernel)(resources.fast_pairs);
  const bool is_paired = IsPaired(args.kv.format.element_type());
  const WeightFormat keys =
      WeightFormat::Dense(is_paired ? DType::kBF16 : args.kv.format.element_type());
  const AttentionCall call{kind,
                           args,
                           resources.linear.kernels()[keys],
                           pairs,
                           slopes.empty() ? nullptr : slopes.ptr<float>(),
                           meta.kv_lens.ptr<int32_t>(),
                           cascade ? meta.shared_lens.ptr<int32_t>() : nullptr};
  const int max_item_kv_heads =
      kind == AttentionKind::kMha ? 1 : HWY_DYNAMIC_DISPATCH(MaxItemKvHeads)(args.kv);
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    const ScopedFlushSubnormals flush(is_paired);
    AttentionScratch s;
    s.Carve(resources.Scratch<float>(thread), kind, head_dim, max_context);
    ItemList items(meta, args.options, call.shared_lens, num_heads, args.kv.kv_heads, kind,
                   resources.pool.size(), max_item_kv_heads);
    ForEachItem(next, items, [&](const AttentionItem& item, const AttentionItem* after) {
      block(call, item, after, s);
    });
  };
  // A short chat's step is over before another thread is awake.
  constexpr int64_t kMinParallelScores = 2048;
  int64_t scores = 0;
  for (int s = 0; s < meta.num_seqs; ++s) {
    const int32_t* cu_q = meta.cu_seqlens_q.ptr<int32_t>();
    scores += int64_t{1} * (cu_q[s + 1] - cu_q[s]) * meta.kv_lens.ptr<int32_t>()[s] * num_heads;
  }
  if (scores < kMinParallelScores || resources.pool.size() == 1) {
    work(0);
  } else {
    resources.pool.Run(work);
  }
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
