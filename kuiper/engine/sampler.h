// Packs the sampling parameters of a step into device arrays and runs Sample. Depends only on the
// plan, not on sequences.
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
  // vocab: vocabulary of the model; prompts may contain all its ids. vocab_limit: ids from here on
  // are padding rows of the model and are never chosen.
  static StatusOr<std::unique_ptr<Sampler>> Create(Ops& ops, int max_samples, int max_context,
                                                   int vocab, int vocab_limit);
  static MemorySize SizeOf(int max_samples, int max_context, int vocab);
  // Most distinct ids that the penalties of one step use, over all samples.
  static int64_t MaxPenalties(int max_samples, int max_context, int vocab);
  // Most biases of one step, over all samples.
  static int64_t MaxBiases(int max_samples, int vocab);

  // Enqueues the sampling of logits [R, vocab] and the download of the ids. Row r belongs to
  // plan.samples[r]. `flight` as in BatchBuilder.
  void Sample(Tensor logits, const StepPlan& plan, int flight = 0);
  // Returns the tokens of the last Sample with this `flight`, which must be done.
  StepResult Result(int flight = 0) const;
  // Ids on the device, [max_samples] i32, from the last Sample with any `flight`.
  Tensor device_tokens() const { return device_tokens_.As(DType::kI32, {most_.num_rows}); }

 private:
  // The arrays of SampleArgs, one after the other in one arena.
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
  Buffer arrays_;         // an arena with the same layout
  Buffer device_tokens_;  // [max_samples] i32
};

}  // namespace kuiper
