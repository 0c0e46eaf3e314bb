// transformers' modeling_rope_utils.py computes these in FP32; each rounding below follows it.
#include "kuiper/model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "kuiper/base/check.h"

namespace kuiper {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // Clang before 17 does not deduce it

float Power(double base, float exponent) {
  return static_cast<float>(std::pow(base, static_cast<double>(exponent)));
}

// Returns for each pair i the number of positions per radian, theta^(2i / head_dim).
std::vector<float> Periods(double theta, int head_dim) {
  std::vector<float> periods(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) {
    periods[i] = Power(theta, static_cast<float>(2 * i) / static_cast<float>(head_dim));
  }
  return periods;
}

std::vector<float> Inverse(std::vector<float> periods) {
  for (float& period : periods) period = 1.f / period;
  return periods;
}

// Returns the factor to multiply theta by; 1 up to the trained length.
float DynamicStretch(const DynamicRope& rope, int head_dim, int context) {
  if (context <= rope.trained_length) return 1;
  const auto factor = static_cast<float>(rope.factor);
  const float scaled =
      factor * static_cast<float>(context) / static_cast<float>(rope.trained_length) -
      static_cast<float>(rope.factor - 1);
  return Power(scaled, static_cast<float>(static_cast<double>(head_dim) / (head_dim - 2)));
}

std::vector<float> DynamicFrequencies(const RopeConfig& config, const DynamicRope& rope,
                                      int head_dim, int context) {
  const float stretch = DynamicStretch(rope, head_dim, context);
  const double theta =
      stretch == 1 ? config.theta : static_cast<double>(static_cast<float>(config.theta) * stretch);
  return Inverse(Periods(theta, head_dim));
}

// Returns the pair whose wavelength makes `rotations` turns within the original context.
double CorrectionPair(double rotations, int head_dim, double theta, const YarnRope& yarn) {
  return head_dim * std::log(yarn.original_max_position / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

// Returns the interpolated share of each pair's frequency (divided by the factor): 0 below the
// ramp, 1 above it.
std::vector<float> YarnRamp(double theta, const YarnRope& yarn, int head_dim) {
  double low = CorrectionPair(yarn.beta_fast, head_dim, theta, yarn);
  double high = CorrectionPair(yarn.beta_slow, head_dim, theta, yarn);
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

std::vector<float> YarnFrequencies(double theta, const YarnRope& yarn, int head_dim) {
  std::vector<float> inv_freq = Periods(theta, head_dim);
  const std::vector<float> ramp = YarnRamp(theta, yarn, head_dim);
  for (int i = 0; i < head_dim / 2; ++i) {
    const float period = inv_freq[i];
    const float keep = 1.f - ramp[i];
    const float interpolated = 1.f / (static_cast<float>(yarn.factor) * period);
    inv_freq[i] = interpolated * (1.f - keep) + 1.f / period * keep;
  }
  return inv_freq;
}

bool IsLong(const LongRope& rope, int context) {
  return context > rope.original_max_position;
}

std::vector<float> LongRopeFrequencies(double theta, const LongRope& rope, int head_dim,
                                       int context) {
  const std::vector<double>& factors = IsLong(rope, context) ? rope.long_factor : rope.short_factor;
  std::vector<float> periods = Periods(theta, head_dim);
  for (int i = 0; i < head_dim / 2; ++i) periods[i] *= static_cast<float>(factors[i]);
  return Inverse(std::move(periods));
}

std::vector<float> Llama3Frequencies(double theta, const Llama3Rope& rope, int head_dim) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const double length = rope.original_max_position;
  std::vector<float> inv_freq = Inverse(Periods(theta, head_dim));
  for (float& frequency : inv_freq) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength > static_cast<float>(length / rope.low_freq_factor)) {
      frequency /= factor;
    } else if (!(wavelength < static_cast<float>(length / rope.high_freq_factor))) {
      const float smooth = (static_cast<float>(length) / wavelength - low) /
                           static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1.f - smooth) * frequency / factor + smooth * frequency;
    }
  }
  return inv_freq;
}

// Returns the factor that cos and sin are multiplied by.
float AttentionFactor(const RopeConfig& config) {
  if (const auto* yarn = std::get_if<YarnRope>(&config.scaling)) {
    return static_cast<float>(yarn->attention_factor);
  }
  if (const auto* rope = std::get_if<LongRope>(&config.scaling)) {
    return static_cast<float>(rope->attention_factor);
  }
  return 1;
}

}  // namespace

std::vector<float> RopeInvFreq(const RopeConfig& config, int head_dim, int context) {
  const double theta = config.theta;
  const Overloaded make = {
      [&](std::monostate) { return Inverse(Periods(theta, head_dim)); },
      [&](const LinearRope& rope) {
        std::vector<float> inv_freq = Inverse(Periods(theta, head_dim));
        for (float& frequency : inv_freq) frequency /= static_cast<float>(rope.factor);
        return inv_freq;
      },
      [&](const DynamicRope& rope) { return DynamicFrequencies(config, rope, head_dim, context); },
      [&](const YarnRope& rope) { return YarnFrequencies(theta, rope, head_dim); },
      [&](const LongRope& rope) { return LongRopeFrequencies(theta, rope, head_dim, context); },
      [&](const Llama3Rope& rope) { return Llama3Frequencies(theta, rope, head_dim); },
  };
  return std::visit(make, config.scaling);
}

std::vector<float> RopeCosSin(const RopeConfig& config, int head_dim, int context, int begin,
                              int end) {
  KU_CHECK(head_dim % 2 == 0 && 0 <= begin && begin <= end);
  const std::vector<float> inv_freq = RopeInvFreq(config, head_dim, context);
  const float scale = AttentionFactor(config);
  std::vector<float> table(static_cast<size_t>(end - begin) * head_dim);
  for (int pos = begin; pos < end; ++pos) {
    float* row = table.data() + static_cast<size_t>(pos - begin) * head_dim;
    for (int i = 0; i < head_dim / 2; ++i) {
      // An FP32 product, as in transformers.
      const double angle = static_cast<float>(pos) * inv_freq[i];
      row[i] = static_cast<float>(std::cos(angle)) * scale;
      row[head_dim / 2 + i] = static_cast<float>(std::sin(angle)) * scale;
    }
  }
  return table;
}

std::vector<int32_t> RopeAxes(const RopeConfig& config, int head_dim) {
  std::vector<int32_t> axes(head_dim / 2, 0);
  if (!config.axes.has_value()) return axes;
  for (int i = 0; i < head_dim / 2; ++i) {
    if (i % 3 == 1 && i < 3 * config.axes->rows) axes[i] = 1;
    if (i % 3 == 2 && i < 3 * config.axes->columns) axes[i] = 2;
  }
  return axes;
}

std::string DescribeRope(const RopeConfig& config, int head_dim, int context) {
  char text[160] = "";
  const auto print = [&text](const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
  };
  const Overloaded describe = {
      [](std::monostate) {},
      [&](const LinearRope& rope) { print("linear, factor %g", rope.factor); },
      [&](const DynamicRope& rope) {
        print("dynamic, theta x %g for a context of %d tokens (trained: %d)",
              DynamicStretch(rope, head_dim, context), context, rope.trained_length);
      },
      [&](const YarnRope& rope) {
        print("yarn, factor %g over %d tokens", rope.factor, rope.original_max_position);
      },
      [&](const LongRope& rope) {
        print("longrope, the %s factors for a context of %d tokens (trained: %d)",
              IsLong(rope, context) ? "long" : "short", context, rope.original_max_position);
      },
      [&](const Llama3Rope& rope) {
        print("llama3, factor %g over %d tokens", rope.factor, rope.original_max_position);
      },
  };
  std::visit(describe, config.scaling);
  return text;
}

}  // namespace kuiper
