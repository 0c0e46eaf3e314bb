// The contract checks. They read shapes and dtypes only, never device memory, so they hold while a
// step is recorded as well.
#include "kuiper/ops/ops.h"

#include <string>

namespace kuiper {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::string Describe(Tensor t) {
  std::string text = std::string(DTypeName(t.dtype)) + " [";
  for (int i = 0; i < t.rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(t.shape[i]);
  return text + "] on " + DeviceName(t.device);
}

// Checks the arguments of one op; every failure names the op and the argument.
class Checker {
 public:
  Checker(const char* op, Device device) : op_(op), device_(device) {}

  void That(bool condition, const char* what) const {
    KU_CHECK(condition, std::string(op_) + ": " + what);
  }
  // On the device, contiguous along the last dimension, and not empty unless it has no elements.
  void Present(Tensor t, const char* name) const {
    const bool ok = t.rank > 0 && (!t.empty() || t.numel() == 0) && t.device == device_ &&
                    (t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] <= 1);
    KU_CHECK(ok, Message(t, name));
  }
  void Matrix(Tensor t, const char* name) const {
    Present(t, name);
    KU_CHECK(t.rank == 2 && IsFloat(t.dtype) && t.stride[0] >= t.shape[1], Message(t, name));
  }
  // A matrix of any float type.
  void Matrix(Tensor t, const char* name, int64_t rows, int64_t cols) const {
    Matrix(t, name);
    KU_CHECK(t.shape[0] == rows && t.shape[1] == cols, Message(t, name));
  }
  // A matrix of the activations' type and shape.
  void Matrix(Tensor t, const char* name, Tensor like, int64_t rows, int64_t cols) const {
    Matrix(t, name, rows, cols);
    KU_CHECK(t.dtype == like.dtype, Message(t, name));
  }
  void Vector(Tensor t, const char* name, DType dtype, int64_t n) const {
    Present(t, name);
    KU_CHECK(t.rank == 1 && t.dtype == dtype && t.shape[0] == n, Message(t, name));
  }
  void Weight(Tensor t, const char* name, int64_t n) const {
    Present(t, name);
    KU_CHECK(t.rank == 1 && IsFloat(t.dtype) && t.shape[0] == n, Message(t, name));
  }

 private:
  std::string Message(Tensor t, const char* name) const {
    return std::string(op_) + ": unexpected " + name + " " + Describe(t);
  }

  const char* op_;
  Device device_;
};

void CheckKv(const Checker& check, const KvView& kv) {
  const bool paged = kv.kind == KvView::Kind::kPaged;
  check.That(IsFloat(kv.dtype) && kv.kv_heads > 0 && kv.s.head_dim > 0 &&
                 kv.s.token_stride >= kv.s.head_dim,
             "malformed KV view");
  check.That(paged ? kv.slabs != nullptr : kv.base != nullptr && kv.max_len > 0,
             "KV view without storage");
}

// Keys and values of T tokens on their way into the cache.
void CheckNewKv(const Checker& check, const KvView& kv, Tensor k, Tensor v, Tensor slots) {
  CheckKv(check, kv);
  check.Matrix(k, "k");
  check.That(k.shape[1] == int64_t{1} * kv.kv_heads * kv.s.head_dim, "k and the cache differ");
  check.Matrix(v, "v", k, k.rows(), k.shape[1]);
  check.Vector(slots, "slots", DType::kI32, k.rows());
}

}  // namespace

void Ops::Embed(Tensor out, Tensor table, Tensor ids, Tensor sampled) {
  const Checker check("Embed", device());
  check.Matrix(out, "out");
  check.Matrix(table, "table");
  check.That(table.shape[1] == out.shape[1], "table and out differ in width");
  check.Vector(ids, "ids", DType::kI32, out.rows());
  if (!sampled.empty()) check.Vector(sampled, "sampled", DType::kI32, sampled.numel());
  if (out.numel() > 0) DoEmbed(out, table, ids, sampled);
}

void Ops::FillRandom(Tensor out, uint64_t seed) {
  const Checker check("FillRandom", device());
  check.Present(out, "out");
  check.That(IsFloat(out.dtype) && out.is_dense(), "out is not a dense float tensor");
  if (out.numel() > 0) DoFillRandom(out, seed);
}

void Ops::GatherRows(Tensor out, Tensor x, Tensor rows) {
  const Checker check("GatherRows", device());
  check.Matrix(x, "x");
  check.Vector(rows, "rows", DType::kI32, out.rows());
  check.Matrix(out, "out", x, rows.shape[0], x.shape[1]);
  if (out.numel() > 0) DoGatherRows(out, x, rows);
}

void Ops::RmsNorm(Tensor out, Tensor x, Tensor weight, float eps) {
  const Checker check("RmsNorm", device());
  check.Matrix(x, "x");
  check.Matrix(out, "out", x.rows(), x.shape[1]);
  check.Weight(weight, "weight", x.shape[1]);
  if (out.numel() > 0) DoRmsNorm(out, x, weight, eps);
}

void Ops::Apply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue, int num_decode_rows) {
  const Checker check("Apply", device());
  check.Matrix(x, "x");
  check.Matrix(out, "out");
  check.That(
      x.shape[1] == w.in && out.shape[1] == OutputColumns(w, epilogue) && out.rows() == x.rows(),
      "x, out and the weight differ in shape");
  check.That(w.num_parts >= 1 && w.num_parts <= Linear::kMaxParts, "malformed Linear");
  check.That(epilogue != Epilogue::kSwiGlu ||
                 (w.num_parts == 2 && w.parts[0].weight.rows() == w.parts[1].weight.rows()),
             "gate and up differ in shape");
  int64_t total = 0;
  for (int i = 0; i < w.num_parts; ++i) {
    const Linear::Part& part = w.parts[i];
    check.That(part.weight.format == w.format() && part.weight.Fits(w.in, device()),
               "the weight is not [out, in] in the one format of its layer");
    if (!part.bias.empty()) check.Weight(part.bias, "bias", part.weight.rows());
    total += part.weight.rows();
  }
  check.That(total == w.out, "the parts do not add up to out");
  check.That(num_decode_rows >= 0, "a negative number of decode rows");
  if (out.numel() > 0) DoApply(out, x, w, epilogue, num_decode_rows);
}

void Ops::QkNormRopeStore(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm, float eps,
                          const RopeTable& rope, Tensor positions, const KvView& kv, Tensor slots) {
  const Checker check("QkNormRopeStore", device());
  CheckNewKv(check, kv, k, v, slots);
  check.Matrix(q, "q", k, k.rows(), q.shape[1]);
  check.Matrix(rope.cos_sin, "cos_sin");
  const int64_t head_dim = rope.cos_sin.shape[1];
  check.That(rope.cos_sin.dtype == DType::kF32 && head_dim >= 2 && head_dim % 2 == 0 &&
                 head_dim == kv.s.head_dim,
             "the RoPE table is not FP32 [max_pos, even head_dim]");
  check.Vector(rope.axis_of_pair, "axis_of_pair", DType::kI32, head_dim / 2);
  check.That(q.shape[1] % head_dim == 0, "q is not a multiple of head_dim wide");
  check.That(q_norm.empty() == k_norm.empty(), "one of q_norm and k_norm is missing");
  if (!q_norm.empty()) {
    check.Weight(q_norm, "q_norm", head_dim);
    check.Weight(k_norm, "k_norm", head_dim);
  }
  check.Present(positions, "positions");
  check.That(positions.rank == 2 && positions.dtype == DType::kI32 && positions.shape[0] >= 1 &&
                 positions.shape[1] == q.rows(),
             "positions is not I32 [axes, T]");
  if (q.rows() > 0) DoQkNormRopeStore(q, k, v, q_norm, k_norm, eps, rope, positions, kv, slots);
}

void Ops::StoreKv(const KvView& kv, Tensor k, Tensor v, Tensor slots) {
  const Checker check("StoreKv", device());
  CheckNewKv(check, kv, k, v, slots);
  if (k.rows() > 0) DoStoreKv(kv, k, v, slots);
}

void Ops::CopyPages(const KvView& kv, Tensor copies) {
  const Checker check("CopyPages", device());
  CheckKv(check, kv);
  check.That(kv.s.v_offset > 0 && kv.s.page_stride % kv.s.v_offset == 0 &&
                 kv.s.head_stride == 2 * kv.s.v_offset && kv.s.token_stride == kv.s.head_dim,
             "the KV view is not of a KvCache");
  check.Present(copies, "copies");
  check.That(copies.rank == 2 && copies.dtype == DType::kI32 && copies.shape[1] == 3 &&
                 copies.is_dense() && copies.rows() <= 65535,
             "copies is not dense I32 [at most 65535, 3]");
  if (copies.rows() > 0) DoCopyPages(kv, copies);
}

void Ops::Attention(Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta, float scale,
                    const AttnOptions& options) {
  const Checker check("Attention", device());
  CheckKv(check, kv);
  check.Matrix(q, "q");
  check.Matrix(out, "out", q, q.rows(), q.shape[1]);
  check.That(q.shape[1] > 0 && q.shape[1] % (int64_t{1} * kv.kv_heads * kv.s.head_dim) == 0,
             "the number of query heads is not a multiple of the number of kv heads");
  check.That(meta.num_seqs >= 0 && kv.tables != nullptr, "malformed batch");
  check.Vector(meta.cu_seqlens_q, "cu_seqlens_q", DType::kI32, meta.num_seqs + 1);
  check.Vector(meta.kv_lens, "kv_lens", DType::kI32, meta.num_seqs);
  if (!meta.shared_lens.empty()) {
    check.Vector(meta.shared_lens, "shared_lens", DType::kI32, meta.num_seqs);
  }
  check.That(options.window >= 0, "negative window");
  if (!options.alibi_slopes.empty()) {
    check.Vector(options.alibi_slopes, "alibi_slopes", DType::kF32, q.shape[1] / kv.s.head_dim);
  }
  if (q.rows() > 0 && meta.num_seqs > 0) DoAttention(out, q, kv, meta, scale, options);
}

void Ops::Sample(Tensor tokens, Tensor logits, const SampleArgs& args) {
  const Checker check("Sample", device());
  const int64_t rows = logits.rows();
  check.Matrix(logits, "logits");
  check.That(logits.dtype == DType::kF32, "logits are not FP32");
  check.That(args.vocab_limit >= 1 && args.vocab_limit <= logits.shape[1],
             "vocab_limit is not in [1, vocab]");
  check.Vector(tokens, "tokens", DType::kI32, rows);
  check.Vector(args.temperature, "temperature", DType::kF32, rows);
  check.Vector(args.top_k, "top_k", DType::kI32, rows);
  check.Vector(args.top_p, "top_p", DType::kF32, rows);
  check.Vector(args.min_p, "min_p", DType::kF32, rows);
  check.Vector(args.seed, "seed", DType::kI64, rows);
  check.Vector(args.step, "step", DType::kI32, rows);
  check.Vector(args.repetition_penalty, "repetition_penalty", DType::kF32, rows);
  check.Vector(args.presence_penalty, "presence_penalty", DType::kF32, rows);
  check.Vector(args.frequency_penalty, "frequency_penalty", DType::kF32, rows);
  check.Vector(args.penalty_offsets, "penalty_offsets", DType::kI32, rows + 1);
  if (!args.penalty_tokens.empty()) {
    const int64_t n = args.penalty_tokens.numel();
    check.Vector(args.penalty_tokens, "penalty_tokens", DType::kI32, n);
    check.Vector(args.penalty_counts, "penalty_counts", DType::kI32, n);
  }
  if (rows > 0) DoSample(tokens, logits, args);
}

}  // namespace kuiper
