// What the engine will use, as memory_planner.h finds it out; Engine::Plan gives it to programs.
#pragma once

#include <cstddef>
#include <string>

namespace kuiper {

struct MemoryPlan {
  size_t weight_bytes = 0;
  size_t activation_bytes = 0;
  size_t workspace_bytes = 0;
  size_t graph_bytes = 0;
  size_t swap_bytes = 0;
  size_t host_swap_bytes = 0;  // of other memory: no part of the total
  size_t kv_bytes = 0;         // all pages, if every one of them is used
  size_t available_bytes = 0;
  size_t budget_bytes = 0;
  double utilization = 0;
  int num_pages = 0;  // that can be owned: pages without the null page, or cache rows

  size_t total_bytes() const {
    return weight_bytes + activation_bytes + workspace_bytes + graph_bytes + swap_bytes + kv_bytes;
  }
  // The lines that programs print of a plan.
  std::string Describe() const;
};

}  // namespace kuiper
