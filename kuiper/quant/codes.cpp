#include "kuiper/quant/codes.h"

#include <algorithm>
#include <cmath>

#include "kuiper/base/check.h"
#include "kuiper/base/half.h"
#include "kuiper/base/parallel.h"

namespace kuiper {
namespace {

float RoundedTo(DType type, float x) {
  return type == DType::kF16    ? ToFloat(ToHalf(x))
         : type == DType::kBF16 ? ToFloat(ToBFloat16(x))
                                : x;
}

// Rounds to the nearest integer, ties to even, for |x| < 2^22. Unlike std::nearbyint, compilers
// vectorise it.
float Nearest(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// Returns the code of w on the grid, as a float with an integer value.
float CodeOf(float w, const CodeGrid& grid, float max_code) {
  // Clamp first: if the scale was rounded down, the quotient can be large.
  const float zero = static_cast<float>(grid.zero);
  const float steps = std::clamp(w / grid.scale, -zero - 1, max_code - zero + 1);
  return std::clamp(Nearest(steps) + zero, 0.f, max_code);
}

}  // namespace

CodeGrid GridOf(std::span<const float> group, float shrink, const CodeScheme& scheme) {
  float low = 0, high = 0;
  for (const float w : group) {
    low = std::min(low, w);
    high = std::max(high, w);
  }
  low *= shrink;
  high *= shrink;
  const float range = scheme.symmetric ? 2 * std::max(-low, high) : high - low;
  const float max_code = static_cast<float>(scheme.max_code());
  CodeGrid grid{RoundedTo(scheme.scale_type, range / max_code), scheme.middle()};
  // For groups of zeros, or of values too small for the type of the scales.
  if (grid.scale == 0) grid.scale = 0x1p-14f;
  if (!scheme.symmetric) {
    grid.zero = static_cast<int>(std::clamp(Nearest(-low / grid.scale), 0.f, max_code));
  }
  return grid;
}

void RoundTo(const CodeGrid& grid, const CodeScheme& scheme, std::span<const float> group,
             float* rounded) {
  const float max_code = static_cast<float>(scheme.max_code());
  const float zero = static_cast<float>(grid.zero);
  for (size_t i = 0; i < group.size(); ++i) {
    rounded[i] = (CodeOf(group[i], grid, max_code) - zero) * grid.scale;
  }
}

CodedMatrix Encode(std::span<const float> values, int64_t out, int64_t in,
                   std::span<const float> shrinks, const CodeScheme& scheme, int num_threads) {
  KU_CHECK(in % scheme.group_size == 0 && static_cast<int64_t>(values.size()) == out * in);
  CodedMatrix matrix{scheme, out, in, {}, {}};
  const int64_t groups = matrix.groups();
  KU_CHECK(shrinks.empty() || static_cast<int64_t>(shrinks.size()) == out * groups);
  matrix.codes.resize(values.size());
  matrix.grids.resize(static_cast<size_t>(out * groups));
  const float max_code = static_cast<float>(scheme.max_code());
  ParallelRanges(out * groups, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const std::span<const float> group = values.subspan(g * scheme.group_size, scheme.group_size);
      const CodeGrid grid = GridOf(group, shrinks.empty() ? 1.f : shrinks[g], scheme);
      matrix.grids[g] = grid;
      uint8_t* codes = matrix.codes.data() + g * scheme.group_size;
      for (size_t i = 0; i < group.size(); ++i) {
        codes[i] = static_cast<uint8_t>(CodeOf(group[i], grid, max_code));
      }
    }
  });
  return matrix;
}

std::vector<float> Decode(const CodedMatrix& matrix) {
  std::vector<float> values(matrix.codes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const CodeGrid& grid = matrix.grids[i / matrix.scheme.group_size];
    values[i] = static_cast<float>(matrix.codes[i] - grid.zero) * grid.scale;
  }
  return values;
}

}  // namespace kuiper
