// Plans the memory of an engine before any is allocated: weights + activations + workspace + graphs
// + KV against a budget. Pure arithmetic; the engine allocates what the plan says.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "kuiper/base/status.h"
#include "kuiper/engine/memory_plan.h"
#include "kuiper/kv/kv_cache.h"

namespace kuiper {

struct MemoryRequest {
  size_t weight_bytes = 0;
  size_t activation_bytes = 0;
  size_t workspace_bytes = 0;  // scratch of the kernels, tables, arrays of a step
  size_t graph_bytes = 0;
  size_t encoder_bytes = 0;    // for a pass of the vision encoder
  size_t picture_bytes = 0;    // encoder output of pictures
  size_t swap_bytes = 0;       // at most, for copies of pages
  bool swaps_to_host = false;  // swap uses other memory than available_bytes
  KvShape kv;                  // num_pages is set by the plan
  bool paged = true;
  int max_context = 0;
  int max_seqs = 1;
  size_t available_bytes = 0;
  double utilization = 0.9;  // share of available_bytes that may be used
  std::optional<int> num_blocks;
  std::optional<size_t> kv_cache_bytes;
};

// Returns the plan of the request, whether it fits or not. kResourceExhausted if kv_cache_bytes
// holds no block; kInvalidArgument if slot numbers would overflow int32.
StatusOr<MemoryPlan> CountMemory(const MemoryRequest& request);
// Plans a KV cache of num_blocks or kv_cache_bytes if given. Otherwise plans a whole context for
// each sequence. If that is paged and exceeds the budget, plans what the budget holds, but at least
// one context. kResourceExhausted, with the numbers and what would fit, if the plan does not fit.
StatusOr<MemoryPlan> PlanMemory(const MemoryRequest& request);

// Returns the longest context, at most `limit`, that a sequence can have; 0 if none fits.
// request_of(context) is the request for a context; it must grow with the context.
int LargestContext(int limit, const std::function<MemoryRequest(int context)>& request_of);

}  // namespace kuiper
