// The memory an engine will use, as computed by memory_planner.h. Programs get it from
// Engine::Plan; Engine::PlanTable shows what else the same memory could hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/ops/kv_format.h"

namespace kuiper {

struct MemoryPlan {
  size_t weight_bytes = 0;
  size_t activation_bytes = 0;
  size_t workspace_bytes = 0;
  size_t graph_bytes = 0;
  size_t encoder_bytes = 0;  // for a pass of the vision encoder
  size_t picture_bytes = 0;  // encoder output of pictures that is kept, at most
  size_t swap_bytes = 0;
  size_t host_swap_bytes = 0;  // in other memory: not part of the total
  size_t kv_bytes = 0;         // all pages, as if every page were used
  size_t available_bytes = 0;
  size_t budget_bytes = 0;
  double utilization = 0;
  int num_pages = 0;  // usable pages (without the null page), or cache rows

  size_t total_bytes() const {
    return weight_bytes + activation_bytes + workspace_bytes + graph_bytes + encoder_bytes +
           picture_bytes + swap_bytes + kv_bytes;
  }
  bool fits() const { return total_bytes() <= budget_bytes; }
  // The lines that programs print for a plan.
  std::string Describe() const;
};

// The memory a model takes with each type of keys and values.
struct MemoryTable {
  struct Row {
    KvFormat format;
    bool is_chosen = false;
    size_t kv_bytes_per_1k = 0;  // for 1024 tokens of one sequence
    MemoryPlan plan = {};        // for the configuration with this type, whether it fits or not
    int largest_context = 0;     // longest context of a sequence; 0: none fits

    // Bytes of the budget that the plan leaves; negative: bytes that are missing.
    int64_t free_bytes() const {
      return static_cast<int64_t>(plan.budget_bytes) - static_cast<int64_t>(plan.total_bytes());
    }
  };
  std::vector<Row> rows = {};
  Status fits = {};  // the error of Engine::Plan for the chosen row
  bool paged = false;
  int page_size = 0;  // tokens; contiguous: the context length
  int max_context = 0, max_num_seqs = 0;
  int model_limit = 0;  // longest context of the model

  const Row& chosen() const;
  // A table for people, with lines of at most 80 columns.
  std::string Describe() const;
};

}  // namespace kuiper
