// Reads config.json and generation_config.json of a Hugging Face model, checks them and converts
// them to numbers. Every difference between the supported architectures is a field here, so the
// decoder never checks the model type. Works on text only; depends on neither files nor tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/model/quantized/quantization_config.h"
#include "kuiper/model/rope_config.h"
#include "kuiper/model/vision_config.h"

namespace kuiper {

// Far above any real config.json.
inline constexpr size_t kMaxConfigBytes = size_t{16} << 20;

struct DecoderConfig {
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;
  float rms_eps = 1e-6f;
  bool qkv_bias = false;  // q, k and v projections have biases
  bool o_bias = false;    // the output projection of attention has a bias
  bool mlp_bias = false;  // gate, up and down projections have biases
  bool qk_norm = false;   // RMSNorm of each query and key head
  bool tie_embeddings = false;
  RopeConfig rope;
  int sliding_window = 0;  // tokens that a sliding layer attends to, including the current one
  std::vector<bool> layer_slides;  // by layer; empty: no layer is sliding
  DType dtype = DType::kBF16;  // as config.json says; LoadModel sets the actual type of the weights

  int q_size() const { return heads * head_dim; }
  int kv_size() const { return kv_heads * head_dim; }
  int qkv_size() const { return q_size() + 2 * kv_size(); }
  // Returns the window of the layer; 0 if the layer attends to all tokens.
  int window(int layer) const {
    return !layer_slides.empty() && layer_slides[layer] ? sliding_window : 0;
  }
};

// Model families that programs distinguish.
enum class ModelFamily { kLlama, kQwen2, kQwen3, kQwen3VL };

struct ModelConfig {
  std::string architecture;  // e.g. "Qwen3ForCausalLM"
  std::string model_type;    // e.g. "qwen3"
  ModelFamily family = ModelFamily::kQwen3;
  DecoderConfig decoder;
  // Set for vision models only.
  std::optional<VisionEncoderConfig> vision;
  std::optional<VisionTokens> vision_tokens;
  QuantizationConfig quantization;
  // True if the tensor names lack the leading "model.", as in checkpoints without an LM head.
  bool lacks_model_prefix = false;
  std::vector<int32_t> eos;
  std::optional<int32_t> bos;
};

struct GenerationConfig {
  std::vector<int32_t> eos;
  std::optional<bool> do_sample;
  std::map<std::string, double> sampling;  // supported parameters by name, within their ranges
  std::string unused;  // names of fields that would change answers but are not supported
};

// Returns kModel, with one line that names the key, if something is missing, out of range or
// unsupported.
StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json);
StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view generation_config_json);

}  // namespace kuiper
