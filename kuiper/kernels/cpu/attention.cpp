// Attention over the KV cache. A work item is a block of query rows that share a kv head:
// consecutive positions of one sequence times the query heads of the group, so that each key and
// value is loaded (and converted) once for all of them. Both matrix products are one register-tiled
// kernel: scores = Q K^T reads a tile of keys transposed into scratch, values are read as they lie
// (decode) or from a converted tile (prefill, where it pays).
//
// Bits: a score is summed along head_dim in ascending order, an output along the key positions in
// ascending order, tiles start at absolute position 0, and nothing beyond a row's own length enters
// it. The scale of a key multiplies its finished score, that of a value its weight, before the
// products with its elements. So a row's result does not depend on the block, chunk, page or batch
// it is computed in.
//
// Cascade (AttnMeta::shared_lens): an item can also be the rows of several sequences that begin
// with the same pages. They go through the tiles they share together, and each goes on alone.
//
// Decode reads each K and V once and is bound by memory; a prefill of long rows is bound by FMA.
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
#include "kuiper/kernels/cpu/attention_items.h"
#include "kuiper/kernels/cpu/attention_math-inl.h"
#include "kuiper/kernels/cpu/attention_tile-inl.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/simd-inl.h"

#ifndef KUIPER_KERNELS_CPU_ATTENTION_CPP_
#define KUIPER_KERNELS_CPU_ATTENTION_CPP_
namespace kuiper::cpu {

// The arguments of a call, the same for all of its items.
struct AttentionCall {
  AttentionKind kind;
  const AttentionArgs& args;
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
  VisitFloat(call.args.q.dtype, [&](auto zero) HWY_ATTR {
    for (int r = 0; r < item.num_rows(); ++r) {
      const auto* q = ItemRow<decltype(zero)>(call.args.q, item, r, call.args.QHeadStride());
      MapElements(s.q + r * s.dim, head_dim,
                  [&](auto load) HWY_ATTR { return hn::Mul(load(q), scale); });
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

// acc += p V for rows [first, first + rows) and the tile at `tile`, where p points to the tile's
// scores of row `first`: together where all of them see the keys, the rest of each row alone, so
// that no value enters a row that does not see it. Ascending positions for each row.
template <class B>
void AddValues(const AttentionItem& item, const AttentionScratch& s, const float* p,
               const B& values, int first, int rows, int tile) {
  float* acc = s.acc + first * s.dim;
  const auto keys = [&](int r) { return InTile(item.row_keys(first + r), tile); };
  const auto alone = [&](int r, int begin, int end) HWY_ATTR {
    if (begin >= end) return;
    Multiply(1, Product<B>{p + r * s.score_stride, s.score_stride, values, begin, end, s.dim, false,
                           acc + r * s.dim, s.dim});
  };
  const KeyRange top = keys(0), bottom = keys(rows - 1);  // both ends ascend with the row
  KeyRange common{bottom.begin, top.end};
  if (common.empty()) common = {kTile, kTile};
  for (int r = 0; r < rows && top.begin < common.begin; ++r) {
    const KeyRange own = keys(r);
    alone(r, own.begin, std::min(own.end, common.begin));
  }
  Multiply(rows, Product<B>{p, s.score_stride, values, common.begin, common.end, s.dim, false, acc,
                            s.dim});
  for (int r = 0; r < rows && common.end < bottom.end; ++r) alone(r, common.end, keys(r).end);
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

// scores = Q K^T for rows [first, first + rows) of the item and the loaded keys; `scores` is the
// tile's first column.
HWY_INLINE void ScoreTile(const AttentionScratch& s, KeyRange keys, int first, int rows,
                          int head_dim, float* scores) {
  const int begin = keys.begin / kPackKeys * kPackKeys;
  const StridedRows rows_of_keys{s.keys + begin, kKeyStride};
  Multiply(rows, Product<StridedRows>{s.q + first * s.dim, s.dim, rows_of_keys, 0, head_dim,
                                      RoundUp(keys.end - begin, kLanes), true, scores + begin,
                                      s.score_stride});
}

// Takes the tiles from position `begin` on into the rows' softmax and outputs: online softmax
// (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022).
template <class View>
void FlashTiles(const AttentionCall& call, const View& view, const AttentionItem& item, int begin,
                const AttentionScratch& s) {
  const KeyRange all = item.keys();
  Tile<typename View::Row> loaded;
  for (int tile = std::max(begin, WholeTiles(all.begin)); tile < all.end; tile += kTile) {
    NextRows(view, item, tile, &loaded);
    LoadTile(view, item, s, true, true, &loaded);
    ForEachRowGroup(item.num_rows(), [&](int first, int rows) HWY_ATTR {
      float* scores = s.scores + first * kTile;
      ScoreTile(s, loaded.keys, first, rows, view.head_dim(), scores);
      for (int r = first; r < first + rows; ++r) {
        const KeyRange own = InTile(item.row_keys(r), tile);
        if (own.empty()) continue;
        loaded.ScaleByKeys(s.scores + r * kTile, own);
        AddBias(call, item, r, own, tile, s.scores + r * kTile);
        OnlineSoftmax(s.scores + r * kTile, own, s.max + r, s.sum + r * 16, s.acc + r * s.dim,
                      s.dim);
        loaded.ScaleByValues(s.scores + r * kTile, own);
      }
      loaded.VisitValues(
          s, [&](const auto& b) HWY_ATTR { AddValues(item, s, scores, b, first, rows, tile); });
    });
  }
}

// Takes the tiles from position `begin` on: first those that all sequences of a run share, then
// those of the runs within it that share more, down to single sequences.
template <class View>
void FlashItem(const AttentionCall& call, const View& view, const AttentionItem& item, int begin,
               const AttentionScratch& s) {
  if (item.num_seqs == 1) return FlashTiles(call, view, item, begin, s);
  const int32_t* shared_lens = call.shared_lens + item.seq;
  const int shared = WholeTiles(*std::min_element(shared_lens + 1, shared_lens + item.num_seqs));
  FlashTiles(call, view, item.OfShared(shared), begin, s);
  for (int first = 0, end; first < item.num_seqs; first = end) {
    end = first + 1;
    while (end < item.num_seqs && WholeTiles(shared_lens[end]) > shared) ++end;
    FlashItem(call, view, item.Sequences(first, end, call.kv_lens), shared,
              s.From(first * item.num_heads));
  }
}

// Plain softmax: all scores, their maximum, all exponentials, then the values.
template <class View>
void MhaItem(const AttentionCall& call, const View& view, const AttentionItem& item,
             const AttentionScratch& s) {
  const KeyRange all = item.keys();
  const int first_tile = all.begin / kTile * kTile;
  Tile<typename View::Row> loaded;
  for (int tile = first_tile; tile < all.end; tile += kTile) {
    NextRows(view, item, tile, &loaded);
    LoadTile(view, item, s, true, false, &loaded);
    ScoreTile(s, loaded.keys, 0, item.num_rows(), view.head_dim(), s.scores + tile);
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
  loaded.next_end = -1;
  for (int tile = first_tile; tile < all.end; tile += kTile) {
    NextRows(view, item, tile, &loaded);
    LoadTile(view, item, s, false, true, &loaded);
    for (int r = 0; r < item.num_rows(); ++r) {
      loaded.ScaleByValues(s.scores + r * s.score_stride + tile, InTile(item.row_keys(r), tile));
    }
    loaded.VisitValues(s, [&](const auto& b) HWY_ATTR {
      AddValues(item, s, s.scores + tile, b, 0, item.num_rows(), tile);
    });
  }
}

void AttentionBlock(const AttentionCall& call, const AttentionItem& item,
                    const AttentionScratch& s) {
  const int head_dim = call.args.kv.head_dim();
  LoadQueries(call, item, s, head_dim);
  VisitKv(call.args.kv, [&](const auto& view) HWY_ATTR {
    if (call.kind == AttentionKind::kMha) {
      MhaItem(call, view, item, s);
    } else {
      FlashItem(call, view, item, 0, s);
    }
  });
  StoreOutputs(call, item, s, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(AttentionBlock);

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
  const AttentionCall call{kind, args, slopes.empty() ? nullptr : slopes.ptr<float>(),
                           meta.kv_lens.ptr<int32_t>(),
                           cascade ? meta.shared_lens.ptr<int32_t>() : nullptr};
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    AttentionScratch s;
    s.Carve(resources.Scratch<float>(thread), kind, head_dim, max_context);
    ItemList items(meta, args.options, call.shared_lens, num_heads, args.kv.kv_heads, MaxRows(kind),
                   resources.pool.size());
    AttentionItem item;
    while (items.Find(next.fetch_add(1, std::memory_order_relaxed), &item)) block(call, item, s);
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
