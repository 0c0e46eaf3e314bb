// Packs the sampling parameters of a step into device arrays and runs Sample. A function of
// the plan; it knows nothing of sequences.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/batch_builder.h"
#include "kuiper/engine/step_plan.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

class Sampler {
 public:
  // vocab: of the model, whose ids a prompt may contain. vocab_limit: ids from here on are padding
  // rows of the model and never chosen.
  static StatusOr<std::unique_ptr<Sampler>> Create(Ops& ops, int max_samples, int max_context,
                                                   int vocab, int vocab_limit);
  static MemorySize SizeOf(int max_samples, int max_context, int vocab);
  // Most distinct ids of all samples of a step that penalties look at.
  static int64_t MaxPenalties(int max_samples, int max_context, int vocab);
  // Most biases of all samples of a step.
  static int64_t MaxBiases(int max_samples, int vocab);

  // Enqueues the sampling of logits [R, vocab], of which row r is that of plan.samples[r], and the
  // download of the ids. `flight` as in BatchBuilder.
  void Sample(Tensor logits, const StepPlan& plan, int flight = 0);
  // What the last Sample in this flight chose, when it is done.
  StepResult Result(int flight = 0) const;
  // The ids on the device, [max_samples] i32: what the last Sample in any flight chose.
  Tensor device_tokens() const { return device_tokens_.As(DType::kI32, {most_.num_rows}); }

 private:
  // The arrays of SampleArgs side by side in one arena.
  struct Arena;
  struct ArenaSize {
    int64_t num_rows = 0, num_penalties = 0, num_biases = 0;
    size_t bytes() const;
  };
  static ArenaSize LargestArena(int max_samples, int max_context, int vocab);

  Sampler(Ops& ops, const ArenaSize& most, int vocab_limit)
      : ops_(ops), most_(most), vocab_limit_(vocab_limit) {}

  Ops& ops_;
  const ArenaSize most_;
  int vocab_limit_;
  struct HostMemory {
    Buffer arena;
    Buffer tokens;  // [max_samples] i32
    int64_t num_tokens = 0;
  };
  std::array<HostMemory, kMaxStepsInFlight> host_;
  Buffer arrays_;         // an arena of the same layout
  Buffer device_tokens_;  // [max_samples] i32
};

}  // namespace kuiper
