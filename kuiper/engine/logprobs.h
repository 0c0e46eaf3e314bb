// Log probabilities of one row of logits, on the host.
#pragma once

#include <cstdint>
#include <span>

#include "kuiper/engine/request.h"

namespace kuiper {

// log softmax of logits [vocab] at `token` and of its `count` (at most vocab) most likely ids; ties
// go to the lowest id. The logits are finite or -inf.
TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int count);

}  // namespace kuiper
