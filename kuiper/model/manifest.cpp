#include "kuiper/model/manifest.h"

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

WeightManifest ListWeights(const ModelConfig& config, DecoderWeights* into) {
  KU_CHECK(config.supported);
  for (const Architecture& a : Architectures()) {
    if (a.name != config.architecture) continue;
    return a.list_weights(config.decoder, config.bare_names ? "" : a.weight_prefix, into);
  }
  KU_CHECK(false, config.architecture);
  return {};
}

}  // namespace kuiper
