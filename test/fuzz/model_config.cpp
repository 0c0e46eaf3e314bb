// Fuzzes config.json and generation_config.json: an accepted configuration must be one that the
// decoder can be built for.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/model/config.h"
#include "kuiper/model/decoder.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/rope.h"
#include "kuiper/model/vision_encoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)kuiper::ParseGenerationConfig(text).ok();
  const auto config = kuiper::ParseModelConfig(text);
  if (!config.ok()) return 0;
  const kuiper::DecoderConfig& d = config->decoder;
  KU_CHECK(d.vocab > 0 && d.hidden > 0 && d.layers > 0 && d.intermediate > 0, "sizes");
  KU_CHECK(d.kv_heads > 0 && d.heads % d.kv_heads == 0, "heads");
  KU_CHECK(d.head_dim > 0 && d.head_dim % 2 == 0, "head_dim");
  KU_CHECK(d.rope.max_position > 0, "max_position");
  kuiper::DecoderWeights weights;
  kuiper::VisionWeights vision;
  for (const kuiper::Weight& weight : kuiper::ListWeights(*config, &weights, &vision).weights) {
    KU_CHECK(weight.num_values() > 0, weight.name);
  }
  for (const int context : {1, d.rope.max_position}) {
    for (float f : kuiper::RopeInvFreq(d.rope, d.head_dim, context)) {
      KU_CHECK(std::isfinite(f), "inv_freq");
    }
  }
  for (int i = 0; i < d.layers; ++i) KU_CHECK(d.window(i) >= 0, "window");
  return 0;
}
