// The ops: one plain struct each, which defines the computation, checks its arguments, and travels
// unchanged from the call (Ops::Run) to the kernels of a backend. KU_FOR_EACH_OP lists all ops; a
// backend that does not define one of them does not link. Every tensor of a call is on the device.
// Values that change per step (positions, lengths, tables) are read from device arrays, never from
// host scalars, so that a captured step can be replayed.
//
// Dimensions: T tokens of the step, S sequences, R rows that are sampled, H query heads, G KV
// heads, D head_dim.
#pragma once

#include <cstdint>
#include <limits>

#include "kuiper/base/tensor.h"
#include "kuiper/ops/arg_checker.h"
#include "kuiper/ops/kv_view.h"
#include "kuiper/ops/linear.h"
#include "kuiper/ops/sampling_params.h"
#include "kuiper/ops/token_ref.h"

// X(Name) for each op; its arguments are NameArgs.
#define KU_FOR_EACH_OP(X) \
  X(Embed)                \
  X(FillRandom)           \
  X(GatherRows)           \
  X(PatchRows)            \
  X(RmsNorm)              \
  X(LayerNorm)            \
  X(AddWeightedRows)      \
  X(Apply)                \
  X(QkNormRopeStore)      \
  X(StoreKv)              \
  X(CopyPages)            \
  X(Attention)            \
  X(Sample)

namespace kuiper {

// out [T, hidden] = table[ids]. Writes NaN for a token that Sample chose as kNotFiniteToken.
struct EmbedArgs {
  Tensor out;           // [T, hidden], any float type
  Tensor table;         // [vocab, hidden], any float type
  Tensor ids;           // [T] i32, an array of TokenRef
  Tensor sampled = {};  // [max R] i32, the last output of Sample; empty if all ids are known
  // The table is also a layer's matrix, see WeightMatrix::is_prepacked.
  bool is_table_prepacked = false;

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Matrix(out, "out");
    check.Matrix(table, "table");
    check.Require(table.shape[1] == out.shape[1], "table and out differ in width");
    check.Vector(ids, "ids", DType::kI32, out.rows());
    if (!sampled.empty()) check.Vector(sampled, "sampled", DType::kI32, sampled.numel());
  }
};

// Fills `out` with random weights: random signs, magnitudes from 2^-7 to 2^-6. Value i depends on
// (seed, i) only: it is the same in every type and on every device.
struct FillRandomArgs {
  Tensor out;  // dense, any float type and shape
  uint64_t seed = 0;

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Present(out, "out");
    check.Require(IsFloat(out.dtype) && out.is_dense(), "out is not a dense float tensor");
  }
};

// out = x[rows].
struct GatherRowsArgs {
  Tensor out;   // [R, hidden]
  Tensor x;     // [T, hidden], of the same type
  Tensor rows;  // [R] i32

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Matrix(x, "x");
    check.Vector(rows, "rows", DType::kI32, out.rows());
    check.Matrix(out, "out", x, rows.shape[0], x.shape[1]);
  }
};

// Overrides the embeddings of rows: out = x, or out += x.
struct PatchRowsArgs {
  Tensor out;        // [n, hidden] f32
  Tensor x;          // [n, hidden], any float type
  bool add = false;  // add to `out` instead of replacing it

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Matrix(out, "out");
    check.Require(out.dtype == DType::kF32, "out is not FP32");
    check.Matrix(x, "x", out.rows(), out.shape[1]);
  }
};

// out = x / sqrt(mean(x^2) + eps) * weight, of any float types.
struct RmsNormArgs {
  Tensor out;     // [T, n]
  Tensor x;       // [T, n]
  Tensor weight;  // [n]
  float eps = 0.0f;

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Matrix(x, "x");
    check.Matrix(out, "out", x.rows(), x.shape[1]);
    check.Weight(weight, "weight", x.shape[1]);
  }
};

// out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias, of any float types.
struct LayerNormArgs {
  Tensor out;     // [T, n]
  Tensor x;       // [T, n]
  Tensor weight;  // [n]
  Tensor bias;    // [n]
  float eps = 0.0f;

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Matrix(x, "x");
    check.Matrix(out, "out", x.rows(), x.shape[1]);
    check.Weight(weight, "weight", x.shape[1]);
    check.Weight(bias, "bias", x.shape[1]);
  }
};

// out[t] += sum over j of weights[t][j] * table[rows[t][j]]. The sum is computed first, with j
// ascending.
struct AddWeightedRowsArgs {
  Tensor out;      // [T, n], any float type
  Tensor table;    // [rows, n], any float type
  Tensor rows;     // [T, J] i32
  Tensor weights;  // [T, J] f32

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    check.Matrix(out, "out");
    check.Matrix(table, "table");
    check.Require(table.shape[1] == out.shape[1], "table and out differ in width");
    check.Present(rows, "rows");
    check.Require(rows.rank == 2 && rows.dtype == DType::kI32 && rows.shape[0] == out.rows() &&
                      rows.is_dense(),
                  "rows is not dense I32 [T, J]");
    check.Matrix(weights, "weights", out.rows(), rows.shape[1]);
    check.Require(weights.dtype == DType::kF32 && weights.is_dense(),
                  "weights are not dense FP32 [T, J]");
  }
};

// The linear layer x W^T + b, finished as `epilogue` says. The order of summation along `in` never
// depends on T, only on the weight's shape and type. Unless strict, it also depends on whether a
// row is a decode row, and then on whether the rows of x are contiguous.
struct ApplyArgs {
  static constexpr int kAllRows = std::numeric_limits<int>::max();

  Tensor out;     // [T, OutputColumns(linear, epilogue)]
  Tensor x;       // [T, linear.in]
  Linear linear;  // W and b
  Epilogue epilogue = Epilogue::kStore;
  int num_decode_rows = kAllRows;  // leading decode rows; the others are prefill rows

  bool HasWork() const { return out.numel() > 0; }
  void Check(const ArgChecker& check) const {
    const Linear& w = linear;
    check.Matrix(x, "x");
    check.Matrix(out, "out");
    check.Require(
        x.shape[1] == w.in && out.shape[1] == OutputColumns(w, epilogue) && out.rows() == x.rows(),
        "x, out and the weight differ in shape");
    check.Require(w.num_parts >= 1 && w.num_parts <= Linear::kMaxParts, "malformed Linear");
    check.Require(epilogue != Epilogue::kSwiGlu ||
                      (w.num_parts == 2 && w.parts[0].weight.rows() == w.parts[1].weight.rows()),
                  "gate and up differ in shape");
    int64_t total = 0;
    for (int i = 0; i < w.num_parts; ++i) {
      const Linear::Part& part = w.parts[i];
      check.Require(part.weight.format == w.format() && part.weight.Fits(w.in, out.device),
                    "the weight is not [out, in] in the one format of its layer");
      if (!part.bias.empty()) check.Weight(part.bias, "bias", part.weight.rows());
      total += part.weight.rows();
    }
    check.Require(total == w.out, "the parts do not add up to out");
    check.Require(num_decode_rows >= 0, "a negative number of decode rows");
  }
};

// Writes keys and values to the cache.
struct StoreKvArgs {
  KvView kv;
  Tensor k;      // [T, G*D]
  Tensor v;      // [T, G*D], of the same type
  Tensor slots;  // [T] i32, destination slots

  bool HasWork() const { return k.rows() > 0; }
  void Check(const ArgChecker& check) const {
    check.Require(kv.IsComplete(), "malformed KV view");
    check.Matrix(k, "k");
    check.Require(k.shape[1] == kv.row_width(), "k and the cache differ");
    check.Matrix(v, "v", k, k.rows(), k.shape[1]);
    check.Vector(slots, "slots", DType::kI32, k.rows());
  }
};

struct RopeTable {
  // [max_pos, D] f32: for each position, D/2 cosines of the pairs i, then D/2 sines.
  Tensor cos_sin;
  Tensor axis_of_pair;  // [D/2] i32: the row of `positions` that rotates pair i (text: all 0)
};

// Prepares column slices of q, k and v for attention. Heads of q and k get an RMSNorm if its
// weights are given (Qwen3) and a rotation of the pairs (i, i + D/2) ("rotate half"). q changes in
// place; k and v go to the cache.
struct QkNormRopeStoreArgs {
  Tensor q;            // [T, H*D]
  StoreKvArgs store;   // k and v have the type of q
  Tensor q_norm = {};  // [D] or empty
  Tensor k_norm = {};  // like q_norm
  float eps = 0.0f;
  RopeTable rope;
  Tensor positions;  // [axes, T] i32

  bool HasWork() const { return q.rows() > 0; }
  void Check(const ArgChecker& check) const {
    store.Check(check);
    check.Matrix(q, "q", store.k, store.k.rows(), q.shape[1]);
    check.Matrix(rope.cos_sin, "cos_sin");
    const int64_t head_dim = rope.cos_sin.shape[1];
    check.Require(rope.cos_sin.dtype == DType::kF32 && head_dim >= 2 && head_dim % 2 == 0 &&
                      head_dim == store.kv.head_dim(),
                  "the RoPE table is not FP32 [max_pos, even head_dim]");
    check.Vector(rope.axis_of_pair, "axis_of_pair", DType::kI32, head_dim / 2);
    check.Require(q.shape[1] % head_dim == 0, "q is not a multiple of head_dim wide");
    check.Require(q_norm.empty() == k_norm.empty(), "one of q_norm and k_norm is missing");
    if (!q_norm.empty()) {
      check.Weight(q_norm, "q_norm", head_dim);
      check.Weight(k_norm, "k_norm", head_dim);
    }
    check.Present(positions, "positions");
    check.Require(positions.rank == 2 && positions.dtype == DType::kI32 &&
                      positions.shape[0] >= 1 && positions.shape[1] == q.rows(),
                  "positions is not I32 [axes, T]");
  }
};

// Copies tokens of pages (contiguous: cache rows) within the cache, for all layers at once. No page
// may be the target of two copies, or both a source and a target.
struct CopyPagesArgs {
  KvView kv;      // view of any layer
  Tensor copies;  // [C, 3] i32 (from, to, n): the first n tokens of page `from` go to page `to`

  bool HasWork() const { return copies.rows() > 0; }
  void Check(const ArgChecker& check) const {
    check.Require(kv.IsComplete(), "malformed KV view");
    check.Require(kv.HasRuns(), "the KV view is not of a KvCache");
    check.Present(copies, "copies");
    check.Require(copies.rank == 2 && copies.dtype == DType::kI32 && copies.shape[1] == 3 &&
                      copies.is_dense() && copies.rows() <= 65535,
                  "copies is not dense I32 [at most 65535, 3]");
  }
};

// Maps the rows of a flat batch to sequences. Sequence s has the query rows [cu_seqlens_q[s],
// cu_seqlens_q[s+1]), which are the last ones of its kv_lens[s] tokens.
struct AttnMeta {
  Tensor cu_seqlens_q;  // [S + 1] i32
  Tensor kv_lens;       // [S] i32, including this step's tokens
  int num_seqs = 0;
  int max_q_len = 0;  // upper bounds for grid sizes, never exact values
  int max_kv_len = 0;
  // Cascade: sequences that begin with the same pages are adjacent, and a backend may read shared
  // pages once for all of them. The resulting bits are the same as without it. [S] i32: the first
  // shared_lens[s] tokens of s are on the same pages as those of s - 1. It is less than kv_lens of
  // both, and 0 unless both have one query row. Empty = off.
  Tensor shared_lens = {};
  // A decode step: each sequence has one query row, whose key and value the kernels of this step
  // store. These arrays and all other keys and values were complete before an Upload that precedes
  // the first kernel of the step. A backend may therefore read them while the kernels before
  // attention still run.
  bool appends = false;
};

// Defines which keys a query attends to, and what is added to its scores. Row i of a sequence has
// the position p = kv_len - q_len + i. It attends to the positions k in [0, kv_len) with
//   causal:                k <= p,
//   window > 0 as well:    |k - p| < window.
// Keys outside the window are not read. ALiBi (Press et al. 2022) adds slope[head] * (k - p) to the
// scaled score.
struct AttnOptions {
  bool causal = true;
  int window = 0;            // tokens; 0 = off
  Tensor alibi_slopes = {};  // [H] f32; empty = off
};

// Attention of q over the cached keys and values of its sequence, softmax(q k^T * scale) v; query
// head h reads kv head h / (H / G).
struct AttentionArgs {
  Tensor out;  // [T, H*D]
  Tensor q;    // [T, H*D], of the same type
  KvView kv;
  AttnMeta meta;
  float scale = 1.0f;
  AttnOptions options = {};
  // Elements between the heads of a token of q; 0 = D. Tokens may be closer together than heads.
  int64_t q_head_stride = 0;

  bool HasWork() const { return q.rows() > 0 && meta.num_seqs > 0; }
  int64_t QHeadStride() const { return q_head_stride != 0 ? q_head_stride : kv.head_dim(); }
  void Check(const ArgChecker& check) const {
    check.Require(kv.IsComplete(), "malformed KV view");
    if (q_head_stride == 0) check.Matrix(q, "q");
    check.Require(QHeadStride() >= kv.head_dim() && q.stride[0] >= kv.head_dim(),
                  "the heads of q overlap");
    check.Matrix(out, "out", q, q.rows(), q.shape[1]);
    check.Require(q.shape[1] > 0 && q.shape[1] % kv.row_width() == 0,
                  "the number of query heads is not a multiple of the number of kv heads");
    check.Require(meta.num_seqs >= 0 && kv.tables != nullptr, "malformed batch");
    check.Vector(meta.cu_seqlens_q, "cu_seqlens_q", DType::kI32, meta.num_seqs + 1);
    check.Vector(meta.kv_lens, "kv_lens", DType::kI32, meta.num_seqs);
    if (!meta.shared_lens.empty()) {
      check.Vector(meta.shared_lens, "shared_lens", DType::kI32, meta.num_seqs);
    }
    check.Require(options.window >= 0, "negative window");
    if (!options.alibi_slopes.empty()) {
      check.Vector(options.alibi_slopes, "alibi_slopes", DType::kF32, q.shape[1] / kv.head_dim());
    }
  }
};

// Sampling data of one row: the request's parameters and the values for this step.
struct SampleRow {
  SamplingParams params;
  int32_t index = 0;          // index of the token among those generated for the request
  int32_t first_penalty = 0;  // where its part of penalty_tokens and penalty_counts begins
  int32_t num_penalties = 0;
  int32_t first_bias = 0;  // where its part of bias_tokens and bias_values begins
  int32_t num_biases = 0;
};

// Samples tokens from logits: biases, penalties, then temperature, the filters and a Gumbel-max
// draw. The draw depends on (logits, parameters, seed, index) only; ties go to the lowest id. A row
// gives kNotFiniteToken if a logit is NaN or +inf, or if no logit is finite. The logits are not
// modified.
struct SampleArgs {
  Tensor tokens;               // [R] i32
  Tensor logits;               // [R, vocab] f32
  Tensor rows;                 // [R * sizeof(SampleRow)] u8, an array of SampleRow
  Tensor penalty_tokens = {};  // [N] i32: distinct ids of the prompt and the output of each row
  Tensor penalty_counts = {};  // [N] i32: how often the id was generated (0: only in the prompt)
  Tensor bias_tokens = {};     // [B] i32: distinct ids of each row
  Tensor bias_values = {};     // [B] f32: added to the id's logit; -inf excludes the id
  int vocab_limit = 0;         // ids >= this are padding rows of the model and are never chosen

  bool HasWork() const { return logits.rows() > 0; }
  void Check(const ArgChecker& check) const {
    const int64_t num_rows = logits.rows();
    check.Matrix(logits, "logits");
    check.Require(logits.dtype == DType::kF32, "logits are not FP32");
    check.Require(vocab_limit >= 1 && vocab_limit <= logits.shape[1],
                  "vocab_limit is not in [1, vocab]");
    check.Vector(tokens, "tokens", DType::kI32, num_rows);
    check.Vector(rows, "rows", DType::kU8, num_rows * static_cast<int64_t>(sizeof(SampleRow)));
    if (!penalty_tokens.empty()) {
      const int64_t n = penalty_tokens.numel();
      check.Vector(penalty_tokens, "penalty_tokens", DType::kI32, n);
      check.Vector(penalty_counts, "penalty_counts", DType::kI32, n);
    }
    if (!bias_tokens.empty()) {
      const int64_t n = bias_tokens.numel();
      check.Vector(bias_tokens, "bias_tokens", DType::kI32, n);
      check.Vector(bias_values, "bias_values", DType::kF32, n);
    }
  }
};

}  // namespace kuiper
