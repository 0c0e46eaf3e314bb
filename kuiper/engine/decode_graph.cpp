#include "kuiper/engine/decode_graph.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kuiper/base/log.h"

namespace kuiper {

int DecodeGraph::NumBuckets(int max_seqs, bool can_pad) {
  if (!can_pad) return max_seqs;
  const unsigned seqs = static_cast<unsigned>(max_seqs);
  return std::bit_width(seqs) + (std::has_single_bit(seqs) ? 0 : 1);
}

int DecodeGraph::PadTo(const StepPlan& plan) const {
  if (!plan.decode_only()) return 0;
  const unsigned seqs = static_cast<unsigned>(plan.entries.size());
  return can_pad_ ? std::min(static_cast<int>(std::bit_ceil(seqs)), max_seqs_)
                  : static_cast<int>(seqs);
}

void DecodeGraph::Run(const Batch& batch, bool decode_only,
                      const std::function<void(const Batch&)>& step) {
  const auto run_eagerly = [&] {
    ++num_eager_;
    step(batch);
  };
  if (!decode_only) return run_eagerly();
  const auto [known, is_new] = buckets_.try_emplace(batch.num_seqs);
  Bucket& bucket = known->second;
  if (is_new || bucket.stays_eager) return run_eagerly();
  if (bucket.graph != nullptr) {
    ++num_replayed_;
    return bucket.graph->Replay();
  }
  auto graph = device_.Capture([&] { step(batch); });
  if (!graph.ok()) {
    LogWarning("decode steps of " + std::to_string(batch.num_seqs) +
               " sequences run without a graph: " + graph.status().message());
    bucket.stays_eager = true;
    return run_eagerly();
  }
  ++num_captured_;
  bucket.graph = std::move(graph).value();
}

}  // namespace kuiper
