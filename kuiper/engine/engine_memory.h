// What an engine's configuration means for its parts and its memory: the sizes of steps, and the
// request to the memory planner. engine_setup.cpp plans by it and makes the parts by it, so that
// the two agree.
#pragma once

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/memory_planner.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/model/weight_source.h"

namespace kuiper {

// What of pictures fits; all zero where none are taken.
struct VisionLimits {
  int64_t frame_tokens = 0;  // of an image, or of a frame of a video
  int max_patches = 0;       // the same in patches: of a pass of the encoder
  int64_t cache_tokens = 0;  // whose rows are kept
};
VisionLimits VisionLimitsOf(const EngineConfig& config, const ModelConfig& model);

WeightOptions WeightsOf(const EngineConfig& config);
// Whether decode steps read shared pages once.
bool Cascades(const EngineConfig& config, DType weights, const KvShape& kv, const Ops& ops);
ModelRunner::Config RunnerConfig(const EngineConfig& config, const ModelConfig& model,
                                 const KvShape& kv, int vocab_limit, bool cascade, bool quantized);
MemoryRequest RequestOf(const EngineConfig& config, const ModelConfig& model,
                        const WeightPlan& weights, const Ops& ops);
// The plan, and the KV cache of it.
StatusOr<MemoryPlan> MakePlan(const EngineConfig& config, const OpenedModel& model, const Ops& ops,
                              KvShape* kv);
// The plans for each type of keys and values.
StatusOr<MemoryTable> MakePlanTable(const EngineConfig& config, const OpenedModel& model,
                                    const Ops& ops);
// kAuto: weights are copied that are larger than caches, if the copy and the file's pages, which
// the next program that loads them should find in memory, both have room, and unless `work` is too
// little: to copy takes as long as the faster reads save in some 64 decode steps or, by the order
// of the copied weights, in a prompt of 2048 tokens.
MappedWeights UseOfMapped(WeightStorage storage, const MemoryPlan& plan,
                          const std::optional<ExpectedWork>& work);

}  // namespace kuiper
