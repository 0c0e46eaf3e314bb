#include "kuiper/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace kuiper {
namespace {

struct Layout {
  size_t residual, x, qkv, attn, mlp, out_residual, out_x, logits, total;
};

// The residual stream is FP32 whatever the activation type is, and the branches add to it in FP32.
// Some models' residuals exceed the range of FP16, and every layer would round the sum once more.
constexpr DType kStream = DType::kF32;

// Computes offsets inside the arena, each 64-byte aligned.
Layout PlanArena(const DecoderConfig& c, DType dtype, int max_tokens, int max_outputs) {
  Layout layout{};
  const auto place = [&layout](int64_t rows, int64_t cols, DType type) {
    const size_t begin = layout.total;
    layout.total += (static_cast<size_t>(rows * cols) * DTypeBytes(type) + 63) / 64 * 64;
    return begin;
  };
  layout.residual = place(max_tokens, c.hidden, kStream);
  layout.x = place(max_tokens, c.hidden, dtype);
  // Attention and the MLP share the same memory, one after the other.
  layout.qkv = place(max_tokens, c.qkv_size(), dtype);
  layout.attn = place(max_tokens, c.q_size(), dtype);
  const size_t attention_end = std::exchange(layout.total, layout.qkv);
  layout.mlp = place(max_tokens, c.intermediate, dtype);
  layout.total = std::max(layout.total, attention_end);
  layout.out_residual = place(max_outputs, c.hidden, kStream);
  layout.out_x = place(max_outputs, c.hidden, dtype);
  layout.logits = place(max_outputs, c.vocab, DType::kF32);
  return layout;
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
  KU_ASSIGN_OR_RETURN(act.arena, ops.device().Allocate(layout.total));
  act.max_tokens = max_tokens;
  act.max_outputs = max_outputs;
  const Buffer& arena = act.arena;
  act.residual = arena.As(kStream, {max_tokens, config.hidden}, layout.residual);
  act.x = arena.As(dtype, {max_tokens, config.hidden}, layout.x);
  act.qkv = arena.As(dtype, {max_tokens, config.qkv_size()}, layout.qkv);
  act.attn = arena.As(dtype, {max_tokens, config.q_size()}, layout.attn);
  act.mlp = arena.As(dtype, {max_tokens, config.intermediate}, layout.mlp);
  act.out_residual = arena.As(kStream, {max_outputs, config.hidden}, layout.out_residual);
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

bool Decoder::quantized() const {
  return std::any_of(weights_.layers.begin(), weights_.layers.end(), [](const LayerWeights& w) {
    const Linear* const linears[] = {&w.qkv, &w.o, &w.gate_up, &w.down};
    return std::any_of(std::begin(linears), std::end(linears),
                       [](const Linear* linear) { return linear->format().is_quantized(); });
  });
}

Status Decoder::Prepare() const {
  const DType activations = ops_->ActivationType(config_.dtype);
  const auto prepare = [this](const Linear& linear, Epilogue epilogue, DType out_type) {
    return ops_->Prepare(linear, epilogue, out_type, OutputColumns(linear, epilogue));
  };
  for (const LayerWeights& w : weights_.layers) {
    KU_RETURN_IF_ERROR(prepare(w.qkv, Epilogue::kStore, activations));
    KU_RETURN_IF_ERROR(prepare(w.o, Epilogue::kAdd, kStream));
    KU_RETURN_IF_ERROR(prepare(w.gate_up, Epilogue::kSwiGlu, activations));
    KU_RETURN_IF_ERROR(prepare(w.down, Epilogue::kAdd, kStream));
  }
  return OkStatus();
}

// Returns the batch's positions for each axis of the RoPE. Text has one position per token, which
// applies to all axes.
Tensor Decoder::Positions(const Batch& batch) const {
  Tensor positions = batch.positions;
  const int axes = config_.rope.num_axes();
  if (positions.shape[0] == 1 && axes > 1) {
    positions.shape[0] = axes;
    positions.stride[0] = 0;
  }
  KU_CHECK(positions.shape[0] >= axes);
  return positions;
}

void Decoder::Norm(const Tensor& out, const Tensor& x, const Tensor& weight) const {
  ops_->Run(RmsNormArgs{.out = out, .x = x, .weight = weight, .eps = config_.rms_eps});
}

void Decoder::Embed(const Batch& batch, Activations& act) const {
  ops_->Run(EmbedArgs{.out = act.residual.Rows(0, batch.num_tokens),
                      .table = weights_.embed,
                      .ids = batch.token_ids,
                      .sampled = batch.sampled,
                      .is_table_prepacked = weights_.is_embed_prepacked()});
}

void Decoder::ApplyOverrides(const Batch& batch, int num_layers_done, Activations& act) const {
  const int64_t hidden = config_.hidden, begin = num_layers_done * hidden;
  for (const RowOverride& patch : batch.overrides) {
    if (begin >= patch.rows.shape[1]) continue;
    const int64_t end = patch.begin + patch.rows.rows();
    ops_->Run(PatchRowsArgs{.out = act.residual.Rows(patch.begin, end),
                            .x = patch.rows.Cols(begin, begin + hidden),
                            .add = num_layers_done > 0});
  }
}

void Decoder::AppendKv(int layer, const Batch& batch, const KvView& kv, Activations& act,
                       const LinearProbe& probe) const {
  const DecoderConfig& c = config_;
  const LayerWeights& w = weights_.layers[layer];
  const int tokens = batch.num_tokens, q_end = c.q_size(), k_end = q_end + c.kv_size();
  const Tensor x = act.x.Rows(0, tokens), qkv = act.qkv.Rows(0, tokens);
  Norm(x, act.residual.Rows(0, tokens), w.attn_norm);
  if (probe) probe(LayerLinear::kQkv, x);
  ops_->Run(
      ApplyArgs{.out = qkv, .x = x, .linear = w.qkv, .num_decode_rows = batch.num_decode_rows});
  ops_->Run(QkNormRopeStoreArgs{.q = qkv.Cols(0, q_end),
                                .store = {.kv = kv,
                                          .k = qkv.Cols(q_end, k_end),
                                          .v = qkv.Cols(k_end, c.qkv_size()),
                                          .slots = batch.slots},
                                .q_norm = w.q_norm,
                                .k_norm = w.k_norm,
                                .eps = c.rms_eps,
                                .rope = weights_.rope,
                                .positions = Positions(batch)});
}

void Decoder::AttendAndMlp(int layer, const Rows& rows, const KvView& kv,
                           const LinearProbe& probe) const {
  const LayerWeights& w = weights_.layers[layer];
  const auto apply = [&](LayerLinear which, const Tensor& out, const Tensor& x,
                         const Linear& linear, Epilogue epilogue) {
    if (probe) probe(which, x);
    ops_->Run(ApplyArgs{.out = out,
                        .x = x,
                        .linear = linear,
                        .epilogue = epilogue,
                        .num_decode_rows = rows.num_decode_rows});
  };
  ops_->Run(AttentionArgs{.out = rows.attn,
                          .q = rows.q,
                          .kv = kv,
                          .meta = rows.meta,
                          .scale = scale_,
                          .options = {.window = config_.window(layer)}});
  apply(LayerLinear::kO, rows.residual, rows.attn, w.o, Epilogue::kAdd);
  Norm(rows.x, rows.residual, w.mlp_norm);
  apply(LayerLinear::kGateUp, rows.mlp, rows.x, w.gate_up, Epilogue::kSwiGlu);
  apply(LayerLinear::kDown, rows.residual, rows.mlp, w.down, Epilogue::kAdd);
}

void Decoder::RunLayer(int layer, const Batch& batch, const KvView& kv, Activations& act,
                       const LinearProbe& probe) const {
  const int tokens = batch.num_tokens;
  AppendKv(layer, batch, kv, act, probe);
  AttendAndMlp(layer,
               {.residual = act.residual.Rows(0, tokens),
                .x = act.x.Rows(0, tokens),
                .q = act.qkv.Rows(0, tokens).Cols(0, config_.q_size()),
                .attn = act.attn.Rows(0, tokens),
                .mlp = act.mlp.Rows(0, tokens),
                .meta = batch.attn,
                .num_decode_rows = batch.num_decode_rows},
               kv, probe);
}

bool Decoder::ComputesLastRowsOnly(const Batch& batch) const {
  const int64_t behind_last_layer = int64_t{config_.layers} * config_.hidden;
  const auto is_patched = [&](const RowOverride& patch) {
    return patch.rows.shape[1] > behind_last_layer;
  };
  return !batch.last_rows.empty() &&
         std::none_of(batch.overrides.begin(), batch.overrides.end(), is_patched);
}

Tensor Decoder::FinishLastRows(const Batch& batch, const KvView& kv, Activations& act) const {
  const int last = config_.layers - 1, tokens = batch.num_tokens, seqs = batch.num_seqs;
  AppendKv(last, batch, kv, act, {});
  if (batch.num_outputs == 0) return {};
  const Tensor queries = act.qkv.Rows(0, tokens).Cols(0, config_.q_size());
  // Both are in act.attn: the output of attention is contiguous, as in other layers (ApplyArgs).
  const Rows rows{.residual = act.out_residual.Rows(0, seqs),
                  .x = act.out_x.Rows(0, seqs),
                  .q = act.attn.Rows(seqs, int64_t{2} * seqs),
                  .attn = act.attn.Rows(0, seqs),
                  .mlp = act.mlp.Rows(0, seqs),
                  .meta = batch.last_attn,
                  .num_decode_rows = batch.num_decode_rows};
  ops_->Run(GatherRowsArgs{
      .out = rows.residual, .x = act.residual.Rows(0, tokens), .rows = batch.last_rows});
  ops_->Run(GatherRowsArgs{.out = rows.q, .x = queries, .rows = batch.last_rows});
  AttendAndMlp(last, rows, kv, {});
  Norm(rows.x, rows.residual, weights_.final_norm);
  const Tensor x = act.x.Rows(0, batch.num_outputs);
  ops_->Run(GatherRowsArgs{.out = x, .x = rows.x, .rows = batch.last_outputs});
  return x;
}

Tensor Decoder::FinishRows(const Batch& batch, Activations& act) const {
  if (batch.num_outputs == 0) return {};  // a non-final chunk of a prompt
  const Tensor residual = act.out_residual.Rows(0, batch.num_outputs);
  const Tensor x = act.out_x.Rows(0, batch.num_outputs);
  ops_->Run(GatherRowsArgs{
      .out = residual, .x = act.residual.Rows(0, batch.num_tokens), .rows = batch.output_rows});
  Norm(x, residual, weights_.final_norm);
  return x;
}

void Decoder::Forward(const Batch& batch, const KvCache& kv, Activations& act,
                      const LayerProbe& probe) const {
  const int tokens = batch.num_tokens, outputs = batch.num_outputs;
  KU_CHECK(tokens > 0 && tokens <= act.max_tokens && outputs <= act.max_outputs);
  const bool leaves_out = !probe && ComputesLastRowsOnly(batch);
  const auto view = [&](int layer) { return kv.View(layer, batch.block_tables); };
  Embed(batch, act);
  ApplyOverrides(batch, 0, act);
  for (int i = 0; i < config_.layers - (leaves_out ? 1 : 0); ++i) {
    RunLayer(i, batch, view(i), act);
    ApplyOverrides(batch, i + 1, act);
    if (probe) probe(i, act.residual.Rows(0, tokens));
  }
  const Tensor x =
      leaves_out ? FinishLastRows(batch, view(config_.layers - 1), act) : FinishRows(batch, act);
  if (outputs == 0) return;
  ops_->Run(ApplyArgs{.out = act.logits.Rows(0, outputs), .x = x, .linear = weights_.lm_head});
}

}  // namespace kuiper
