// StepPlan -> Batch: fills a pinned host arena and uploads it to device arrays at fixed addresses.
// A function of the plans it was given: it mirrors the page table of each sequence, which plans
// change. Block tables stay on the device; only rows that changed since the last step are uploaded.
// A table that did not change is not read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
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
  void ForgetTables();

  // Table entries uploaded so far; shows that unchanged tables are not sent again.
  int64_t table_entries_uploaded() const { return table_entries_uploaded_; }

 private:
  BatchBuilder(ComputeDevice& device, const Limits& limits) : device_(device), limits_(limits) {}

  struct Layout;  // of an arena
  // The pages of a sequence. A version is a number that no other table and no other time has.
  struct Table {
    std::vector<int32_t> pages;
    int64_t version = 0;
    int64_t last_version = 0;  // before the last change, ...
    int num_kept = 0;          // ... which left so many pages as they were

    // The first pages, as many as are the same in that version.
    int NumPagesSince(int64_t other) const {
      return other == version ? num_pages() : other == last_version ? num_kept : 0;
    }
    int num_pages() const { return static_cast<int>(pages.size()); }
  };
  // A row of the block tables, as the last step that had the row left it.
  struct Row {
    int64_t sequence = 0;
    Table* table = nullptr;   // of the sequence; null: nobody's
    int64_t version = 0;      // of the table that the device has
    int num_entries = 0;      // that the device has, at least
    int num_equal_pages = 0;  // the table and the one in the row before begin with, ...
    int64_t counted = 0, counted_before = 0;  // ... in these versions of them
  };
  void ForgetRows();  // whose tables they show
  Table& TableOf(int row, int64_t sequence);
  void Change(Table* table, int num_kept, std::span<const int32_t> pages);
  void FillEntries(const StepPlan& plan, const Layout& at, int flight);
  int CountSharedTokens(const StepPlan& plan, int seq);
  bool NeedsLastRowsOnly(const StepPlan& plan) const;
  Tensor Array(int64_t begin, int count) const;  // on the device
  void PointToArrays(const Layout& at, int num_axes, int num_copies, Batch* batch) const;
  void PointToLastRows(const Layout& at, Batch* batch) const;
  void SetTableRow(int flight, int row, const Table& table);

  ComputeDevice& device_;
  Limits limits_;
  std::array<Buffer, kMaxStepsInFlight> host_;  // arenas of i32: as on the device, then tables
  Buffer arrays_;                               // on the device
  std::unordered_map<int64_t, Table> tables_;   // of each sequence that has not ended
  Table null_table_;
  int64_t num_versions_ = 0;
  Buffer device_tables_;              // [max_seqs, max_pages] i32
  std::vector<int32_t> last_tables_;  // what the device has when all uploads are done
  std::vector<Row> rows_;
  int64_t table_entries_uploaded_ = 0;
};

}  // namespace kuiper
