// The only transformer loop: a decoder described by data (DecoderConfig, DecoderWeights), running
// on Ops. Forward allocates nothing, does not sync and cannot fail.
//
// Dimensions: T tokens of the step, R rows that are sampled, H query heads, G KV heads, D head_dim.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/kv/kv_cache.h"
#include "kuiper/model/batch.h"
#include "kuiper/model/config.h"
#include "kuiper/ops/linear.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

struct LayerWeights {
  Tensor attn_norm, mlp_norm;  // [hidden]
  Tensor q_norm, k_norm;       // [D] or empty
  Linear qkv;                  // parts q [H*D, hidden], k [G*D, hidden], v [G*D, hidden]
  Linear o;                    // [hidden, H*D]
  Linear gate_up;              // parts gate [intermediate, hidden], up [intermediate, hidden]
  Linear down;                 // [hidden, intermediate]
};

struct DecoderWeights {
  Tensor embed;       // [vocab, hidden]
  Tensor final_norm;  // [hidden]
  std::vector<LayerWeights> layers;
  Linear lm_head;  // [vocab, hidden]; the embedding itself if the weights are tied
  RopeTable rope;

  bool is_embed_prepacked() const {
    const WeightMatrix& head = lm_head.parts[0].weight;
    return head.is_prepacked && head.values.data == embed.data;
  }
};

// Working memory of a step, allocated once; Forward uses the first T and R rows.
struct Activations {
  Buffer arena;
  int max_tokens = 0;
  int max_outputs = 0;
  Tensor residual;  // [max_tokens, hidden] f32
  Tensor x;         // [max_tokens, hidden], input of the next linear layer
  Tensor qkv;       // [max_tokens, (H + 2G)*D]
  Tensor attn;      // [max_tokens, H*D]
  Tensor mlp;       // [max_tokens, intermediate], silu(gate)*up; shares the memory of qkv and attn
  Tensor out_residual;  // [max_outputs, hidden] f32
  Tensor out_x;         // [max_outputs, hidden]
  Tensor logits;        // [max_outputs, vocab] f32
};

// Returns the bytes of the arena that MakeActivations allocates, for the memory plan.
size_t ActivationBytes(const DecoderConfig& config, DType activation_type, int max_tokens,
                       int max_outputs);
StatusOr<Activations> MakeActivations(Ops& ops, const DecoderConfig& config, int max_tokens,
                                      int max_outputs);

// The linear layers of a decoder layer, in the order of computation.
enum class LayerLinear { kQkv, kO, kGateUp, kDown };

// Called before a linear layer with its input x [T, in]. Ops may still be in flight: sync before
// reading.
using LinearProbe = std::function<void(LayerLinear linear, Tensor x)>;

// Called after each layer with the residual stream [T, hidden]. Ops may still be in flight: sync
// before reading.
using LayerProbe = std::function<void(int layer, Tensor residual)>;

class Decoder {
 public:
  // The weights' memory belongs to the Model, which outlives the decoder.
  Decoder(DecoderConfig config, DecoderWeights weights, Ops& ops);

  const DecoderConfig& config() const { return config_; }
  const DecoderWeights& weights() const { return weights_; }
  // True if a linear layer is quantised; the LM head does not count.
  bool quantized() const;
  // Prepares Ops for the layers. Call after Ops::Reserve and before the first step.
  Status Prepare() const;
  // Appends the batch's keys and values to the cache and fills act.logits[0, R).
  void Forward(const Batch& batch, const KvCache& kv, Activations& act,
               const LayerProbe& probe = {}) const;
  // The parts of Forward before the LM head, for programs that inspect a model layer by layer.
  // Embed fills act.residual [T, hidden] from the batch's tokens. RunLayer runs one layer: it
  // appends to `kv` and adds to act.residual.
  void Embed(const Batch& batch, Activations& act) const;
  void RunLayer(int layer, const Batch& batch, const KvView& kv, Activations& act,
                const LinearProbe& probe = {}) const;

 private:
  // Rows that pass through a layer from attention on.
  struct Rows {
    Tensor residual;  // [n, hidden] f32
    Tensor x;         // [n, hidden]
    Tensor q;         // [n, H*D]
    Tensor attn;      // [n, H*D], must not overlap q
    Tensor mlp;       // [n, intermediate]; may overlap q and attn
    AttnMeta meta;
    int num_decode_rows = 0;  // leading decode rows
  };
  Tensor Positions(const Batch& batch) const;
  // Fills act.qkv with queries ready for attention, and appends keys and values to `kv`.
  void AppendKv(int layer, const Batch& batch, const KvView& kv, Activations& act,
                const LinearProbe& probe) const;
  void AttendAndMlp(int layer, const Rows& rows, const KvView& kv, const LinearProbe& probe) const;
  // True if the last layer computes batch.last_rows only.
  bool ComputesLastRowsOnly(const Batch& batch) const;
  // Runs the last layer, from attention on for batch.last_rows only. Returns the input of the LM
  // head, [R, hidden], or an empty tensor when R == 0.
  Tensor FinishLastRows(const Batch& batch, const KvView& kv, Activations& act) const;
  // Returns the input of the LM head after a last layer that computed all rows.
  Tensor FinishRows(const Batch& batch, Activations& act) const;
  void Norm(const Tensor& out, const Tensor& x, const Tensor& weight) const;
  // Applies the batch's embedding overrides: to the embeddings (num_layers_done == 0), or to the
  // residual stream after that many layers.
  void ApplyOverrides(const Batch& batch, int num_layers_done, Activations& act) const;

  DecoderConfig config_;
  DecoderWeights weights_;
  Ops* ops_;
  float scale_;
};

}  // namespace kuiper
