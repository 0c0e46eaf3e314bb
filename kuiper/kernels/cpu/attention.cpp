// Attention over the KV cache. A work item is a block of query rows that share a kv head:
// consecutive positions of one sequence times the query heads of the group. So each key and value
// is loaded (and converted) once for all of them. An item of few query rows may have several kv
// heads: it computes each tile for all of them before it continues with the next tile.
//
// Scores are computed as in a linear layer whose weights are the keys. Up to kManyRows query rows
// use dot products with keys in place; more (prefill) use outer products with panels of keys. Up to
// kFewRows query rows (decode) read values in place; more read them from converted tiles.
//
// Numeric contract: the result of a query row does not depend on the block, prompt chunk, page or
// batch that it is computed in.
// - A score is a sum over one K block of linear/kernel.h, with the scaled query as activations.
// - An output is summed along the key positions in ascending order. BF16 and FP8 are summed in
//   pairs of rounded weights (attention_pairs.h).
// - Tiles start at absolute position 0, and no key after a row's own length enters the row.
// - The scale of a key multiplies its finished score. The scale of a value multiplies its softmax
//   weight, before the products with the elements of the value.
// - With INT8 both products are exact sums of integers (attention_int8.h).
//
// Cascade (AttnMeta::shared_lens): an item can also hold the query rows of several sequences that
// begin with the same pages. It computes the shared tiles for all of them, then the remaining tiles
// of each sequence separately.
//
// Decode reads each K and V once and is bound by memory; prefetched rows keep the memory busy. A
// long prefill is bound by multiply-adds. Expected are 0.8 of their peak in both products, and a
// tenth of the time for the softmax between them.
#include <algorithm>
#include <limits>
#include <vector>

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
#include "kuiper/kernels/cpu/attention_rows-inl.h"
#include "kuiper/kernels/cpu/attention_tile-inl.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear/kernel.h"
#include "kuiper/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

// Returns element 0 of query row r of the item in a matrix [tokens, heads * head_stride].
template <typename T>
HWY_INLINE T* ItemRow(const Tensor& matrix, const AttentionItem& item, int r, int64_t head_stride) {
  return matrix.row<T>(item.q_row + r / item.num_heads) + item.row_head(r) * head_stride;
}

void LoadQueries(const AttentionArgs& args, const AttentionCall& call, const AttentionItem& item,
                 const AttentionScratch& s) {
  const int head_dim = call.head_dim;
  const VF scale = hn::Set(DF(), args.scale);
  const bool as_integers = args.kv.format.element_type() == DType::kI8;
  const auto largest = static_cast<float>(MaxQueryInteger(head_dim));
  float scaled[kMaxHeadDim];
  VisitFloat(args.q.dtype, [&](auto zero) HWY_ATTR {
    for (int r = 0; r < item.num_rows(); ++r) {
      const auto* q = ItemRow<decltype(zero)>(args.q, item, r, args.QHeadStride());
      MapElements(scaled, head_dim, [&](auto load) HWY_ATTR { return hn::Mul(load(q), scale); });
      float* const row = s.q + r * s.dim;
      if (as_integers) {
        auto* integers = reinterpret_cast<int16_t*>(row);
        s.q_factors[r] = StoreQuantized(scaled, head_dim, largest, integers);
        std::fill(integers + head_dim, integers + s.dim, int16_t{0});
      } else {
        call.dots.convert(scaled, head_dim, reinterpret_cast<uint8_t*>(row));
        s.q_factors[r] = 1.0f;
      }
    }
  });
  std::fill(s.acc, s.acc + item.num_rows() * s.dim, 0.0f);
  std::fill(s.sum, s.sum + item.num_rows() * 16, 0.0f);
  std::fill(s.max, s.max + item.num_rows(), -std::numeric_limits<float>::infinity());
}

void StoreOutputs(const AttentionArgs& args, const AttentionItem& item, const AttentionScratch& s,
                  int head_dim) {
  VisitFloat(args.out.dtype, [&](auto zero) HWY_ATTR {
    for (int r = 0; r < item.num_rows(); ++r) {
      auto* out = ItemRow<decltype(zero)>(args.out, item, r, head_dim);
      const VF factor = hn::Set(DF(), 1.0f / FoldLanes(s.sum + r * 16));
      const float* acc = s.acc + r * s.dim;
      MapElements(out, head_dim, [&](auto load) HWY_ATTR { return hn::Mul(load(acc), factor); });
    }
  });
}

// Adds the tiles from position `begin` on to the softmax and outputs of the query rows, by online
// softmax (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022). `after` is null or the
// item that the thread computes next.
template <class View>
void FlashTiles(const AttentionCall& call, const View& view, const AttentionItem& item, int begin,
                const AttentionItem* after, const AttentionScratch& s) {
  const KeyRange all = item.keys();
  Tile<typename View::Row> loaded;
  TilePrefetcher<typename View::Row> fetcher;
  const bool few_rows = item.num_rows() <= kFewRows;
  const bool in_order = PrefetchesInAddressOrder(view.page_size()) && few_rows;
  RangePrefetcher* const lines = in_order ? &fetcher.lines() : nullptr;
  ChooseProducts(call, item, s, &loaded);
  loaded.keys_packed = item.num_rows() > kManyRows;
  if (loaded.keys_packed && !kIsInt8<typename View::Row>)
    SpreadQueries(call.dots, item.num_rows(), view.head_dim(), s);
  for (int tile = std::max(begin, WholeTiles(all.begin)); tile < all.end; tile += kTile) {
    if (in_order || !few_rows) fetcher.FindAfter(view, item, tile, after);
    ForEachKvHead(item, s, [&](const AttentionItem& one, const AttentionScratch& own) HWY_ATTR {
      FindRows(view, one, tile, lines, &loaded);
      LoadKeys(view, own, &loaded);
      if (loaded.keys_packed) PackKeys(call.dots, view.head_dim(), own, &loaded);
      LoadValues(call, view, one, own, &loaded);
      ForEachRowGroup(one.num_rows(), [&](int first, int rows) HWY_ATTR {
        if (!few_rows) fetcher.FetchPart(rows, one.num_rows());
        const RowGroup group(call, one, own, first, rows, tile, own.scores);
        ScoreTile(group, loaded);
        SoftmaxTile(group, one, loaded, tile);
        AddTile(group, loaded);
      });
    });
  }
}

// Computes the tiles from position `begin` on: first the tiles that all sequences of the run share.
// Then recurses into the shorter runs that share more tiles, down to single sequences.
template <class View>
void FlashItem(const AttentionCall& call, const View& view, const AttentionItem& item, int begin,
               const AttentionItem* after, const AttentionScratch& s) {
  if (item.num_seqs == 1) return FlashTiles(call, view, item, begin, after, s);
  const int32_t* shared_lens = call.shared_lens + item.seq;
  const int shared = WholeTiles(*std::min_element(shared_lens + 1, shared_lens + item.num_seqs));
  FlashTiles(call, view, item.ForSharedTokens(shared), begin, nullptr, s);
  for (int first = 0, end; first < item.num_seqs; first = end) {
    end = first + 1;
    while (end < item.num_seqs && WholeTiles(shared_lens[end]) > shared) ++end;
    FlashItem(call, view, item.ForSeqRange(first, end, call.kv_lens), shared,
              end < item.num_seqs ? nullptr : after, s.From(first * item.num_heads));
  }
}

// Plain softmax: computes all scores, their maximum and all exponentials, then adds the values.
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
      loaded.ScaleByKeys(s.scores + r * s.score_stride + tile, loaded.keys, s.q_factors[r]);
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
    LoadValues(call, view, item, s, &loaded);
    AddTile(group(tile), loaded);
  }
}

// Returns the pair kernel for this instruction set. `fast`: the kernel with the machine's BF16
// instruction, which AVX-512 prefers, or null.
const PairKernel* ChoosePairKernel([[maybe_unused]] const PairKernel* fast) {
  static constexpr PairKernel kKernel = MakePlainPairKernel();
#if HWY_TARGET == HWY_AVX3
  if (fast != nullptr) return fast;
#endif
  return &kKernel;
}

void AttentionBlock(const AttentionArgs& args, const AttentionCall& call, const AttentionItem& item,
                    const AttentionItem* after, const AttentionScratch& s) {
  ForEachKvHead(item, s, [&](const AttentionItem& one, const AttentionScratch& own) HWY_ATTR {
    LoadQueries(args, call, one, own);
  });
  VisitKv(args.kv, [&](const auto& view) HWY_ATTR {
    if (call.kind == AttentionKind::kMha) {
      MhaItem(call, view, item, s);
    } else {
      FlashItem(call, view, item, 0, after, s);
    }
  });
  ForEachKvHead(item, s, [&](const AttentionItem& one, const AttentionScratch& own) HWY_ATTR {
    StoreOutputs(args, one, own, call.head_dim);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kuiper/kernels/cpu/target_switch.h"

namespace kuiper::cpu {
namespace {

const Int8Kernel* Int8KernelFor(int64_t target, const Int8Kernel* fast) {
  KU_RETURN_FOR_TARGET(target, ChooseInt8Kernel(fast))
}

}  // namespace

HWY_EXPORT(AttentionBlock);
HWY_EXPORT(ChooseInt8Kernel);
HWY_EXPORT(ChoosePairKernel);
HWY_EXPORT(MaxItemKvHeads);

std::vector<const Int8Kernel*> Int8Kernels() {
  std::vector<const Int8Kernel*> kernels;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    kernels.push_back(Int8KernelFor(target, nullptr));
  }
  if (Avx512Int8Kernel() != nullptr) kernels.push_back(Avx512Int8Kernel());
  return kernels;
}

size_t AttentionScratchBytes(AttentionKind kind, int max_context) {
  AttentionScratch scratch;
  return scratch.Carve(nullptr, kind, kMaxHeadDim, max_context) * sizeof(float);
}

void Run(const Resources& resources, const AttentionArgs& args) {
  const auto block = HWY_DYNAMIC_DISPATCH(AttentionBlock);
  const AttentionKind kind = resources.attention;
  const AttnMeta& meta = args.meta;
  const int head_dim = args.kv.head_dim(), max_context = resources.limits.max_context;
  static_assert(int64_t{128} * kMaxHeadDim * MaxQueryInteger(kMaxHeadDim) <= INT32_MAX);
  KU_CHECK(head_dim <= kMaxHeadDim, "head_dim is too large");
  KU_CHECK(meta.max_kv_len <= max_context, "more than was reserved");
  const int num_heads = static_cast<int>(args.q.shape[1]) / head_dim;
  const Tensor& slopes = args.options.alibi_slopes;
  // No cascade with ALiBi or a sliding window: shared tiles apply neither.
  const bool cascade = !meta.shared_lens.empty() && kind != AttentionKind::kMha &&
                       args.options.window == 0 && slopes.empty();
  const PairKernel& pairs = *HWY_DYNAMIC_DISPATCH(ChoosePairKernel)(resources.bf16_pair_kernel);
  const DType element = args.kv.format.element_type();
  const bool is_int8 = element == DType::kI8, is_paired = IsPaired(element);
  const WeightFormat keys = WeightFormat::Dense(is_paired || is_int8 ? DType::kBF16 : element);
  const AttentionCall call{kind,
                           head_dim,
                           resources.linear.kernels()[keys],
                           pairs,
                           *HWY_DYNAMIC_DISPATCH(ChooseInt8Kernel)(Avx512Int8Kernel()),
                           slopes.empty() ? nullptr : slopes.ptr<float>(),
                           meta.kv_lens.ptr<int32_t>(),
                           cascade ? meta.shared_lens.ptr<int32_t>() : nullptr};
  const int max_item_kv_heads =
      kind == AttentionKind::kMha ? 1 : HWY_DYNAMIC_DISPATCH(MaxItemKvHeads)(args.kv);
  const ItemList all(meta, args.options, call.shared_lens, num_heads, args.kv.kv_heads, kind,
                     resources.pool.size(), max_item_kv_heads);
  WorkShares& shares = resources.pool.Divide(all.CountItems());
  const auto work = [&](int thread) {
    const ScopedFlushSubnormals flush(is_paired || is_int8);
    AttentionScratch s;
    s.Carve(resources.Scratch<float>(thread), kind, head_dim, max_context);
    ItemList items = all;
    ForEachItem(shares, thread, items, [&](const AttentionItem& item, const AttentionItem* after) {
      block(args, call, item, after, s);
    });
  };
  // Below this, the step of a short chat ends before another thread is awake.
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
