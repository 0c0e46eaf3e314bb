// Rotary position embedding tables: a pure host function of the config. The tables equal Hugging
// Face's FP32 tables up to the rounding of powers. The model uploads them once at load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/model/rope_config.h"

namespace kuiper {

// Types that depend on the length use `context`, the length of the longest possible sequence. One
// table thus serves every position, and a prompt in chunks gives the same result as a whole one.
// Hugging Face uses the longest sequence so far; its table equals this one when that length is
// `context`.

// Returns the angle per position of each pair, [head_dim / 2].
std::vector<float> RopeInvFreq(const RopeConfig& config, int head_dim, int context);

// Returns [end - begin, head_dim] for the positions [begin, end): head_dim/2 cosines, then
// head_dim/2 sines.
std::vector<float> RopeCosSin(const RopeConfig& config, int head_dim, int context, int begin,
                              int end);

// Returns the position axis that rotates each pair, [head_dim / 2].
std::vector<int32_t> RopeAxes(const RopeConfig& config, int head_dim);

// Describes the table for the log: "dynamic, theta x 3.2 for a context of 8192 tokens". Empty for
// the plain table.
std::string DescribeRope(const RopeConfig& config, int head_dim, int context);

}  // namespace kuiper
