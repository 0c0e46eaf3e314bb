#include "kuiper/model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/model/architecture.h"
#include "kuiper/model/config_reader.h"

namespace kuiper {
namespace {

// Bounds far above every real model. They keep every product of two sizes within an int and every
// tensor size within an int64_t.
constexpr int kMaxVocab = 1 << 22;
constexpr int kMaxWidth = 1 << 20;  // hidden, heads * head_dim, intermediate
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 512;

// Returns the name in checkpoints without an LM head: "Qwen3Model" for "Qwen3ForCausalLM".
std::string BaseModelName(const Architecture& architecture) {
  const std::string name = architecture.name;
  return name.substr(0, name.find("For")) + "Model";
}

StatusOr<const Architecture*> ReadArchitecture(ConfigReader& reader) {
  std::string name;
  const JsonNode* list = reader.Find("architectures");
  if (list != nullptr) {
    if (!list->IsArray() || list->items.empty() || !list->items[0].IsString()) {
      return Status(StatusCode::kModel, "config.json: architectures is not a list of names");
    }
    name = list->items[0].text;
  }
  const std::string model_type = reader.String("model_type");
  KU_RETURN_IF_ERROR(reader.status());
  for (const Architecture& a : Architectures()) {
    if (name.empty() ? model_type == a.model_type : name == a.name || name == BaseModelName(a)) {
      return &a;
    }
  }
  if (name.empty() && model_type.empty()) {
    return Status(StatusCode::kModel, "config.json: architectures and model_type are missing");
  }
  std::string supported;
  for (const Architecture& a : Architectures()) {
    supported += (supported.empty() ? "" : ", ") + std::string(a.name);
  }
  return Status(StatusCode::kModel, "config.json: architecture " +
                                        Quoted(name.empty() ? model_type : name) +
                                        " is not supported (supported: " + supported + ")");
}

// Refuses settings that would change the network and are not implemented.
Status CheckUnsupportedTraits(ConfigReader& reader) {
  const std::string act = reader.String("hidden_act");
  if (!act.empty() && act != "silu" && act != "swish") {
    reader.Fail("hidden_act " + Quoted(act) + " is not supported (supported: silu)");
  }
  if (reader.MaybeNumber("partial_rotary_factor", 0, 1).value_or(1) != 1) {
    reader.Fail("partial_rotary_factor other than 1 is not supported");
  }
  return reader.status();
}

Status ReadDType(ConfigReader& reader, DType* dtype) {
  const bool has_dtype = reader.Find("dtype") != nullptr;
  const char* key = has_dtype ? "dtype" : "torch_dtype";
  const std::string name = reader.String(key);
  KU_RETURN_IF_ERROR(reader.status());
  if (name.empty() || name == "float32") {
    *dtype = DType::kF32;
  } else if (name == "float16") {
    *dtype = DType::kF16;
  } else if (name == "bfloat16") {
    *dtype = DType::kBF16;
  } else {
    return Status(StatusCode::kModel,
                  std::string("config.json: ") + key + " " + Quoted(name) +
                      " is not supported (supported: float32, float16, bfloat16)");
  }
  return OkStatus();
}

Status ReadSizes(ConfigReader& reader, const Architecture& architecture, DecoderConfig* d) {
  d->vocab = reader.Int("vocab_size", 1, kMaxVocab);
  d->hidden = reader.Int("hidden_size", 1, kMaxWidth);
  d->layers = reader.Int("num_hidden_layers", 1, kMaxLayers);
  d->heads = reader.Int("num_attention_heads", 1, kMaxHeads);
  d->kv_heads = reader.Int("num_key_value_heads", 1, kMaxHeads, d->heads);
  d->intermediate = reader.Int("intermediate_size", 1, kMaxWidth);
  const int default_head_dim =
      architecture.default_head_dim > 0 ? architecture.default_head_dim : d->hidden / d->heads;
  const bool has_head_dim = reader.Find("head_dim") != nullptr;
  d->head_dim = reader.Int("head_dim", 2, kMaxHeadDim, default_head_dim);
  d->rms_eps = static_cast<float>(reader.MaybeNumber("rms_norm_eps", 1e-12, 0.1).value_or(1e-6));
  KU_RETURN_IF_ERROR(reader.status());
  if (!has_head_dim && architecture.default_head_dim == 0 && d->hidden % d->heads != 0) {
    reader.Fail("hidden_size " + std::to_string(d->hidden) +
                " is not a multiple of num_attention_heads " + std::to_string(d->heads));
  }
  if (d->heads % d->kv_heads != 0) {
    reader.Fail("num_attention_heads " + std::to_string(d->heads) +
                " is not a multiple of num_key_value_heads " + std::to_string(d->kv_heads));
  }
  if (d->head_dim < 2 || d->head_dim > kMaxHeadDim || d->head_dim % 2 != 0) {
    reader.Fail("head_dim " + std::to_string(d->head_dim) + " is not an even number from 2 to " +
                std::to_string(kMaxHeadDim));
  }
  return reader.status();
}

// Returns for each layer whether it is sliding, from layer_types (absent in older files). Returns
// {} after an error.
std::vector<bool> ReadLayerTypes(ConfigReader& reader, const JsonNode& types, int layers) {
  std::vector<bool> slides;
  if (!types.IsArray() || types.items.size() != static_cast<size_t>(layers)) {
    reader.Fail("layer_types is not a list of " + std::to_string(layers) + " names");
    return slides;
  }
  for (const JsonNode& type : types.items) {
    const bool sliding = type.IsString() && type.text == "sliding_attention";
    if (!sliding && !(type.IsString() && type.text == "full_attention")) {
      reader.Fail("layer_types has " + Quoted(PythonJson(type)) +
                  ", which is not supported (supported: full_attention, sliding_attention)");
      return {};
    }
    slides.push_back(sliding);
  }
  return slides;
}

// Reads which layers are sliding and their window, as transformers' Qwen2Config, Qwen3Config and
// MistralConfig derive them. An absent sliding_window defaults to 4096 there; null means no window.
Status ReadSlidingLayers(ConfigReader& reader, SlidingLayers rule, DecoderConfig* d) {
  constexpr int kDefaultWindow = 4096, kDefaultMaxWindowLayers = 28;
  const bool used = rule == SlidingLayers::kAll ||
                    (reader.Bool("use_sliding_window", false) && rule == SlidingLayers::kByLayer);
  int window = 0;
  if (used && !reader.IsNull("sliding_window")) {
    window = reader.Int("sliding_window", 1, kMaxPosition, kDefaultWindow);
  }
  std::vector<bool> slides(d->layers, rule == SlidingLayers::kAll);
  const JsonNode* types = reader.Find("layer_types");
  if (rule != SlidingLayers::kAll && types != nullptr) {
    slides = ReadLayerTypes(reader, *types, d->layers);
  } else if (rule == SlidingLayers::kByLayer && window > 0) {
    const int first = reader.Int("max_window_layers", 0, kMaxLayers, kDefaultMaxWindowLayers);
    for (int i = first; i < d->layers; ++i) slides[i] = true;
  }
  KU_RETURN_IF_ERROR(reader.status());
  const bool any = std::find(slides.begin(), slides.end(), true) != slides.end();
  if (any && window == 0 && rule != SlidingLayers::kAll) {
    reader.Fail(rule == SlidingLayers::kNone
                    ? "layer_types has sliding layers, which this architecture does not have"
                    : "layer_types has sliding layers, but there is no use_sliding_window and "
                      "sliding_window");
  }
  if (any && window > 0) {
    d->sliding_window = window;
    d->layer_slides = std::move(slides);
  }
  return reader.status();
}

// `whole` is the file; `reader` is the object with the decoder's keys. They differ only for vision
// models.
StatusOr<DecoderConfig> ReadDecoder(ConfigReader& whole, ConfigReader& reader,
                                    const Architecture& architecture) {
  DecoderConfig d;
  KU_RETURN_IF_ERROR(ReadSizes(reader, architecture, &d));
  KU_RETURN_IF_ERROR(CheckUnsupportedTraits(reader));
  const bool attention_bias =
      architecture.has_attention_bias && reader.Bool("attention_bias", false);
  d.qkv_bias = architecture.qkv_bias || attention_bias;
  d.o_bias = attention_bias;
  d.mlp_bias = architecture.has_mlp_bias && reader.Bool("mlp_bias", false);
  d.qk_norm = architecture.qk_norm;
  // transformers 4 reads the inner key and 5 the outer one. A file without an LM head may use
  // either.
  d.tie_embeddings =
      whole.Bool("tie_word_embeddings", false) || reader.Bool("tie_word_embeddings", false);
  KU_RETURN_IF_ERROR(whole.status());
  KU_RETURN_IF_ERROR(reader.status());
  KU_ASSIGN_OR_RETURN(d.rope, ReadRopeConfig(reader, d.head_dim, architecture.has_vision));
  KU_RETURN_IF_ERROR(ReadSlidingLayers(reader, architecture.sliding, &d));
  const bool says_type = whole.Find("torch_dtype") != nullptr || whole.Find("dtype") != nullptr;
  KU_RETURN_IF_ERROR(ReadDType(says_type ? whole : reader, &d.dtype));
  return d;
}

// Returns the object `key` of the file.
StatusOr<const JsonNode*> FindObject(const ConfigReader& reader, const char* key) {
  const JsonNode* object = reader.Find(key);
  if (object != nullptr && object->IsObject()) return object;
  return Status(StatusCode::kModel, std::string("config.json: ") + key +
                                        (object == nullptr ? " is missing" : " is not an object"));
}

// Reads the vision encoder's configuration and its placeholder tokens.
Status ReadVision(ConfigReader& reader, ModelConfig* config) {
  KU_ASSIGN_OR_RETURN(const JsonNode* object, FindObject(reader, "vision_config"));
  ConfigReader tower(*object, "config.json: vision_config");
  KU_ASSIGN_OR_RETURN(config->vision, ReadVisionEncoderConfig(tower, config->decoder.hidden,
                                                              config->decoder.layers));
  const int last = config->decoder.vocab - 1;
  config->vision_tokens = VisionTokens{.image_pad = reader.Int("image_token_id", 0, last),
                                       .video_pad = reader.Int("video_token_id", 0, last),
                                       .vision_start = reader.Int("vision_start_token_id", 0, last),
                                       .vision_end = reader.Int("vision_end_token_id", 0, last)};
  if (config->vision_tokens->image_pad == config->vision_tokens->video_pad) {
    reader.Fail("image_token_id and video_token_id are the same");
  }
  return reader.status();
}

}  // namespace

StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json) {
  KU_ASSIGN_OR_RETURN(const JsonNode json,
                      ParseJson(config_json, StatusCode::kModel, "config.json"));
  if (!json.IsObject()) return Status(StatusCode::kModel, "config.json: not a JSON object");
  ConfigReader reader(json, "config.json");
  KU_ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(reader));
  ModelConfig config;
  config.architecture = architecture->name;
  config.model_type = architecture->model_type;
  config.family = architecture->family;
  const JsonNode* decoder = &json;
  if (architecture->has_vision) {
    KU_ASSIGN_OR_RETURN(decoder, FindObject(reader, "text_config"));
  }
  ConfigReader text(*decoder,
                    architecture->has_vision ? "config.json: text_config" : "config.json");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const JsonNode* outside = architecture->has_vision ? reader.Find(key) : nullptr;
    if (outside != nullptr && !outside->items.empty()) {
      reader.Fail(std::string(key) + " belongs into text_config, where it would count");
    }
  }
  const auto with = [&](const char* key) -> ConfigReader& {
    return reader.Find(key) != nullptr ? reader : text;
  };
  if (const JsonNode* quantization = with("quantization_config").Find("quantization_config")) {
    KU_ASSIGN_OR_RETURN(config.quantization, ParseQuantization(*quantization));
  }
  config.eos = with("eos_token_id").Tokens("eos_token_id");
  config.bos =
      with("bos_token_id").MaybeInt("bos_token_id", 0, std::numeric_limits<int32_t>::max());
  KU_RETURN_IF_ERROR(reader.status());
  KU_RETURN_IF_ERROR(text.status());
  KU_ASSIGN_OR_RETURN(config.decoder, ReadDecoder(reader, text, *architecture));
  if (architecture->has_vision) KU_RETURN_IF_ERROR(ReadVision(reader, &config));
  return config;
}

namespace {

// Returns the fields of transformers' GenerationConfig that would change answers and are not
// supported. Each is listed with the value that has no effect.
std::string UnusedFields(const JsonNode& json) {
  const std::pair<const char*, std::optional<double>> fields[] = {
      {"num_beams", 1},
      {"num_beam_groups", 1},
      {"penalty_alpha", 0},
      {"min_length", 0},
      {"min_new_tokens", 0},
      {"no_repeat_ngram_size", 0},
      {"typical_p", 1},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"suppress_tokens", {}},
      {"begin_suppress_tokens", {}},
      {"bad_words_ids", {}},
      {"force_words_ids", {}},
      {"forced_bos_token_id", {}},
      {"forced_eos_token_id", {}},
      {"sequence_bias", {}},
      {"stop_strings", {}},
      {"encoder_repetition_penalty", 1},
      {"guidance_scale", 1},
      {"exponential_decay_length_penalty", {}}};
  std::string unused;
  for (const auto& [name, harmless] : fields) {
    const JsonNode* value = json.Find(name);
    if (value == nullptr || value->IsNull()) continue;
    const bool is_empty = value->items.empty() && (value->IsArray() || value->IsObject());
    if (!is_empty && (!harmless.has_value() || value->AsDouble() != harmless)) {
      unused.append(unused.empty() ? "" : ", ").append(name);
    }
  }
  return unused;
}

}  // namespace

StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view generation_config_json) {
  KU_ASSIGN_OR_RETURN(const JsonNode json, ParseJson(generation_config_json, StatusCode::kModel,
                                                     "generation_config.json"));
  if (!json.IsObject())
    return Status(StatusCode::kModel, "generation_config.json: not a JSON object");
  ConfigReader reader(json, "generation_config.json");
  GenerationConfig config;
  config.eos = reader.Tokens("eos_token_id");
  if (reader.Find("do_sample") != nullptr) config.do_sample = reader.Bool("do_sample", false);
  const auto take = [&](const char* key, const auto& value) {
    if (value.has_value()) config.sampling[key] = *value;
  };
  take("top_k", reader.MaybeInt("top_k", -1, std::numeric_limits<int32_t>::max()));
  const std::tuple<const char*, double, double> ranges[] = {
      {"temperature", 0, 100}, {"top_p", 0, 1}, {"min_p", 0, 1}, {"repetition_penalty", 1e-3, 100}};
  for (const auto& [key, min, max] : ranges) take(key, reader.MaybeNumber(key, min, max));
  config.unused = UnusedFields(json);
  KU_RETURN_IF_ERROR(reader.status());
  return config;
}

}  // namespace kuiper
