// Rotary position embedding settings: rope_theta and rope_scaling of a config.json, checked. There
// is one struct for each type in Hugging Face's modeling_rope_utils.py that differs from the plain
// table. rope.h makes the tables.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

class ConfigReader;

// "linear": positions are divided by the factor.
struct LinearRope {
  double factor = 1;
};

// "dynamic", NTK-aware scaling: beyond the trained length, theta grows with the context.
struct DynamicRope {
  double factor = 1;
  int trained_length = 0;
};

// "yarn", YaRN (arXiv:2309.00071).
struct YarnRope {
  double factor = 1;
  int original_max_position = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 1;  // multiplies cos and sin
  bool truncate = true;         // round the bounds of the ramp to whole pairs
};

// "longrope", LongRoPE (arXiv:2402.13753): each pair's frequency is divided by its own factor, the
// long one if the context exceeds the original length.
struct LongRope {
  std::vector<double> short_factor, long_factor;  // [head_dim / 2]
  int original_max_position = 0;
  double attention_factor = 1;
};

// "llama3": wavelengths above original_max_position / low_freq_factor are stretched by the factor.
// Wavelengths below original_max_position / high_freq_factor are unchanged, and those in between
// are stretched in part.
struct Llama3Rope {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int original_max_position = 0;
};

// Qwen3-VL's interleaved M-RoPE: a token has a position in time, a row and a column. The row
// rotates pair i if i % 3 == 1 and i < 3 * rows. The column rotates it if i % 3 == 2 and i < 3 *
// columns. Time rotates the other pairs.
struct InterleavedAxes {
  int time = 0, rows = 0, columns = 0;  // number of pairs of each; together head_dim / 2
};

struct RopeConfig {
  double theta = 10000;
  int max_position =
      0;  // longest context; at least factor * trained length for types that extend it
  std::variant<std::monostate, LinearRope, DynamicRope, YarnRope, LongRope, Llama3Rope> scaling;
  std::optional<InterleavedAxes> axes;  // absent: a token has one position

  int num_axes() const { return axes.has_value() ? 3 : 1; }
};

inline constexpr int kMaxPosition = 1 << 24;

// Reads the keys of a config.json. Returns kModel, with a line that names the key, on errors.
// `has_axes`: the model has vision, so its tokens have three positions.
StatusOr<RopeConfig> ReadRopeConfig(ConfigReader& config, int head_dim, bool has_axes);

}  // namespace kuiper
