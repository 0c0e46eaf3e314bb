#include "kuiper/model/quantized/quantization_config.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/model/config_reader.h"

namespace kuiper {
namespace {

using Packing = QuantizationConfig::Packing;

constexpr const char* kWhere = "config.json: quantization_config";
constexpr int kMaxGroup = 1 << 20;  // columns: more than any matrix has
constexpr const char* kOtherCheckpoint =
    "use a checkpoint of the model in another format: AWQ, GPTQ, compressed-tensors (W4A16, W8A16),"
    " FP8 blocks, or unquantised";

Status Unsupported(const std::string& what) {
  return Status(StatusCode::kModel, std::string(kWhere) + ": " + what, kOtherCheckpoint);
}

// Checks that `key` has one of these values; if absent, it counts as the first one.
Status CheckName(ConfigReader& reader, const char* key, const std::vector<std::string>& supported) {
  const std::string value = reader.String(key);
  KU_RETURN_IF_ERROR(reader.status());
  if (value.empty() || std::find(supported.begin(), supported.end(), value) != supported.end()) {
    return OkStatus();
  }
  std::string names;
  for (const std::string& name : supported) names += (names.empty() ? "" : ", ") + name;
  return Unsupported(std::string(key) + " " + Quoted(value) +
                     " is not supported (supported: " + names + ")");
}

Status ReadBits(ConfigReader& reader, const char* key, bool four_only, QuantizationConfig* config) {
  const int bits = reader.Int(key, 1, 64);
  KU_RETURN_IF_ERROR(reader.status());
  if (bits != 4 && (bits != 8 || four_only)) {
    return Unsupported(std::string(key) + " " + std::to_string(bits) +
                       " is not supported (supported: " + (four_only ? "4)" : "4, 8)"));
  }
  config->kind = bits == 4 ? WeightFormat::Kind::kInt4 : WeightFormat::Kind::kInt8;
  return OkStatus();
}

// Reads the group size; -1 means one group per row.
Status ReadGroupSize(ConfigReader& reader, QuantizationConfig* config) {
  const int size = reader.Int("group_size", -1, kMaxGroup);
  KU_RETURN_IF_ERROR(reader.status());
  if (size == 0 || (size > 0 && size % WeightFormat::kQuantum != 0)) {
    return Unsupported("group_size " + std::to_string(size) +
                       " is not supported (supported: multiples of 32, and -1 for a row)");
  }
  config->group_columns = std::max(size, 0);
  return OkStatus();
}

Status ReadNames(ConfigReader& reader, const char* key, std::vector<std::string>* names) {
  const JsonNode* list = reader.Find(key);
  if (list == nullptr) return OkStatus();
  for (const JsonNode& name : list->items) {
    if (name.IsString()) names->push_back(name.text);
  }
  if (!list->IsArray() || std::any_of(list->items.begin(), list->items.end(),
                                      [](const JsonNode& name) { return !name.IsString(); })) {
    reader.Fail(std::string(key) + " is not a list of names");
  }
  return reader.status();
}

Status ReadAwq(ConfigReader& reader, QuantizationConfig* config) {
  config->packing = Packing::kAwq;
  KU_RETURN_IF_ERROR(CheckName(reader, "version", {"gemm", "GEMM"}));
  KU_RETURN_IF_ERROR(CheckName(reader, "backend", {"autoawq"}));
  KU_RETURN_IF_ERROR(ReadBits(reader, "bits", /*four_only=*/true, config));
  KU_RETURN_IF_ERROR(ReadGroupSize(reader, config));
  config->is_symmetric = !reader.Bool("zero_point", true);
  KU_RETURN_IF_ERROR(ReadNames(reader, "modules_to_not_convert", &config->excluded));
  return reader.status();
}

// Reads how GPTQ stores the zero points (version 1 or 2). If both keys are present,
// checkpoint_format takes precedence, as in transformers.
Status ReadGptqVersion(ConfigReader& reader, QuantizationConfig* config) {
  constexpr const char* kNames[] = {"format", "checkpoint_format"};
  std::string values[2];
  for (int i = 0; i < 2; ++i) {
    values[i] = reader.String(kNames[i]);
    for (char& c : values[i]) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  KU_RETURN_IF_ERROR(reader.status());
  const int counts = values[1].empty() ? 0 : 1;
  const std::string& version = values[counts];
  if (!version.empty() && version != "gptq" && version != "gptq_v2") {
    return Unsupported(std::string(kNames[counts]) + " " + Quoted(version) +
                       " is not supported (supported: gptq, gptq_v2)");
  }
  if (counts == 1 && !values[0].empty() && values[0] != version) {
    LogWarning(std::string(kWhere) + ": format " + Quoted(values[0]) +
               " has no effect: checkpoint_format " + Quoted(version) + " counts");
  }
  config->zero_offset = version == "gptq_v2" ? 0 : 1;
  return OkStatus();
}

Status ReadGptq(ConfigReader& reader, QuantizationConfig* config) {
  config->packing = Packing::kGptq;
  KU_RETURN_IF_ERROR(ReadGptqVersion(reader, config));
  KU_RETURN_IF_ERROR(CheckName(reader, "pack_dtype", {"int32"}));
  if (reader.Bool("is_marlin_format", false))
    return Unsupported("is_marlin_format is not supported");
  KU_RETURN_IF_ERROR(ReadBits(reader, "bits", /*four_only=*/false, config));
  KU_RETURN_IF_ERROR(ReadGroupSize(reader, config));
  config->is_symmetric = reader.Bool("sym", false);
  config->has_other_rules =
      reader.Find("dynamic") != nullptr || reader.Find("modules_in_block_to_quantize") != nullptr;
  KU_RETURN_IF_ERROR(ReadNames(reader, "modules_to_not_convert", &config->excluded));
  return reader.status();
}

// Reads the packings of AutoRound's own export (auto_round/inference/backend.py).
Status ReadAutoRound(ConfigReader& reader, QuantizationConfig* config) {
  KU_RETURN_IF_ERROR(CheckName(reader, "data_type", {"int"}));
  if (reader.MaybeInt("act_bits", 1, 64).value_or(16) < 16) {
    return Unsupported("quantised activations (act_bits) are not supported");
  }
  const std::string packing = reader.String("packing_format");
  KU_RETURN_IF_ERROR(reader.status());
  const bool is_awq = packing == "auto_round:auto_awq";
  if (!is_awq) {
    const std::vector<std::string> names = {"auto_round:auto_gptq", "auto_round:gptqmodel",
                                            "auto_round", "auto_round:auto_awq"};
    if (packing.empty()) reader.Fail("packing_format is missing");
    KU_RETURN_IF_ERROR(reader.status());
    KU_RETURN_IF_ERROR(CheckName(reader, "packing_format", names));
  }
  config->packing = is_awq ? Packing::kAwq : Packing::kGptq;
  config->zero_offset = packing == "auto_round:auto_gptq" ? 1 : 0;
  KU_RETURN_IF_ERROR(ReadBits(reader, "bits", is_awq, config));
  KU_RETURN_IF_ERROR(ReadGroupSize(reader, config));
  config->is_symmetric = reader.Bool("sym", false);
  config->has_other_rules =
      reader.Find("extra_config") != nullptr || reader.Find("block_name_to_quantize") != nullptr;
  return reader.status();
}

Status ReadScheme(const JsonNode& weights, QuantizationConfig* config) {
  ConfigReader reader(weights, std::string(kWhere) + ": weights");
  KU_RETURN_IF_ERROR(CheckName(reader, "type", {"int"}));
  KU_RETURN_IF_ERROR(CheckName(reader, "strategy", {"group", "channel"}));
  KU_RETURN_IF_ERROR(CheckName(reader, "actorder", {"static", "weight"}));
  KU_RETURN_IF_ERROR(ReadBits(reader, "num_bits", /*four_only=*/false, config));
  if (reader.Bool("dynamic", false)) return Unsupported("weights with dynamic scales");
  if (reader.String("strategy") != "channel") KU_RETURN_IF_ERROR(ReadGroupSize(reader, config));
  config->is_symmetric = reader.Bool("symmetric", true);
  return reader.status();
}

Status ReadCompressedTensors(ConfigReader& reader, QuantizationConfig* config) {
  config->packing = Packing::kCompressedTensors;
  KU_RETURN_IF_ERROR(CheckName(reader, "format", {"pack-quantized"}));
  KU_RETURN_IF_ERROR(ReadNames(reader, "ignore", &config->excluded));
  for (const char* key : {"transform_config", "sparsity_config"}) {
    const JsonNode* other = reader.Find(key);
    if (other != nullptr && !other->items.empty()) {
      return Unsupported(std::string(key) + " is not supported");
    }
  }
  const JsonNode* groups = reader.Find("config_groups");
  if (groups == nullptr || !groups->IsObject() || groups->items.empty()) {
    reader.Fail("config_groups is missing");
    return reader.status();
  }
  if (groups->items.size() > 1) return Unsupported("more than one of config_groups");
  ConfigReader group(groups->items[0], std::string(kWhere) + ": config_groups");
  for (const char* key : {"input_activations", "output_activations"}) {
    if (group.Find(key) != nullptr) {
      return Unsupported(std::string("quantised activations (") + key + ") are not supported");
    }
  }
  KU_RETURN_IF_ERROR(CheckName(group, "format", {"pack-quantized"}));
  KU_RETURN_IF_ERROR(ReadNames(group, "targets", &config->targets));
  const JsonNode* weights = group.Find("weights");
  if (weights == nullptr || !weights->IsObject()) group.Fail("weights is missing");
  KU_RETURN_IF_ERROR(group.status());
  return ReadScheme(*weights, config);
}

Status ReadE4M3(ConfigReader& reader, QuantizationConfig* config) {
  config->packing = Packing::kE4M3Blocks;
  config->kind = WeightFormat::Kind::kE4M3;
  KU_RETURN_IF_ERROR(CheckName(reader, "fmt", {"e4m3"}));
  KU_RETURN_IF_ERROR(CheckName(reader, "activation_scheme", {"dynamic"}));
  KU_RETURN_IF_ERROR(CheckName(reader, "scale_fmt", {"float"}));
  if (reader.Find("weight_block_size") == nullptr) {
    return Unsupported("FP8 without weight_block_size is not supported (supported: [128, 128])");
  }
  for (const double size : reader.Numbers("weight_block_size", 2, 1, kMaxGroup)) {
    KU_RETURN_IF_ERROR(reader.status());
    if (size != 128) {
      return Unsupported("weight_block_size other than [128, 128] is not supported");
    }
  }
  KU_RETURN_IF_ERROR(reader.status());
  config->group_columns = config->group_rows = 128;
  const bool has_list = reader.Find("modules_to_not_convert") != nullptr;
  return ReadNames(reader, has_list ? "modules_to_not_convert" : "ignored_layers",
                   &config->excluded);
}

// One step of a regular expression: one character or any, matched once or any number of times.
struct Step {
  char character = 0;
  bool is_any = false, repeats = false;
};

// Returns false if the pattern uses unsupported syntax.
bool ReadPattern(std::string_view text, std::vector<Step>* steps) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '*' || c == '+') {
      if (steps->empty() || steps->back().repeats) return false;
      if (c == '+') steps->push_back(steps->back());
      steps->back().repeats = true;
    } else if (c == '\\') {
      if (++i == text.size() || std::isalnum(static_cast<unsigned char>(text[i]))) return false;
      steps->push_back({.character = text[i]});
    } else if (std::string_view("()[]{}|?^$").find(c) != std::string_view::npos) {
      return false;
    } else {
      steps->push_back({.character = c, .is_any = c == '.'});
    }
  }
  return true;
}

// True if the steps match the beginning of `text` (Python's re.match), or all of it. Takes steps *
// characters operations for every pattern.
bool Matches(const std::vector<Step>& steps, std::string_view text, bool to_the_end) {
  // reached[i]: the first i characters match the steps so far.
  std::vector<bool> reached(text.size() + 1, false);
  reached[0] = true;
  for (const Step& step : steps) {
    std::vector<bool> next(text.size() + 1, false);
    for (size_t i = 0; i <= text.size(); ++i) {
      if (step.repeats && reached[i]) next[i] = true;
      if (i == text.size() || !(step.is_any || step.character == text[i])) continue;
      if (reached[i] || (step.repeats && next[i])) next[i + 1] = true;
    }
    reached = std::move(next);
  }
  return to_the_end ? reached.back()
                    : std::find(reached.begin(), reached.end(), true) != reached.end();
}

// True if `name` is a transformers class that contains `module`: "Qwen3MLP", "LlamaAttention".
bool IsClassAround(std::string_view name, std::string_view module) {
  constexpr std::pair<const char*, const char*> kClasses[] = {{"MLP", "mlp."},
                                                              {"Attention", "attn."},
                                                              {"DecoderLayer", "layers."},
                                                              {"VisionBlock", "blocks."},
                                                              {"VisionModel", "visual."}};
  return std::any_of(std::begin(kClasses), std::end(kClasses), [&](const auto& row) {
    return name.ends_with(row.first) && module.find(row.second) != std::string_view::npos;
  });
}

Exclusion MatchesPattern(std::string_view pattern, std::string_view module) {
  if (!pattern.starts_with("re:")) {
    if (module == pattern || pattern == "Linear") return Exclusion::kYes;
    if (IsClassAround(pattern, module)) return Exclusion::kUnknown;
    return module.find(pattern) != std::string_view::npos ? Exclusion::kUnknown : Exclusion::kNo;
  }
  pattern.remove_prefix(3);
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  const bool to_the_end =
      pattern.ends_with('$') && !(pattern.size() > 1 && pattern[pattern.size() - 2] == '\\');
  if (to_the_end) pattern.remove_suffix(1);
  std::vector<Step> steps;
  if (!ReadPattern(pattern, &steps)) return Exclusion::kUnknown;
  return Matches(steps, module, to_the_end) ? Exclusion::kYes : Exclusion::kNo;
}

// Returns the most certain result of all patterns.
Exclusion MatchesAny(const std::vector<std::string>& patterns, std::string_view module) {
  Exclusion answer = Exclusion::kNo;
  for (const std::string& pattern : patterns) {
    const Exclusion matches = MatchesPattern(pattern, module);
    if (matches == Exclusion::kYes) return matches;
    if (matches == Exclusion::kUnknown) answer = matches;
  }
  return answer;
}

}  // namespace

WeightFormat QuantizationConfig::FormatOf(int64_t in, DType scale_type) const {
  return {.kind = kind,
          .scale_type = scale_type,
          .group_columns = group_columns > 0 ? group_columns : static_cast<int>(in),
          .group_rows = group_rows};
}

std::string QuantizationConfig::Describe() const {
  if (packing == Packing::kE4M3Blocks) return "blocks of [128, 128]";
  const WeightFormat format = FormatOf(0, DType::kF32);
  return std::to_string(format.code_bits()) + " bits and " +
         (group_columns > 0 ? "group_size " + std::to_string(group_columns) : "a group per row");
}

Exclusion Excludes(const QuantizationConfig& config, std::string_view module) {
  const Exclusion excluded = MatchesAny(config.excluded, module);
  const Exclusion targeted =
      config.targets.empty() ? Exclusion::kYes : MatchesAny(config.targets, module);
  if (excluded == Exclusion::kYes || targeted == Exclusion::kNo) return Exclusion::kYes;
  const bool is_sure = excluded == Exclusion::kNo && targeted == Exclusion::kYes;
  return is_sure && !config.has_other_rules ? Exclusion::kNo : Exclusion::kUnknown;
}

StatusOr<QuantizationConfig> ParseQuantization(const JsonNode& quantization_config) {
  constexpr std::pair<const char*, Status (*)(ConfigReader&, QuantizationConfig*)> kMethods[] = {
      {"awq", ReadAwq},
      {"gptq", ReadGptq},
      {"auto-round", ReadAutoRound},
      {"compressed-tensors", ReadCompressedTensors},
      {"fp8", ReadE4M3},
  };
  ConfigReader reader(quantization_config, kWhere);
  if (!quantization_config.IsObject()) reader.Fail("not a JSON object");
  const std::string method = reader.String("quant_method");
  KU_RETURN_IF_ERROR(reader.status());
  std::string names;
  for (const auto& [name, read] : kMethods) {
    names += (names.empty() ? "" : ", ") + std::string(name);
    if (method != name) continue;
    QuantizationConfig config;
    KU_RETURN_IF_ERROR(read(reader, &config));
    return config;
  }
  return Status(StatusCode::kModel,
                "config.json: quantization " + Quoted(method.empty() ? "unknown" : method) +
                    " is not supported (supported: " + names + ")",
                kOtherCheckpoint);
}

}  // namespace kuiper
