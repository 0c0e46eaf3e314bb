// How requests share the machine; chosen once for an engine.
#pragma once

#include <cstdint>

namespace kuiper {

enum class SchedulingPolicy : uint8_t {
  kThroughput,  // as many sequences as the limits allow, prompts fill the step
  // At most two sequences; while one decodes, the prompt of the other comes in chunks that keep the
  // step within EngineConfig::latency_target_ms. On devices prompts take the kernels of decode
  // steps, so that such a step reads the weights once.
  kLatency,
};

// What happens when the KV cache is full.
enum class OnFull : uint8_t {
  kPreempt,  // admit what fits, and take pages back from whoever is last in line
  kStop,     // admit only what can be served to its end; who wants more than there is stops
  kSlide,  // as kStop, but a sequence drops its oldest half, but for the first tokens, and goes on
};

// How a preempted sequence gets its keys and values back.
enum class Preemption : uint8_t {
  kRecompute,  // computes them again, the generated tokens included
  kSwap,       // they wait in host memory, if there is room
  kAuto,       // whichever takes less time
};

}  // namespace kuiper
