// Rotary position embedding tables: a pure host function of the config, equal to Hugging Face's
// FP32 tables up to the rounding of powers. The model uploads them once at load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/model/rope_config.h"

namespace kuiper {

// What the types that depend on the length look at is `context`, the longest sequence: one table
// serves every position, so that a prompt in chunks gives what it gives as a whole. Hugging Face
// looks at the longest sequence so far; its table is this one when that is as long as `context`.

// Angle per position of each pair, [head_dim / 2].
std::vector<float> RopeInvFreq(const RopeConfig& config, int head_dim, int context);

// [end - begin, head_dim] for the positions [begin, end): head_dim/2 cosines, then head_dim/2
// sines.
std::vector<float> RopeCosSin(const RopeConfig& config, int head_dim, int context, int begin,
                              int end);

// The axis of positions that rotates each pair, [head_dim / 2].
std::vector<int32_t> RopeAxes(const RopeConfig& config, int head_dim);

// The table in words, for the log: "dynamic, theta x 3.2 for a context of 8192 tokens". Empty for
// the plain one.
std::string DescribeRope(const RopeConfig& config, int head_dim, int context);

}  // namespace kuiper
