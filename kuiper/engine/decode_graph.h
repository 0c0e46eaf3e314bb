// Captures the decode step as a graph once per batch-size bucket and replays it. The first step of
// a bucket is eager, because drivers before CUDA 12.3 cannot load a kernel during capture; the
// second is captured. Eager and replayed steps are the same callable on the same arrays (guarantee
// G2). A batch is padded up to its bucket with one-token sequences on the null page. A contiguous
// cache has no room for padding: there every size is a bucket.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "kuiper/engine/step_plan.h"
#include "kuiper/model/batch.h"
#include "kuiper/ops/compute_device.h"

namespace kuiper {

class DecodeGraph {
 public:
  // can_pad: buckets are the powers of two up to max_seqs, and max_seqs itself. Otherwise all sizes
  // up to max_seqs are buckets.
  DecodeGraph(ComputeDevice& device, int max_seqs, bool can_pad)
      : device_(device), max_seqs_(max_seqs), can_pad_(can_pad) {}

  static int NumBuckets(int max_seqs, bool can_pad);

  // Returns the number of sequences to pad a decode-only plan to; 0 for other plans.
  int PadTo(const StepPlan& plan) const;
  // Runs step(batch). The step of a padded decode batch is captured the second time its size occurs
  // and replayed from then on. If the capture fails, steps of this size stay eager.
  void Run(const Batch& batch, bool decode_only, const std::function<void(const Batch&)>& step);

  int num_captured() const { return num_captured_; }
  int64_t num_replayed() const { return num_replayed_; }
  int64_t num_eager() const { return num_eager_; }

 private:
  ComputeDevice& device_;
  int max_seqs_;
  bool can_pad_;
  struct Bucket {
    std::unique_ptr<CapturedGraph> graph;
    bool stays_eager = false;  // the capture failed
  };
  std::map<int, Bucket> buckets_;  // sizes that occurred, by number of sequences
  int num_captured_ = 0;
  int64_t num_replayed_ = 0;
  int64_t num_eager_ = 0;
};

}  // namespace kuiper
