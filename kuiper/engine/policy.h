// How requests share the machine; set once per engine.
#pragma once

#include <cstdint>

namespace kuiper {

enum class SchedulingPolicy : uint8_t {
  kThroughput,  // as many sequences as the limits allow, prompts fill the step
  // At most two sequences. While one decodes, the other's prompt is computed in chunks that keep
  // the step within EngineConfig::latency_target_ms. On devices, prompts use the kernels of decode
  // steps, so that a mixed step reads the weights once.
  kLatency,
};

// What happens when the KV cache is full.
enum class OnFull : uint8_t {
  kPreempt,  // admit what fits; if the pool runs full, preempt the lowest-ranked sequence
  kStop,     // admit only what can be served to its end; a sequence that needs more ends
  // Context shift: as kStop, but a full sequence drops its oldest half, not its first tokens, and
  // continues.
  kSlide,
};

// How a preempted sequence regains its keys and values.
enum class Preemption : uint8_t {
  kRecompute,  // computes them again, the generated tokens included
  kSwap,       // keeps them in host memory, if there is room
  kAuto,       // the faster of the two
};

}  // namespace kuiper
