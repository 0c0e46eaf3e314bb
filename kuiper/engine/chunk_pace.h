// The number of prompt tokens in a step that also decodes, under SchedulingPolicy::kLatency. It
// keeps such steps below a target time. It learns from the steps that ran. Its start value and
// limits affect only speed, never results.
#pragma once

#include <algorithm>

namespace kuiper {

class ChunkPace {
 public:
  static constexpr int kFirst = 16;  // for devices on which each row costs time, such as a CPU

  // pass_rows: rows that cost a device about as much as one, because the weights are read once for
  // all of them; 0 if there are no such rows.
  ChunkPace(double target_ms, int most, int pass_rows)
      : target_ms_(target_ms),
        most_(std::max(1, pass_rows > 0 ? std::min(pass_rows, most) : most)),
        chunk_(std::min(pass_rows > 0 ? pass_rows : kFirst, most_)),
        pass_rows_(pass_rows) {}

  // Returns the prompt tokens for a step that also decodes num_decodes rows, in [1, most].
  int Chunk(int num_decodes) const {
    return pass_rows_ > 0 ? std::clamp(pass_rows_ - num_decodes, 1, chunk_) : chunk_;
  }

  // Records that a mixed step with this many prompt tokens took `milliseconds`. A slow step shrinks
  // the chunk at once, but at most by half, so that an outlier has little effect. A full and fast
  // step doubles it.
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
