// What the engine will use, before any of it is allocated: weights + activations + workspace +
// graphs + KV against a budget. Pure arithmetic; the engine allocates what the plan says.
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
  size_t encoder_bytes = 0;    // of a pass of the vision encoder
  size_t picture_bytes = 0;    // rows that the vision encoder made
  size_t swap_bytes = 0;       // at most, for copies of pages
  bool swaps_to_host = false;  // that is other memory than available_bytes
  KvShape kv;                  // num_pages is decided by the plan
  bool paged = true;
  int max_context = 0;
  int max_seqs = 1;
  size_t available_bytes = 0;
  double utilization = 0.9;  // share of available_bytes that may be used
  std::optional<int> num_blocks;
  std::optional<size_t> kv_cache_bytes;
};

// The plan of the request, whether it fits or not. kResourceExhausted when kv_cache_bytes holds no
// block, kInvalidArgument when there are more tokens than can be numbered.
StatusOr<MemoryPlan> CountMemory(const MemoryRequest& request);
// A KV cache of num_blocks or kv_cache_bytes; else of a whole context for each sequence, or, paged,
// of what the budget holds, which is at least one context. kResourceExhausted with the numbers, and
// what would fit, when the plan does not.
StatusOr<MemoryPlan> PlanMemory(const MemoryRequest& request);

// The longest context, at most `limit`, that a sequence can have where request_of(context) says
// what a context takes: more for a longer one. 0: none fits.
int LargestContext(int limit, const std::function<MemoryRequest(int context)>& request_of);

}  // namespace kuiper
