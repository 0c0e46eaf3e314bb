// Chooses the frames of a video that the model gets, and their times: pure arithmetic, as in
// transformers' Qwen3VLVideoProcessor and Qwen3VLProcessor.
#pragma once

#include <span>
#include <vector>

#include "kuiper/io/image/vision_config.h"

namespace kuiper {

// Frames per second of a video that does not state its rate.
constexpr double kDefaultFps = 24;

// Returns ascending, evenly spaced indices of the frames sampled out of `num_frames` (at least 1).
// The first frame is among them, and if more than one is sampled, the last.
std::vector<int> SampledFrames(const VisionConfig& config, int num_frames, double fps);

// Returns the time in seconds of each group of temporal_patch_size frames, midway between its first
// and last frame.
std::vector<double> GroupSeconds(std::span<const int> indices, int temporal_patch_size, double fps);

}  // namespace kuiper
