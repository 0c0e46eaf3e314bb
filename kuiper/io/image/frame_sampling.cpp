#include "kuiper/io/image/frame_sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kuiper {

std::vector<int> SampledFrames(const VisionConfig& config, int num_frames, double fps) {
  // Clamped before the conversion to int, because a rate near 0 gives very large numbers.
  const double wanted = std::trunc(num_frames / fps * config.sampled_fps);
  const double least = std::min(config.min_frames, num_frames);
  const double most = std::min(config.max_frames, num_frames);
  const int count = static_cast<int>(std::clamp(wanted, least, most));
  // This is numpy.linspace(0, num_frames - 1, count).round(), half to even.
  std::vector<int> indices(static_cast<size_t>(count), 0);
  const double step = static_cast<double>(num_frames - 1) / std::max(count - 1, 1);
  for (int i = 1; i < count; ++i) {
    indices[static_cast<size_t>(i)] = static_cast<int>(std::nearbyint(i * step));
  }
  if (count > 1) indices.back() = num_frames - 1;
  return indices;
}

std::vector<double> GroupSeconds(std::span<const int> indices, int temporal_patch_size,
                                 double fps) {
  const auto group = static_cast<size_t>(temporal_patch_size);
  std::vector<double> seconds;
  for (size_t first = 0; first < indices.size(); first += group) {
    const size_t last = std::min(first + group, indices.size()) - 1;
    seconds.push_back((indices[first] / fps + indices[last] / fps) / 2);
  }
  return seconds;
}

}  // namespace kuiper
