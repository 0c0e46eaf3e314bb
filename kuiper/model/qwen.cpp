// The weights of dense decoders with Llama's structure: Llama, Qwen2, Qwen2.5, Qwen3.
#include <string>

#include "kuiper/model/architecture.h"
#include "kuiper/model/decoder.h"
#include "kuiper/model/manifest.h"

namespace kuiper {
namespace {

void AddLayer(const DecoderConfig& c, const std::string& prefix, LayerWeights* w,
              WeightManifest* list) {
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  list->AddNorm(prefix + "input_layernorm", c.hidden, &w->attn_norm);
  list->AddNorm(prefix + "post_attention_layernorm", c.hidden, &w->mlp_norm);
  if (c.qk_norm) {
    list->AddNorm(attention + "q_norm", c.head_dim, &w->q_norm);
    list->AddNorm(attention + "k_norm", c.head_dim, &w->k_norm);
  }
  const auto column = [&](const std::string& name, int out, bool bias, Linear* linear) {
    list->AddPart(name, WeightRole::kColumn, out, c.hidden, bias, linear);
  };
  column(attention + "q_proj", c.q_size(), c.qkv_bias, &w->qkv);
  column(attention + "k_proj", c.kv_size(), c.qkv_bias, &w->qkv);
  column(attention + "v_proj", c.kv_size(), c.qkv_bias, &w->qkv);
  list->AddPart(attention + "o_proj", WeightRole::kRow, c.hidden, c.q_size(), c.o_bias, &w->o);
  column(mlp + "gate_proj", c.intermediate, c.mlp_bias, &w->gate_up);
  column(mlp + "up_proj", c.intermediate, c.mlp_bias, &w->gate_up);
  list->AddPart(mlp + "down_proj", WeightRole::kRow, c.hidden, c.intermediate, c.mlp_bias,
                &w->down);
}

}  // namespace

WeightManifest ListQwenWeights(const DecoderConfig& c, const std::string& prefix,
                               DecoderWeights* w) {
  WeightManifest list;
  list.ignored_suffix = ".rotary_emb.inv_freq";  // a table that old exports contain
  list.weights.push_back({.name = prefix + "embed_tokens.weight",
                          .shape = {c.vocab, c.hidden},
                          .role = WeightRole::kVocabulary,
                          .tensor = &w->embed});
  list.AddNorm(prefix + "norm", c.hidden, &w->final_norm);
  list.AddPart("lm_head", WeightRole::kVocabulary, c.vocab, c.hidden, /*bias=*/false, &w->lm_head);
  Weight& head = list.weights.back();
  if (c.tie_embeddings) {
    // Some exports of tied models store the shared table under the LM head's name only, or twice.
    list.weights[0].alias = head.name;
    list.weights[0].matrix = head.matrix;
    list.weights.pop_back();
  } else {
    head.if_missing = "config.json says that it is not tied to the embedding (tie_word_embeddings)";
  }
  w->layers.resize(c.layers);
  for (int i = 0; i < c.layers; ++i) {
    AddLayer(c, prefix + "layers." + std::to_string(i) + ".", &w->layers[i], &list);
  }
  return list;
}

}  // namespace kuiper
