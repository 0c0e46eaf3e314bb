// Packs the sampling parameters of a step into device arrays and calls Ops::Sample.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/sequence.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

class Sampler {
 public:
  // vocab: of the model, whose ids a prompt may contain. vocab_limit: ids from here on are padding
  // rows of the model and never chosen.
  static StatusOr<std::unique_ptr<Sampler>> Create(Ops& ops, int max_seqs, int max_context,
                                                   int vocab, int vocab_limit);
  static MemorySize SizeOf(int max_seqs, int max_context, int vocab);

  // Enqueues the sampling of logits [R, vocab], one row per sampling entry of the plan, in order,
  // and the download of the ids. `slot` as in BatchBuilder.
  void Sample(Tensor logits, const StepPlan& plan, int slot = 0);
  // What the last Sample in this slot chose, when it is done: one id per row, -1 where the logits
  // are not finite.
  std::vector<int32_t> Tokens(int slot = 0) const;
  // The same on the device, [max_seqs] i32: what the last Sample in any slot chose.
  Tensor device_tokens() const { return device_tokens_.As(DType::kI32, {max_seqs_}); }

 private:
  Sampler(Ops& ops, int max_seqs, int64_t max_penalties, int vocab_limit)
      : ops_(ops), max_seqs_(max_seqs), max_penalties_(max_penalties), vocab_limit_(vocab_limit) {}

  Ops& ops_;
  int max_seqs_;
  int64_t max_penalties_;
  int vocab_limit_;
  struct HostMemory {
    Buffer arena;
    Buffer tokens;  // [max_seqs] i32
    int64_t num_tokens = 0;
  };
  std::array<HostMemory, kMaxStepsInFlight> host_;
  Buffer device_;         // an arena of the same layout
  Buffer device_tokens_;  // [max_seqs] i32
};

}  // namespace kuiper
