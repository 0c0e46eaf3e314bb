// Which frames of a video a model sees, and when they are shown: numbers alone, those of
// transformers' Qwen3VLVideoProcessor and Qwen3VLProcessor.
#pragma once

#include <span>
#include <vector>

#include "kuiper/io/image/vision_config.h"

namespace kuiper {

// Frames per second of a video that does not say.
constexpr double kDefaultFps = 24;

// Ascending indices of the frames taken of `num_frames` (at least 1), evenly spaced. The first and
// the last are among them.
std::vector<int> SampledFrames(const VisionConfig& config, int num_frames, double fps);

// Seconds at which each group of temporal_patch_size frames is shown: between its first and last.
std::vector<double> GroupSeconds(std::span<const int> indices, int temporal_patch_size, double fps);

}  // namespace kuiper
