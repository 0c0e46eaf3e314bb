#include "kuiper/model/manifest.h"

#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/model/architecture.h"
#include "kuiper/model/decoder.h"

namespace kuiper {

void WeightManifest::AddNorm(const std::string& prefix, int64_t size, Tensor* place) {
  weights.push_back({.name = prefix + ".weight", .shape = {size}, .tensor = place});
}

void WeightManifest::AddPart(const std::string& prefix, WeightRole role, int out, int in, bool bias,
                             Linear* linear) {
  KU_CHECK(linear->num_parts < Linear::kMaxParts);
  Linear::Part& part = linear->parts[linear->num_parts++];
  linear->in = in;
  linear->out += out;
  weights.push_back({.name = prefix + ".weight",
                     .shape = {out, in},
                     .role = role,
                     .matrix = &part.weight,
                     .linear = linear});
  if (!bias) return;
  weights.push_back({.name = prefix + ".bias", .shape = {out}, .role = role, .tensor = &part.bias});
}

WeightManifest ListWeights(const ModelConfig& config, DecoderWeights* into, VisionWeights* vision) {
  const auto prefix = [&config](std::string_view whole) {
    constexpr std::string_view kModel = "model.";
    return std::string(config.lacks_model_prefix ? whole.substr(kModel.size()) : whole);
  };
  for (const Architecture& a : Architectures()) {
    if (a.name != config.architecture) continue;
    WeightManifest list = a.list_weights(config.decoder, prefix(a.weight_prefix), into);
    if (vision != nullptr && config.vision.has_value()) {
      AddVisionWeights(*config.vision, prefix("model.visual."), vision, &list);
    }
    return list;
  }
  KU_CHECK(false, config.architecture);
  return {};
}

}  // namespace kuiper
