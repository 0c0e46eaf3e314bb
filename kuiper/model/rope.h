// Rotary position embedding tables: a pure host function of the config, equal to Hugging Face's
// FP32 tables. The model uploads them once at load.
#pragma once

#include <vector>

#include "kuiper/model/config.h"

namespace kuiper {

// Angle per position of each pair, [head_dim / 2].
std::vector<float> RopeInvFreq(const RopeConfig& config, int head_dim);

// [end - begin, head_dim] for the positions [begin, end): head_dim/2 cosines, then head_dim/2
// sines.
std::vector<float> RopeCosSin(const RopeConfig& config, int head_dim, int begin, int end);

}  // namespace kuiper
