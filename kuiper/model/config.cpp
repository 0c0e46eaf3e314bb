#include "kuiper/model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/model/architecture.h"

namespace kuiper {
namespace {

// Bounds far above every real model; they keep all products of two sizes inside an int and every
// tensor size inside an int64_t.
constexpr int kMaxVocab = 1 << 22;
constexpr int kMaxWidth = 1 << 20;  // hidden, heads * head_dim, intermediate
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 512;
constexpr int kMaxPosition = 1 << 24;
constexpr size_t kMaxEosTokens = 256;

std::string ToText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Reads keys of one JSON object and keeps the first complaint. After an error the returned values
// are in range but meaningless: check status() before using them.
class Reader {
 public:
  Reader(const JsonNode& object, std::string where) : object_(object), where_(std::move(where)) {}

  const Status& status() const { return status_; }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = Status(StatusCode::kModel, where_ + ": " + what);
  }
  // Absent and null are the same, as in Hugging Face's own configs.
  const JsonNode* Find(const char* key) const {
    const JsonNode* value = object_.Find(key);
    return value == nullptr || value->IsNull() ? nullptr : value;
  }

  int Int(const char* key, int min, int max, std::optional<int> fallback = {}) {
    const JsonNode* value = Find(key);
    if (value == nullptr) {
      if (!fallback) Fail(std::string(key) + " is missing");
      return fallback.value_or(min);
    }
    return ToInt(*value, key, min, max);
  }
  std::optional<int> MaybeInt(const char* key, int min, int max) {
    const JsonNode* value = Find(key);
    if (value == nullptr) return std::nullopt;
    return ToInt(*value, key, min, max);
  }
  std::optional<double> MaybeNumber(const char* key, double min, double max) {
    const JsonNode* value = Find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<double> number = value->AsDouble();
    if (number && *number >= min && *number <= max) return number;
    Fail(std::string(key) + " is " + Quoted(PythonJson(*value)) + ", expected a number from " +
         ToText(min) + " to " + ToText(max));
    return min;
  }
  bool Bool(const char* key, bool fallback) {
    const JsonNode* value = Find(key);
    if (value == nullptr) return fallback;
    if (!value->IsBool()) Fail(std::string(key) + " is not true or false");
    return value->boolean;
  }
  std::string String(const char* key) {
    const JsonNode* value = Find(key);
    if (value == nullptr) return "";
    if (!value->IsString()) Fail(std::string(key) + " is not a string");
    return value->IsString() ? value->text : "";
  }
  // One token id or a list of them.
  std::vector<int32_t> Tokens(const char* key) {
    const JsonNode* value = Find(key);
    if (value == nullptr) return {};
    constexpr int kMaxId = std::numeric_limits<int32_t>::max();
    if (!value->IsArray()) return {ToInt(*value, key, 0, kMaxId)};
    std::vector<int32_t> ids;
    if (value->items.size() > kMaxEosTokens) {
      Fail(std::string(key) + " lists more than " + std::to_string(kMaxEosTokens) + " tokens");
      return ids;
    }
    for (const JsonNode& id : value->items) ids.push_back(ToInt(id, key, 0, kMaxId));
    return ids;
  }

 private:
  int ToInt(const JsonNode& value, const char* key, int min, int max) {
    // Some exporters write 1000000.0 for an integer.
    const std::optional<double> number = value.AsDouble();
    if (number && *number >= min && *number <= max && *number == std::floor(*number)) {
      return static_cast<int>(*number);
    }
    Fail(std::string(key) + " is " + Quoted(PythonJson(value)) + ", expected an integer from " +
         std::to_string(min) + " to " + std::to_string(max));
    return min;
  }

  const JsonNode& object_;
  std::string where_;
  Status status_;
};

StatusOr<const Architecture*> ReadArchitecture(Reader& reader) {
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
    if (name.empty() ? model_type == a.model_type : name == a.name) return &a;
  }
  if (name.empty() && model_type.empty()) {
    return Status(StatusCode::kModel, "config.json: architectures and model_type are missing");
  }
  std::string supported;
  for (const Architecture& a : Architectures()) {
    if (a.list_weights == nullptr) continue;
    supported += (supported.empty() ? "" : ", ") + std::string(a.name);
  }
  return Status(StatusCode::kModel, "config.json: architecture " +
                                        Quoted(name.empty() ? model_type : name) +
                                        " is not supported (supported: " + supported + ")");
}

Status CheckQuantization(const Reader& reader) {
  const JsonNode* quantization = reader.Find("quantization_config");
  if (quantization == nullptr) return OkStatus();
  std::string method = "unknown";
  const JsonNode* named = quantization->Find("quant_method");
  if (named != nullptr && named->IsString()) method = named->text;
  return Status(StatusCode::kModel,
                "config.json: quantization " + Quoted(method) +
                    " is not supported (supported: unquantised FP32, FP16 and BF16 weights)");
}

// What would change the network and is not computed here must not be ignored.
Status CheckUnsupportedTraits(Reader& reader) {
  const std::string act = reader.String("hidden_act");
  if (!act.empty() && act != "silu" && act != "swish") {
    reader.Fail("hidden_act " + Quoted(act) + " is not supported (supported: silu)");
  }
  if (reader.Bool("use_sliding_window", false)) {
    reader.Fail("use_sliding_window is true; sliding window attention is not supported");
  }
  if (const JsonNode* types = reader.Find("layer_types")) {
    if (!types->IsArray()) reader.Fail("layer_types is not a list");
    for (const JsonNode& type : types->items) {
      if (!type.IsString() || type.text != "full_attention") {
        reader.Fail(
            "layer_types has layers other than \"full_attention\", which are not supported");
        break;
      }
    }
  }
  if (reader.MaybeNumber("partial_rotary_factor", 0, 1).value_or(1) != 1) {
    reader.Fail("partial_rotary_factor other than 1 is not supported");
  }
  return reader.status();
}

StatusOr<YarnConfig> ReadYarn(Reader& reader, int max_position) {
  YarnConfig yarn;
  const auto factor = reader.MaybeNumber("factor", 1, 1024);
  if (!factor) reader.Fail("factor is missing");
  yarn.factor = factor.value_or(1);
  yarn.original_max_position =
      reader.Int("original_max_position_embeddings", 1, kMaxPosition, max_position);
  yarn.beta_fast = reader.MaybeNumber("beta_fast", 1e-3, 1e6).value_or(32);
  yarn.beta_slow = reader.MaybeNumber("beta_slow", 1e-3, 1e6).value_or(1);
  if (yarn.beta_fast < yarn.beta_slow) reader.Fail("beta_fast is smaller than beta_slow");
  yarn.attention_factor =
      reader.MaybeNumber("attention_factor", 1e-3, 1e3).value_or(0.1 * std::log(yarn.factor) + 1);
  yarn.truncate = reader.Bool("truncate", true);
  if (reader.Find("mscale") != nullptr || reader.Find("mscale_all_dim") != nullptr) {
    reader.Fail("mscale is not supported");
  }
  KU_RETURN_IF_ERROR(reader.status());
  return yarn;
}

// transformers 5 keeps everything in rope_parameters; before, rope_theta stood beside rope_scaling.
Status ReadRope(Reader& config, RopeConfig* rope) {
  rope->max_position = config.Int("max_position_embeddings", 1, kMaxPosition);
  constexpr double kMinTheta = 1.001;  // YaRN divides by its logarithm
  rope->theta = config.MaybeNumber("rope_theta", kMinTheta, 1e15).value_or(10000);
  KU_RETURN_IF_ERROR(config.status());
  const char* key = config.Find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const JsonNode* object = config.Find(key);
  if (object == nullptr) return OkStatus();
  if (!object->IsObject()) config.Fail(std::string(key) + " is not an object");
  KU_RETURN_IF_ERROR(config.status());

  Reader reader(*object, std::string("config.json: ") + key);
  rope->theta = reader.MaybeNumber("rope_theta", kMinTheta, 1e15).value_or(rope->theta);
  std::string type = reader.String("rope_type");
  if (type.empty()) type = reader.String("type");
  if (reader.MaybeNumber("partial_rotary_factor", 0, 1).value_or(1) != 1) {
    reader.Fail("partial_rotary_factor other than 1 is not supported");
  }
  if (type.empty()) {
    reader.Fail("rope_type is missing");
  } else if (type == "yarn") {
    KU_ASSIGN_OR_RETURN(const YarnConfig yarn, ReadYarn(reader, rope->max_position));
    const double extended = yarn.factor * yarn.original_max_position;
    rope->max_position = static_cast<int>(
        std::min<double>(kMaxPosition, std::max<double>(rope->max_position, extended)));
    rope->yarn = yarn;
  } else if (type != "default") {
    reader.Fail("type " + Quoted(type) + " is not supported (supported: default, yarn)");
  }
  return reader.status();
}

Status ReadDType(Reader& reader, DType* dtype) {
  std::string name = reader.String("torch_dtype");
  if (name.empty()) name = reader.String("dtype");
  KU_RETURN_IF_ERROR(reader.status());
  if (name.empty() || name == "float32") {
    *dtype = DType::kF32;
  } else if (name == "float16") {
    *dtype = DType::kF16;
  } else if (name == "bfloat16") {
    *dtype = DType::kBF16;
  } else {
    return Status(StatusCode::kModel,
                  "config.json: torch_dtype " + Quoted(name) +
                      " is not supported (supported: float32, float16, bfloat16)");
  }
  return OkStatus();
}

Status ReadSizes(Reader& reader, const Architecture& architecture, DecoderConfig* d) {
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

StatusOr<DecoderConfig> ReadDecoder(Reader& reader, const Architecture& architecture) {
  DecoderConfig d;
  KU_RETURN_IF_ERROR(ReadSizes(reader, architecture, &d));
  KU_RETURN_IF_ERROR(CheckUnsupportedTraits(reader));
  const bool attention_bias =
      architecture.has_attention_bias && reader.Bool("attention_bias", false);
  d.qkv_bias = architecture.qkv_bias || attention_bias;
  d.o_bias = attention_bias;
  d.mlp_bias = architecture.has_mlp_bias && reader.Bool("mlp_bias", false);
  d.qk_norm = architecture.qk_norm;
  d.tie_embeddings = reader.Bool("tie_word_embeddings", false);
  KU_RETURN_IF_ERROR(reader.status());
  KU_RETURN_IF_ERROR(ReadRope(reader, &d.rope));
  KU_RETURN_IF_ERROR(ReadDType(reader, &d.dtype));
  return d;
}

}  // namespace

const char* FamilyName(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return "Llama";
    case ModelFamily::kQwen2:
      return "Qwen2.5";
    case ModelFamily::kQwen3:
      return "Qwen3";
    case ModelFamily::kQwen3VL:
      return "Qwen3-VL";
  }
  return "";
}

StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json) {
  KU_ASSIGN_OR_RETURN(const JsonNode json,
                      ParseJson(config_json, StatusCode::kModel, "config.json"));
  if (!json.IsObject()) return Status(StatusCode::kModel, "config.json: not a JSON object");
  Reader reader(json, "config.json");
  KU_ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(reader));
  ModelConfig config;
  config.architecture = architecture->name;
  config.model_type = architecture->model_type;
  config.family = architecture->family;
  config.supported = architecture->list_weights != nullptr;
  if (!config.supported) return config;
  KU_RETURN_IF_ERROR(CheckQuantization(reader));
  config.eos = reader.Tokens("eos_token_id");
  config.bos = reader.MaybeInt("bos_token_id", 0, std::numeric_limits<int32_t>::max());
  KU_RETURN_IF_ERROR(reader.status());
  KU_ASSIGN_OR_RETURN(config.decoder, ReadDecoder(reader, *architecture));
  return config;
}

StatusOr<GenerationConfig> ParseGenerationConfig(std::string_view generation_config_json) {
  KU_ASSIGN_OR_RETURN(const JsonNode json, ParseJson(generation_config_json, StatusCode::kModel,
                                                     "generation_config.json"));
  if (!json.IsObject())
    return Status(StatusCode::kModel, "generation_config.json: not a JSON object");
  Reader reader(json, "generation_config.json");
  GenerationConfig config;
  config.eos = reader.Tokens("eos_token_id");
  if (reader.Find("do_sample") != nullptr) config.do_sample = reader.Bool("do_sample", false);
  const auto take = [&](const char* key, const auto& value) {
    if (value.has_value()) config.sampling[key] = *value;
  };
  take("top_k", reader.MaybeInt("top_k", 0, std::numeric_limits<int32_t>::max()));
  const std::tuple<const char*, double, double> ranges[] = {
      {"temperature", 0, 100}, {"top_p", 0, 1}, {"min_p", 0, 1}, {"repetition_penalty", 1e-3, 100}};
  for (const auto& [key, min, max] : ranges) take(key, reader.MaybeNumber(key, min, max));
  KU_RETURN_IF_ERROR(reader.status());
  return config;
}

}  // namespace kuiper
