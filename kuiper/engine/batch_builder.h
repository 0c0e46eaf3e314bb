// StepPlan -> Batch: fills a pinned host arena and uploads it to device arrays at fixed addresses.
// A function of the plans it was given: it mirrors the page table of each sequence, which plans
// change. Block tables stay on the device; only rows that changed since the last step are uploaded.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/step_plan.h"
#include "kuiper/model/batch.h"
#include "kuiper/ops/compute_device.h"

namespace kuiper {

// Steps the host may have launched without having read their tokens. Host memory that uploads and
// downloads of a step use exists once for each flight, a number below this.
inline constexpr int kMaxStepsInFlight = 2;

class BatchBuilder {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_seqs = 0;
    int max_outputs = 0;
    int num_axes = 1;   // of positions
    int max_pages = 0;  // of one sequence; 1 when contiguous
    int page_size = 0;  // contiguous: the length of a cache row
    int max_kv_len = 0;
    bool cascade = false;  // fill AttnMeta::shared_lens
  };
  static StatusOr<std::unique_ptr<BatchBuilder>> Create(ComputeDevice& device,
                                                        const Limits& limits);
  static MemorySize SizeOf(const Limits& limits);

  // Whether the plan's changes fit the page tables that the plans before left.
  Status CheckTables(const StepPlan& plan) const;
  // pad_to_seqs: decode batches are padded to this many sequences for graph replay (0 = none);
  // padded rows are one-token sequences on the null page. `flight`: which host arena to fill;
  // uploads of an earlier step from there must be done.
  Batch Build(const StepPlan& plan, int pad_to_seqs = 0, int flight = 0);

  // Makes every sequence one that no plan told of.
  void ForgetTables() { tables_.clear(); }

  // Table entries uploaded so far; shows that unchanged tables are not sent again.
  int64_t table_entries_uploaded() const { return table_entries_uploaded_; }

 private:
  BatchBuilder(ComputeDevice& device, const Limits& limits) : device_(device), limits_(limits) {}
  const std::vector<int32_t>& UpdateTable(const StepPlan& plan, const StepPlan::Entry& entry);
  void FillEntries(const StepPlan& plan, int flight);
  void PointToArrays(int num_axes, int num_copies, Batch* batch) const;
  void SetTableRow(int flight, int row, const std::vector<int32_t>& pages);

  ComputeDevice& device_;
  Limits limits_;
  std::array<Buffer, kMaxStepsInFlight> host_;  // arenas of i32: as on the device, then tables
  Buffer arrays_;                               // on the device
  std::unordered_map<int64_t, std::vector<int32_t>> tables_;  // of each sequence that has not ended
  Buffer device_tables_;                                      // [max_seqs, max_pages] i32
  std::vector<int32_t> last_tables_;  // what the device has when all uploads are done
  std::vector<int> table_lengths_;    // valid entries of each row
  int64_t table_entries_uploaded_ = 0;
};

}  // namespace kuiper
