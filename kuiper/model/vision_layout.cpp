#include "kuiper/model/vision_layout.h"

#include <algorithm>
#include <cmath>

#include "kuiper/base/check.h"
#include "kuiper/model/rope.h"

namespace kuiper {
namespace {

// Coordinates in the position table for each of `n` rows (columns) of a grid, from the first to the
// last row of the table. Computed as torch.linspace in FP32, which counts from the nearer end.
struct Coordinate {
  int32_t floor, ceil;
  float share;  // weight of ceil
};
std::vector<Coordinate> Spread(int n, int side) {
  const float last = static_cast<float>(side - 1);
  const float step = n > 1 ? last / static_cast<float>(n - 1) : 0.0f;
  std::vector<Coordinate> coordinates(n);
  for (int i = 0; i < n; ++i) {
    const float at = i < n / 2 || n == 1 ? step * static_cast<float>(i)
                                         : last - step * static_cast<float>(n - 1 - i);
    const auto floor = static_cast<int32_t>(at);
    coordinates[i] = {floor, std::min(floor + 1, side - 1), at - static_cast<float>(floor)};
  }
  return coordinates;
}

}  // namespace

void LayOutFrame(const VisionEncoderConfig& c, int h, int w, const VisionLayout& to) {
  KU_CHECK(h > 0 && w > 0 && h % c.merge == 0 && w % c.merge == 0);
  const std::vector<Coordinate> down = Spread(h, c.position_side);
  const std::vector<Coordinate> right = Spread(w, c.position_side);
  const int side = c.position_side;
  int64_t n = 0;
  const auto put = [&](int row, int column) {
    const Coordinate &u = down[row], &v = right[column];
    to.rows[n] = row;
    to.columns[n] = column;
    const int32_t corners[] = {u.floor * side + v.floor, u.floor * side + v.ceil,
                               u.ceil * side + v.floor, u.ceil * side + v.ceil};
    const float weights[] = {(1 - u.share) * (1 - v.share), (1 - u.share) * v.share,
                             u.share * (1 - v.share), u.share * v.share};
    std::copy_n(corners, kCorners, to.corners + n * kCorners);
    std::copy_n(weights, kCorners, to.weights + n * kCorners);
    ++n;
  };
  for (int block_row = 0; block_row < h; block_row += c.merge) {
    for (int block_column = 0; block_column < w; block_column += c.merge) {
      for (int i = 0; i < c.merge * c.merge; ++i) {
        put(block_row + i / c.merge, block_column + i % c.merge);
      }
    }
  }
}

std::vector<float> VisionCosSin(int head_dim, int positions) {
  KU_CHECK(head_dim % 4 == 0);
  const int quarter = head_dim / 4;
  const RopeConfig config{.theta = 10000, .max_position = positions, .scaling = {}, .axes = {}};
  const std::vector<float> half = RopeCosSin(config, head_dim / 2, positions, 0, positions);
  std::vector<float> table(static_cast<size_t>(positions) * head_dim);
  for (int pos = 0; pos < positions; ++pos) {
    const float* cosines = half.data() + static_cast<size_t>(pos) * 2 * quarter;
    float* to = table.data() + static_cast<size_t>(pos) * head_dim;
    for (const float* values : {cosines, cosines, cosines + quarter, cosines + quarter}) {
      to = std::copy_n(values, quarter, to);
    }
  }
  return table;
}

std::vector<int32_t> VisionAxes(int head_dim) {
  std::vector<int32_t> axes(head_dim / 2, 0);
  std::fill(axes.begin() + head_dim / 4, axes.end(), 1);
  return axes;
}

}  // namespace kuiper
