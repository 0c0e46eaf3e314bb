// Derives the sizes of steps and the request to the memory planner from an engine's configuration.
// engine_setup.cpp uses it both to plan and to make the parts, so that the two agree.
#pragma once

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/memory_planner.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/model/weight_source.h"

namespace kuiper {

// Limits on pictures; all 0 if pictures are not accepted.
struct VisionLimits {
  int64_t frame_tokens = 0;  // tokens of an image, or of a frame of a video
  int max_patches = 0;       // the same in patches, for a pass of the encoder
  int64_t cache_tokens = 0;  // tokens whose encoder output is kept
};
VisionLimits VisionLimitsOf(const EngineConfig& config, const ModelConfig& model);

WeightOptions WeightsOf(const EngineConfig& config);
// True if decode steps read shared pages once.
bool Cascades(const EngineConfig& config, DType weights, const KvShape& kv, const Ops& ops);
ModelRunner::Config RunnerConfig(const EngineConfig& config, const ModelConfig& model,
                                 const KvShape& kv, int vocab_limit, bool cascade, bool quantized);
MemoryRequest RequestOf(const EngineConfig& config, const ModelConfig& model,
                        const WeightPlan& weights, const Ops& ops);
// Returns the plan and, in *kv, the shape of its KV cache.
StatusOr<MemoryPlan> MakePlan(const EngineConfig& config, const OpenedModel& model, const Ops& ops,
                              KvShape* kv);
// Returns the plans for each type of keys and values.
StatusOr<MemoryTable> MakePlanTable(const EngineConfig& config, const OpenedModel& model,
                                    const Ops& ops);
// Decides whether mapped weights are copied. kAuto copies weights that are larger than CPU
// caches if both conditions hold:
// - The copy and the file's pages fit in memory together. The pages should stay cached for the next
//   program that loads them.
// - `work` is enough to pay for the copy. The copy takes as long as the faster reads save in about
//   64 decode steps or, through the order of the copied weights, in a prompt of 2048 tokens.
MappedWeights UseOfMapped(WeightStorage storage, const MemoryPlan& plan,
                          const std::optional<ExpectedWork>& work);

}  // namespace kuiper
