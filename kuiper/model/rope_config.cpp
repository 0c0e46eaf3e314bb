#include "kuiper/model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "kuiper/base/text.h"
#include "kuiper/model/config_reader.h"

namespace kuiper {
namespace {

constexpr double kMinTheta = 1.001;  // YaRN divides by its logarithm
constexpr double kMaxTheta = 1e15;

double ReadFactor(ConfigReader& reader) {
  return reader.Number("factor", 1, 1024);
}

// What YaRN multiplies cos and sin with; `mscale` is 1 in the paper.
double AttentionFactor(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

YarnRope ReadYarn(ConfigReader& reader, int max_position) {
  YarnRope yarn;
  yarn.factor = ReadFactor(reader);
  yarn.original_max_position =
      reader.Int("original_max_position_embeddings", 1, kMaxPosition, max_position);
  yarn.beta_fast = reader.MaybeNumber("beta_fast", 1e-3, 1e6).value_or(32);
  yarn.beta_slow = reader.MaybeNumber("beta_slow", 1e-3, 1e6).value_or(1);
  if (yarn.beta_fast < yarn.beta_slow) reader.Fail("beta_fast is smaller than beta_slow");
  // Both or neither count, and not when they are 0.
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

// The original length stands beside rope_scaling (Phi 3, and then its ratio to the whole length is
// the factor) or, with transformers 5, in it.
LongRope ReadLongRope(ConfigReader& config, ConfigReader& reader, int head_dim, int max_position) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  LongRope rope;
  const auto pairs = static_cast<size_t>(head_dim / 2);
  rope.short_factor = reader.Numbers("short_factor", pairs, 1e-3, 1e6);
  rope.long_factor = reader.Numbers("long_factor", pairs, 1e-3, 1e6);
  const std::optional<int> beside = config.MaybeInt(kOriginal, 2, kMaxPosition);
  rope.original_max_position =
      beside ? *beside : reader.Int(kOriginal, 2, kMaxPosition, std::max(2, max_position));
  const double ratio = static_cast<double>(max_position) / rope.original_max_position;
  std::optional<double> factor = reader.MaybeNumber("factor", 1e-3, 1024);
  if (beside || !factor) factor = ratio;
  const double inferred =
      *factor <= 1 ? 1 : std::sqrt(1 + std::log(*factor) / std::log(rope.original_max_position));
  rope.attention_factor = reader.MaybeNumber("attention_factor", 1e-3, 1e3).value_or(inferred);
  return rope;
}

Llama3Rope ReadLlama3(ConfigReader& reader) {
  Llama3Rope rope;
  rope.factor = ReadFactor(reader);
  rope.low_freq_factor = reader.Number("low_freq_factor", 1e-3, 1e6);
  rope.high_freq_factor = reader.Number("high_freq_factor", 1e-3, 1e6);
  rope.original_max_position = reader.Int("original_max_position_embeddings", 1, kMaxPosition);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    reader.Fail("high_freq_factor is not larger than low_freq_factor");
  }
  return rope;
}

// Sets rope->scaling, and the longest context of types that extend it.
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
    const YarnRope yarn = ReadYarn(reader, max_position);
    extend(yarn.factor, yarn.original_max_position);
    rope->scaling = yarn;
  } else if (type == "longrope") {
    rope->scaling = ReadLongRope(config, reader, head_dim, max_position);
  } else if (type == "llama3") {
    rope->scaling = ReadLlama3(reader);
  } else if (type != "default") {
    reader.Fail("type " + Quoted(type) +
                " is not supported (supported: default, linear, dynamic, yarn, longrope, llama3)");
  }
}

// Sections of pairs in runs one after the other, as Qwen2-VL has them, are another network.
InterleavedAxes ReadAxes(ConfigReader& reader, int head_dim) {
  if (!reader.Bool("mrope_interleaved", true)) {
    reader.Fail("mrope_interleaved other than true is not supported");
  }
  const int num_pairs = head_dim / 2;
  const std::vector<double> pairs = reader.Numbers("mrope_section", 3, 0, num_pairs);
  if (std::any_of(pairs.begin(), pairs.end(), [](double n) { return n != std::floor(n); }) ||
      pairs[0] + pairs[1] + pairs[2] != num_pairs) {
    reader.Fail("mrope_section is not three whole numbers that add up to " +
                std::to_string(num_pairs));
  }
  return {static_cast<int>(pairs[0]), static_cast<int>(pairs[1]), static_cast<int>(pairs[2])};
}

}  // namespace

// transformers 5 keeps everything in rope_parameters; before, rope_theta stood beside rope_scaling.
StatusOr<RopeConfig> ReadRopeConfig(ConfigReader& config, int head_dim, bool has_axes) {
  RopeConfig rope;
  rope.max_position = config.Int("max_position_embeddings", 1, kMaxPosition);
  rope.theta = config.MaybeNumber("rope_theta", kMinTheta, kMaxTheta).value_or(rope.theta);
  KU_RETURN_IF_ERROR(config.status());
  const char* key = config.Find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const JsonNode* object = config.Find(key);
  if (object == nullptr && has_axes) config.Fail("rope_scaling is missing");
  KU_RETURN_IF_ERROR(config.status());
  if (object == nullptr) return rope;
  if (!object->IsObject()) config.Fail(std::string(key) + " is not an object");
  KU_RETURN_IF_ERROR(config.status());

  ConfigReader reader(*object, std::string("config.json: ") + key);
  rope.theta = reader.MaybeNumber("rope_theta", kMinTheta, kMaxTheta).value_or(rope.theta);
  std::string type = reader.String("rope_type");
  if (type.empty()) type = reader.String("type");
  if (reader.MaybeNumber("partial_rotary_factor", 0, 1).value_or(1) != 1) {
    reader.Fail("partial_rotary_factor other than 1 is not supported");
  }
  if (type.empty()) {
    reader.Fail("rope_type is missing");
  } else {
    // "mrope" says that there are axes, and not how they are scaled.
    ReadScaling(has_axes && type == "mrope" ? "default" : type, config, reader, head_dim, &rope);
  }
  if (has_axes) rope.axes = ReadAxes(reader, head_dim);
  KU_RETURN_IF_ERROR(reader.status());
  KU_RETURN_IF_ERROR(config.status());
  return rope;
}

}  // namespace kuiper
