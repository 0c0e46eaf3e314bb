// Files of tensors: the parts of a checkpoint as they are made, and the shards of the finished
// checkpoint. The caller tracks which parts are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kuiper/base/atomic_file.h"
#include "kuiper/base/status.h"
#include "kuiper/model/safetensors.h"

namespace kuiper {

// Maximum bytes of tensors in a shard; a larger tensor has a shard of its own.
inline constexpr int64_t kMaxShardBytes = 4'000'000'000;

// A tensor with a function that writes it, so that a file of tensors need not be in memory.
struct PartTensor {
  SafetensorsOutput head;
  std::function<Status(AtomicFile& out)> write;  // writes head.bytes bytes
};

// Appends bytes [begin, begin + count) of a file, in pieces; count -1 means to its end. Returns
// kModel if they cannot be read.
Status AppendBytes(const std::string& from, int64_t begin, int64_t count, AtomicFile& out);
// Writes a file that appears when it is complete. Errors: kModel, kInternal.
Status WriteSafetensors(const std::string& path, std::vector<PartTensor> tensors);

// The number of shards and tensors.
struct ShardPlan {
  int num_shards = 0;
  size_t num_tensors = 0;
};
// `parts` are files, in the order of their tensors in the shards.
StatusOr<ShardPlan> PlanShards(const std::vector<std::string>& parts, int64_t max_bytes);
// Moves all tensors of the parts into model.safetensors, or into several files with an index, in
// `directory`. Removes a part once its tensors are in shards; if a call is interrupted, the next
// one continues. `*bytes`: size of all tensors. Returns kInternal if shards or parts are missing.
Status MoveIntoShards(const std::string& directory, const std::vector<std::string>& parts,
                      const ShardPlan& plan, int64_t max_bytes, int64_t* bytes);

}  // namespace kuiper
