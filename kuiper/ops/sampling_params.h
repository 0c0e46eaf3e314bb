// Sampling parameters of a request: a plain struct that a request holds, the engine passes on, and
// the Sample kernels read directly. Independent of tokens, rows and steps. Host and device.
#pragma once

#include <cstdint>

#include "kuiper/base/host_device.h"

namespace kuiper {

struct SamplingParams {
  float temperature = 0.f;  // 0 = greedy
  int32_t top_k = 0;        // 0 and -1 = off
  float top_p = 1.f;        // 1 = off
  float min_p = 0.f;        // 0 = off
  float repetition_penalty = 1.f;
  float presence_penalty = 0.f;
  float frequency_penalty = 0.f;
  uint64_t seed = 0;

  KU_HOST_DEVICE bool has_penalties() const {
    return repetition_penalty != 1.f || presence_penalty != 0.f || frequency_penalty != 0.f;
  }
};

}  // namespace kuiper
