// Computes the logits of a prompt's positions without a request: Engine::Logits without its checks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine_parts.h"

namespace kuiper {

// See Engine::Logits. There must be no requests, and the prompt must fit the context.
Status ComputeLogits(EngineParts& parts, std::span<const int32_t> prompt,
                     std::vector<VisionInput> images,
                     const std::function<void(int position, const float* logits)>& on_row,
                     int first);

}  // namespace kuiper
