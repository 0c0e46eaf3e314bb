#include "kuiper/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kuiper {
namespace {

struct Layout {
  size_t residual, x, wide, narrow, out_residual, out_branch, out_x, logits, total;
  int wide_cols, narrow_cols;
};

// The residual stream and what the branches add to it are FP32 whatever the activations are: some
// models' residuals leave the range of FP16, and every layer would round the sum once more.
constexpr DType kStream = DType::kF32;

// Offsets inside the arena, each 64-byte aligned.
Layout PlanArena(const DecoderConfig& c, DType dtype, int max_tokens, int max_outputs) {
  Layout layout{};
  const int stream_cols = c.hidden * static_cast<int>(DTypeBytes(kStream) / DTypeBytes(dtype));
  layout.wide_cols = std::max({c.qkv_size(), 2 * c.intermediate, stream_cols});
  layout.narrow_cols = std::max(c.q_size(), c.intermediate);
  const auto place = [&layout](int64_t rows, int64_t cols, DType type) {
    const size_t begin = layout.total;
    layout.total += (static_cast<size_t>(rows * cols) * DTypeBytes(type) + 63) / 64 * 64;
    return begin;
  };
  layout.residual = place(max_tokens, c.hidden, kStream);
  layout.x = place(max_tokens, c.hidden, dtype);
  layout.wide = place(max_tokens, layout.wide_cols, dtype);
  layout.narrow = place(max_tokens, layout.narrow_cols, dtype);
  layout.out_residual = place(max_outputs, c.hidden, kStream);
  layout.out_branch = place(max_outputs, c.hidden, kStream);
  layout.out_x = place(max_outputs, c.hidden, dtype);
  layout.logits = place(max_outputs, c.vocab, DType::kF32);
  return layout;
}

// The beginning of a buffer as a dense matrix.
Tensor Matrix(const Tensor& buffer, DType dtype, int64_t rows, int64_t cols) {
  const Tensor t = Tensor::Dense(buffer.data, dtype, {rows, cols}, buffer.device);
  KU_CHECK(t.bytes() <= buffer.bytes());
  return t;
}
Tensor Matrix(const Tensor& buffer, int64_t rows, int64_t cols) {
  return Matrix(buffer, buffer.dtype, rows, cols);
}

}  // namespace

size_t ActivationBytes(const DecoderConfig& config, DType activation_type, int max_tokens,
                       int max_outputs) {
  return PlanArena(config, activation_type, max_tokens, max_outputs).total;
}

StatusOr<Activations> MakeActivations(Ops& ops, const DecoderConfig& config, int max_tokens,
                                      int max_outputs) {
  const DType dtype = ops.ActivationType(config.dtype);
  const Layout layout = PlanArena(config, dtype, max_tokens, max_outputs);
  Activations act;
  KU_ASSIGN_OR_RETURN(act.arena, ops.Allocate(layout.total));
  act.max_tokens = max_tokens;
  act.max_outputs = max_outputs;
  const Buffer& arena = act.arena;
  act.residual = arena.As(kStream, {max_tokens, config.hidden}, layout.residual);
  act.x = arena.As(dtype, {max_tokens, config.hidden}, layout.x);
  act.wide = arena.As(dtype, {max_tokens, layout.wide_cols}, layout.wide);
  act.narrow = arena.As(dtype, {max_tokens, layout.narrow_cols}, layout.narrow);
  act.out_residual = arena.As(kStream, {max_outputs, config.hidden}, layout.out_residual);
  act.out_branch = arena.As(kStream, {max_outputs, config.hidden}, layout.out_branch);
  act.out_x = arena.As(dtype, {max_outputs, config.hidden}, layout.out_x);
  act.logits = arena.As(DType::kF32, {max_outputs, config.vocab}, layout.logits);
  return act;
}

Decoder::Decoder(DecoderConfig config, DecoderWeights weights, Ops& ops)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      ops_(&ops),
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)))) {
  KU_CHECK(static_cast<int>(weights_.layers.size()) == config_.layers);
}

void Decoder::Forward(const Batch& batch, const KvCache& kv, Activations& act,
                      const LayerProbe& probe) const {
  const DecoderConfig& c = config_;
  const int tokens = batch.num_tokens;
  KU_CHECK(tokens > 0 && tokens <= act.max_tokens && batch.num_outputs <= act.max_outputs);
  const int q_end = c.q_size();
  const int k_end = q_end + c.kv_size();
  const Tensor residual = act.residual.Rows(0, tokens);
  const Tensor x = act.x.Rows(0, tokens);
  // One memory, three uses that never overlap in time: qkv, gate|up, and what a branch adds.
  const Tensor qkv = Matrix(act.wide, tokens, c.qkv_size());
  const Tensor gate_up = Matrix(act.wide, tokens, 2 * c.intermediate);
  const Tensor branch = Matrix(act.wide, kStream, tokens, c.hidden);
  const Tensor attn = Matrix(act.narrow, tokens, c.q_size());
  const Tensor mlp = Matrix(act.narrow, tokens, c.intermediate);

  ops_->Embed(residual, weights_.embed, batch.token_ids, batch.sampled);
  for (int i = 0; i < c.layers; ++i) {
    const LayerWeights& w = weights_.layers[i];
    if (i == 0) {
      ops_->RmsNorm(x, residual, w.attn_norm, c.rms_eps);
    } else {
      ops_->AddRmsNorm(x, residual, branch, w.attn_norm, c.rms_eps);
      if (probe) probe(i - 1, residual);
    }
    ops_->Apply(qkv, x, w.qkv);
    const Tensor q = qkv.Cols(0, q_end);
    const KvView view = kv.View(i, batch.block_tables);
    ops_->QkNormRopeStore(q, qkv.Cols(q_end, k_end), qkv.Cols(k_end, c.qkv_size()), w.q_norm,
                          w.k_norm, c.rms_eps, weights_.rope, batch.positions, view, batch.slots);
    ops_->Attention(attn, q, view, batch.attn, scale_);
    ops_->Apply(branch, attn, w.o);
    ops_->AddRmsNorm(x, residual, branch, w.mlp_norm, c.rms_eps);
    ops_->Apply(gate_up, x, w.gate_up);
    ops_->SiluMul(mlp, gate_up);
    ops_->Apply(branch, mlp, w.down);
  }

  const int outputs = batch.num_outputs;
  if (outputs == 0) return;  // a chunk of a prompt that goes on
  const Tensor out_residual = act.out_residual.Rows(0, outputs);
  const Tensor out_branch = act.out_branch.Rows(0, outputs);
  const Tensor out_x = act.out_x.Rows(0, outputs);
  ops_->GatherRows(out_residual, residual, batch.output_rows);
  ops_->GatherRows(out_branch, branch, batch.output_rows);
  ops_->AddRmsNorm(out_x, out_residual, out_branch, weights_.final_norm, c.rms_eps);
  if (probe) probe(c.layers - 1, out_residual);
  ops_->Apply(act.logits.Rows(0, outputs), out_x, weights_.lm_head);
}

}  // namespace kuiper
