// How many prompt tokens a step takes that also decodes, under SchedulingPolicy::kLatency: as many
// as keep the time of such a step below a target. It learns from the steps that ran; where it
// starts and how far it goes decides about speed only, never about bits.
#pragma once

#include <algorithm>

namespace kuiper {

class ChunkPace {
 public:
  static constexpr int kFirst = 16;  // where rows have to be paid for one by one, as on a CPU

  // pass_rows: rows that cost a device about as much as one, because the weights are read once for
  // all of them; 0: none.
  ChunkPace(double target_ms, int most, int pass_rows)
      : target_ms_(target_ms),
        most_(std::max(1, pass_rows > 0 ? std::min(pass_rows, most) : most)),
        chunk_(std::min(pass_rows > 0 ? pass_rows : kFirst, most_)),
        pass_rows_(pass_rows) {}

  // Beside this many rows that decode, in [1, most].
  int Chunk(int num_decodes) const {
    return pass_rows_ > 0 ? std::clamp(pass_rows_ - num_decodes, 1, chunk_) : chunk_;
  }

  // A step with that many prompt tokens beside others took so long. Slow steps shrink the chunk at
  // once, by half at most, so that one that was disturbed does not; full and fast ones double it.
  void Observe(int num_prompt_tokens, double milliseconds) {
    if (milliseconds > target_ms_) {
      const double factor = std::max(0.5, target_ms_ / milliseconds);
      chunk_ = std::max(1, static_cast<int>(std::min(num_prompt_tokens, chunk_) * factor));
    } else if (milliseconds < 0.5 * target_ms_ && 2 * num_prompt_tokens > chunk_) {
      chunk_ = std::min(2 * chunk_, most_);
    }
  }

 private:
  double target_ms_;
  int most_, chunk_, pass_rows_;
};

}  // namespace kuiper
