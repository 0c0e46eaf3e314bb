#include "kuiper/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kuiper/base/check.h"

namespace kuiper {
namespace {

// The pair whose wavelength makes `rotations` turns within the original context.
double CorrectionPair(double rotations, int head_dim, const RopeConfig& config) {
  return head_dim *
         std::log(config.yarn->original_max_position / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

// Share of each pair's frequency that is interpolated (divided by the factor): 0 below the ramp, 1
// above it.
std::vector<float> YarnRamp(const RopeConfig& config, int head_dim) {
  const YarnConfig& yarn = *config.yarn;
  double low = CorrectionPair(yarn.beta_fast, head_dim, config);
  double high = CorrectionPair(yarn.beta_slow, head_dim, config);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> ramp(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) {
    const float position =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    ramp[i] = std::clamp(position, 0.f, 1.f);
  }
  return ramp;
}

}  // namespace

// transformers' modeling_rope_utils.py computes these in FP32; each rounding below is one of its.
std::vector<float> RopeInvFreq(const RopeConfig& config, int head_dim) {
  std::vector<float> inv_freq(head_dim / 2);
  const std::vector<float> ramp =
      config.yarn ? YarnRamp(config, head_dim) : std::vector<float>(inv_freq.size(), 0.f);
  for (int i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float period = static_cast<float>(std::pow(config.theta, static_cast<double>(exponent)));
    inv_freq[i] = 1.f / period;
    if (config.yarn) {
      const float keep = 1.f - ramp[i];
      const float interpolated = 1.f / (static_cast<float>(config.yarn->factor) * period);
      inv_freq[i] = interpolated * (1.f - keep) + inv_freq[i] * keep;
    }
  }
  return inv_freq;
}

std::vector<float> RopeCosSin(const RopeConfig& config, int head_dim, int begin, int end) {
  KU_CHECK(head_dim % 2 == 0 && 0 <= begin && begin <= end);
  const std::vector<float> inv_freq = RopeInvFreq(config, head_dim);
  const float scale = config.yarn ? static_cast<float>(config.yarn->attention_factor) : 1.f;
  std::vector<float> table(static_cast<size_t>(end - begin) * head_dim);
  for (int pos = begin; pos < end; ++pos) {
    float* row = table.data() + static_cast<size_t>(pos - begin) * head_dim;
    for (int i = 0; i < head_dim / 2; ++i) {
      const double angle = static_cast<float>(pos) * inv_freq[i];  // an FP32 product, as there
      row[i] = static_cast<float>(std::cos(angle)) * scale;
      row[head_dim / 2 + i] = static_cast<float>(std::sin(angle)) * scale;
    }
  }
  return table;
}

}  // namespace kuiper
