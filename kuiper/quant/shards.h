// Files of tensors: the parts of a checkpoint as they are made, and the shards that it consists of
// in the end. The state of a run, which parts are whole, is the caller's matter.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kuiper/base/atomic_file.h"
#include "kuiper/base/status.h"
#include "kuiper/model/safetensors.h"

namespace kuiper {

// Bytes of tensors in a shard; a larger tensor has a shard of its own.
inline constexpr int64_t kMaxShardBytes = 4'000'000'000;

// A tensor that writes itself, so that a file of tensors need not be in memory.
struct PartTensor {
  SafetensorsOutput head;
  std::function<Status(AtomicFile& out)> write;  // head.bytes bytes
};

// Appends bytes [begin, begin + count) of a file, in pieces; count -1: to its end. kModel when they
// cannot be read.
Status AppendBytes(const std::string& from, int64_t begin, int64_t count, AtomicFile& out);
// A file that appears when it is whole. kModel, kInternal.
Status WriteSafetensors(const std::string& path, std::vector<PartTensor> tensors);

// What all shards will be.
struct ShardPlan {
  int num_shards = 0;
  size_t num_tensors = 0;
};
// `parts` are files, in the order of their tensors in the shards.
StatusOr<ShardPlan> PlanShards(const std::vector<std::string>& parts, int64_t max_bytes);
// Moves all tensors of the parts into model.safetensors, or into several files with an index, in
// `directory`. A part is removed when its tensors are in shards; a call after one that was
// interrupted continues. `*bytes`: of all tensors. kInternal when shards or parts are missing.
Status MoveIntoShards(const std::string& directory, const std::vector<std::string>& parts,
                      const ShardPlan& plan, int64_t max_bytes, int64_t* bytes);

}  // namespace kuiper
