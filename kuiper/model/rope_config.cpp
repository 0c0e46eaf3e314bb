#include "kuiper/model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/model/config_reader.h"

namespace kuiper {
namespace {

constexpr double kMinTheta = 1.001;  // YaRN divides by its logarithm
constexpr double kMaxTheta = 1e15;

double ReadFactor(ConfigReader& reader) {
  return reader.Number("factor", 1, 1024);
}

// Returns YaRN's factor for cos and sin; `mscale` is 1 in the paper.
double AttentionFactor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

constexpr const char* kOriginal = "original_max_position_embeddings";

// Reads the trained length. transformers 5 reads the key next to the object, and transformers 4 the
// key inside it.
int ReadOriginal(ConfigReader& config, ConfigReader& reader, std::optional<int> fallback) {
  const std::optional<int> outer = config.MaybeInt(kOriginal, 1, kMaxPosition);
  const int original = reader.Int(kOriginal, 1, kMaxPosition, outer ? outer : fallback);
  if (outer && *outer != original) {
    reader.Fail(std::string(kOriginal) + " (" + std::to_string(original) +
                ") contradicts the one next to it (" + std::to_string(*outer) +
                "), and transformers 4 and 5 do not read them alike");
  }
  return original;
}

YarnRope ReadYarn(ConfigReader& config, ConfigReader& reader, int max_position) {
  YarnRope yarn;
  yarn.factor = ReadFactor(reader);
  yarn.original_max_position = ReadOriginal(config, reader, max_position);
  yarn.beta_fast = reader.MaybeNumber("beta_fast", 1e-3, 1e6).value_or(32);
  yarn.beta_slow = reader.MaybeNumber("beta_slow", 1e-3, 1e6).value_or(1);
  if (yarn.beta_fast < yarn.beta_slow) reader.Fail("beta_fast is smaller than beta_slow");
  // They have an effect only if both are given and neither is 0.
  const double mscale = reader.MaybeNumber("mscale", 0, 1e3).value_or(0);
  const double mscale_all_dim = reader.MaybeNumber("mscale_all_dim", 0, 1e3).value_or(0);
  const double inferred =
      mscale != 0 && mscale_all_dim != 0
          ? AttentionFactor(yarn.factor, mscale) / AttentionFactor(yarn.factor, mscale_all_dim)
          : AttentionFactor(yarn.factor, 1);
  yarn.attention_factor = reader.MaybeNumber("attention_factor", 1e-3, 1e3).value_or(inferred);
  yarn.truncate = reader.Bool("truncate", true);
  return yarn;
}

// The original length is next to rope_scaling or, with transformers 5, inside it. If it is next to
// rope_scaling (Phi 3), the factor is the ratio of the whole length to it.
LongRope ReadLongRope(ConfigReader& config, ConfigReader& reader, int head_dim, int max_position) {
  LongRope rope;
  const auto pairs = static_cast<size_t>(head_dim / 2);
  rope.short_factor = reader.Numbers("short_factor", pairs, 1e-3, 1e6);
  rope.long_factor = reader.Numbers("long_factor", pairs, 1e-3, 1e6);
  const std::optional<int> outer = config.MaybeInt(kOriginal, 2, kMaxPosition);
  rope.original_max_position =
      outer ? *outer : reader.Int(kOriginal, 2, kMaxPosition, std::max(2, max_position));
  const double ratio = static_cast<double>(max_position) / rope.original_max_position;
  std::optional<double> factor = reader.MaybeNumber("factor", 1e-3, 1024);
  if (outer || !factor) factor = ratio;
  const double inferred =
      *factor <= 1 ? 1 : std::sqrt(1 + std::log(*factor) / std::log(rope.original_max_position));
  rope.attention_factor = reader.MaybeNumber("attention_factor", 1e-3, 1e3).value_or(inferred);
  return rope;
}

Llama3Rope ReadLlama3(ConfigReader& config, ConfigReader& reader) {
  Llama3Rope rope;
  rope.factor = ReadFactor(reader);
  rope.low_freq_factor = reader.Number("low_freq_factor", 1e-3, 1e6);
  rope.high_freq_factor = reader.Number("high_freq_factor", 1e-3, 1e6);
  rope.original_max_position = ReadOriginal(config, reader, {});
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    reader.Fail("high_freq_factor is not larger than low_freq_factor");
  }
  return rope;
}

// Sets rope->scaling and, for types that extend the context, the longest context.
void ReadScaling(const std::string& type, ConfigReader& config, ConfigReader& reader, int head_dim,
                 RopeConfig* rope) {
  const int max_position = rope->max_position;
  const auto extend = [rope](double factor, int length) {
    rope->max_position = static_cast<int>(
        std::min<double>(kMaxPosition, std::max<double>(rope->max_position, factor * length)));
  };
  if (type == "linear") {
    const LinearRope linear{ReadFactor(reader)};
    extend(linear.factor, max_position);
    rope->scaling = linear;
  } else if (type == "dynamic") {
    const DynamicRope dynamic{ReadFactor(reader), max_position};
    if (head_dim == 2) reader.Fail("type \"dynamic\" needs a head_dim above 2");
    extend(dynamic.factor, max_position);
    rope->scaling = dynamic;
  } else if (type == "yarn") {
    const YarnRope yarn = ReadYarn(config, reader, max_position);
    extend(yarn.factor, yarn.original_max_position);
    rope->scaling = yarn;
  } else if (type == "longrope") {
    rope->scaling = ReadLongRope(config, reader, head_dim, max_position);
  } else if (type == "llama3") {
    rope->scaling = ReadLlama3(config, reader);
  } else if (type != "default") {
    reader.Fail("type " + Quoted(type) +
                " is not supported (supported: default, linear, dynamic, yarn, longrope, llama3)");
  }
}

// Refuses mrope_interleaved = false: consecutive sections of pairs, as in Qwen2-VL, are a different
// network.
InterleavedAxes ReadAxes(ConfigReader& reader, int head_dim) {
  constexpr InterleavedAxes kDefault = {.time = 24, .rows = 20, .columns = 20};
  if (!reader.Bool("mrope_interleaved", true)) {
    reader.Fail("mrope_interleaved other than true is not supported");
  }
  const int num_pairs = head_dim / 2;
  if (reader.Find("mrope_section") == nullptr &&
      num_pairs == kDefault.time + kDefault.rows + kDefault.columns) {
    return kDefault;
  }
  const std::vector<double> pairs = reader.Numbers("mrope_section", 3, 0, num_pairs);
  if (std::any_of(pairs.begin(), pairs.end(), [](double n) { return n != std::floor(n); }) ||
      pairs[0] + pairs[1] + pairs[2] != num_pairs) {
    reader.Fail("mrope_section is not three whole numbers that add up to " +
                std::to_string(num_pairs));
  }
  return {static_cast<int>(pairs[0]), static_cast<int>(pairs[1]), static_cast<int>(pairs[2])};
}

constexpr const char* kParameters = "rope_parameters";  // in files of transformers 5
constexpr const char* kScaling = "rope_scaling";        // in files of transformers 4

// Returns the object at `key`; null if it is absent or empty.
const JsonNode* FindScaling(ConfigReader& config, const char* key) {
  const JsonNode* object = config.Find(key);
  if (object == nullptr) return nullptr;
  if (!object->IsObject()) config.Fail(std::string(key) + " is not an object");
  for (size_t i = 0; object->IsObject() && i < object->items.size(); ++i) {
    if (object->items[i].IsObject()) {
      config.Fail(std::string(key) + " by type of layer (" + Quoted(object->keys[i]) +
                  ") is not supported");
    }
  }
  return object->items.empty() ? nullptr : object;
}

std::optional<double> ReadTheta(ConfigReader& reader) {
  return reader.MaybeNumber("rope_theta", kMinTheta, kMaxTheta);
}

std::string Named(const std::string& where, double theta) {
  char text[32];
  std::snprintf(text, sizeof text, " (%g)", theta);
  return where + text;
}

// Returns the theta in effect: from the object in effect, else from next to it, else the default of
// text models. `other` is the theta of a rope_parameters that is ignored.
double ChooseTheta(ConfigReader& config, const char* key, std::optional<double> inner,
                   std::optional<double> other, bool has_axes) {
  const std::optional<double> outer = ReadTheta(config);
  const double plain = RopeConfig().theta;
  // Qwen3-VL's default theta is 5000000 in transformers 4.57 and 500000 in 5.24.
  if (!inner && !outer && has_axes) {
    config.Fail(other ? "rope_scaling counts, and rope_theta is in rope_parameters only"
                      : "rope_theta is missing");
  }
  const double theta = inner.value_or(outer.value_or(plain));
  // transformers 4 reads the key next to rope_scaling, and transformers 5 the key inside it.
  if (other && theta != outer.value_or(plain) && theta != *other) {
    config.Fail(Named("rope_scaling.rope_theta", theta) + " and " +
                Named("rope_parameters.rope_theta", *other) +
                " contradict each other, and transformers 4 and 5 do not read them alike");
  }
  if (inner && outer && *inner != *outer) {
    LogWarning("config.json:" + Named(" rope_theta", *outer) + " has no effect: that of " +
               Named(key, *inner) + " counts");
  }
  return theta;
}

// Returns the name of the type, or "default" if there is none. transformers 4 reads `type`, 5
// rope_type.
std::string ReadType(ConfigReader& reader, bool has_axes) {
  const auto read = [&](const char* key) {
    const std::string type = reader.String(key);
    // "mrope" means that there are several axes; it does not select a scaling.
    return has_axes && type == "mrope" ? "default" : type;
  };
  const std::string type = read("rope_type"), old = read("type");
  if (!type.empty() && !old.empty() && type != old) {
    reader.Fail("rope_type " + Quoted(type) + " and type " + Quoted(old) +
                " contradict each other");
  }
  return !type.empty() ? type : !old.empty() ? old : "default";
}

// Warns that the parameters have no effect without a type.
void WarnAboutMissingType(const JsonNode& object, const char* key) {
  constexpr std::string_view kPlain[] = {"rope_type",     "type",
                                         "rope_theta",    "partial_rotary_factor",
                                         "mrope_section", "mrope_interleaved"};
  for (const std::string& name : object.keys) {
    if (std::find(std::begin(kPlain), std::end(kPlain), name) != std::end(kPlain)) continue;
    return LogWarning(std::string("config.json: ") + Quoted(name) + " of " + key +
                      " has no effect: there is no rope_type, and the default one is taken");
  }
}

}  // namespace

// A non-empty rope_scaling overrides rope_parameters, as in transformers 4.57 and 5.24. Users add
// it to files of transformers 5 because model cards say so.
StatusOr<RopeConfig> ReadRopeConfig(ConfigReader& config, int head_dim, bool has_axes) {
  RopeConfig rope;
  rope.max_position = config.Int("max_position_embeddings", 1, kMaxPosition);
  const JsonNode* const parameters = FindScaling(config, kParameters);
  const JsonNode* const scaling = FindScaling(config, kScaling);
  KU_RETURN_IF_ERROR(config.status());
  const char* key = scaling != nullptr || parameters == nullptr ? kScaling : kParameters;
  static const JsonNode kEmpty = {.type = JsonNode::Type::kObject};
  const JsonNode* const object = scaling != nullptr ? scaling : parameters;
  ConfigReader reader(object != nullptr ? *object : kEmpty, std::string("config.json: ") + key);
  std::optional<double> other;
  if (scaling != nullptr && parameters != nullptr) {
    ConfigReader unused(*parameters, std::string("config.json: ") + kParameters);
    other = ReadTheta(unused);
    KU_RETURN_IF_ERROR(unused.status());
  }
  rope.theta = ChooseTheta(config, key, ReadTheta(reader), other, has_axes);
  if (scaling != nullptr && parameters != nullptr &&
      PythonJson(*scaling) != PythonJson(*parameters)) {
    LogWarning("config.json: rope_parameters has no effect next to rope_scaling;" +
               Named(" rope_theta", rope.theta) + " counts");
  }
  if (reader.MaybeNumber("partial_rotary_factor", 0, 1).value_or(1) != 1) {
    reader.Fail("partial_rotary_factor other than 1 is not supported");
  }
  if (reader.Find("rope_type") == nullptr && reader.Find("type") == nullptr && object != nullptr) {
    WarnAboutMissingType(*object, key);
  }
  ReadScaling(ReadType(reader, has_axes), config, reader, head_dim, &rope);
  if (has_axes) rope.axes = ReadAxes(reader, head_dim);
  KU_RETURN_IF_ERROR(reader.status());
  KU_RETURN_IF_ERROR(config.status());
  return rope;
}

}  // namespace kuiper
