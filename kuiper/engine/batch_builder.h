// StepPlan -> Batch: fills a pinned host arena and uploads it to device arrays at fixed addresses.
// The result depends only on the plans so far: plans change the page tables of sequences, and the
// builder mirrors these tables. Block tables stay on the device; only rows that changed since the
// last step are uploaded. Unchanged tables are not read.
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

// Most steps that may be launched before the host has read their tokens. Host memory for uploads
// and downloads of a step exists once per step buffer; `flight` is the index of a buffer, below
// this.
inline constexpr int kMaxStepsInFlight = 2;

class BatchBuilder {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_seqs = 0;
    int max_outputs = 0;
    int num_axes = 1;   // axes of positions
    int max_pages = 0;  // pages of one sequence; 1 when contiguous
    int page_size = 0;  // contiguous: the length of a cache row
    int max_kv_len = 0;
    bool cascade = false;  // fill AttnMeta::shared_lens
  };
  static StatusOr<std::unique_ptr<BatchBuilder>> Create(ComputeDevice& device,
                                                        const Limits& limits);
  static MemorySize SizeOf(const Limits& limits);

  // Checks that the plan's changes fit the page tables left by earlier plans.
  Status CheckTables(const StepPlan& plan) const;
  // pad_to_seqs: decode batches are padded to this many sequences for graph replay (0 = none).
  // Padded rows are one-token sequences on the null page. `flight`: index of the host arena to
  // fill; earlier uploads from that arena must be done.
  Batch Build(const StepPlan& plan, int pad_to_seqs = 0, int flight = 0);

  // Clears the mirrored page tables: every sequence becomes unknown.
  void ForgetTables();

  // Table entries uploaded so far; tests check that unchanged tables are not uploaded again.
  int64_t table_entries_uploaded() const { return table_entries_uploaded_; }

 private:
  BatchBuilder(ComputeDevice& device, const Limits& limits) : device_(device), limits_(limits) {}

  struct Layout;  // offsets of the arrays in an arena
  // The pages of a sequence. Version numbers are unique over all tables and times.
  struct Table {
    std::vector<int32_t> pages;
    int64_t version = 0;
    int64_t last_version = 0;  // version before the last change
    int num_kept = 0;          // leading pages that the last change kept

    // Returns how many leading pages are known to be the same as in version `other`.
    int NumPagesSince(int64_t other) const {
      return other == version ? num_pages() : other == last_version ? num_kept : 0;
    }
    int num_pages() const { return static_cast<int>(pages.size()); }
  };
  // A row of the block tables as of the last step that used the row.
  struct Row {
    int64_t sequence = 0;
    Table* table = nullptr;   // the table of `sequence`; null: the row is free
    int64_t version = 0;      // version of the table on the device
    int num_entries = 0;      // entries on the device, at least
    int num_equal_pages = 0;  // leading pages that this row's table shares with the previous row's
    int64_t counted = 0, counted_before = 0;  // versions of both tables when it was computed
  };
  void ForgetRows();  // clears the tables that the rows show
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
  std::array<Buffer, kMaxStepsInFlight> host_;  // i32 arenas: the device arrays, then tables
  Buffer arrays_;                               // on the device
  std::unordered_map<int64_t, Table> tables_;   // tables of sequences that have not ended
  Table null_table_;
  int64_t num_versions_ = 0;
  Buffer device_tables_;              // [max_seqs, max_pages] i32
  std::vector<int32_t> last_tables_;  // content of device_tables_ when all uploads are done
  std::vector<Row> rows_;
  int64_t table_entries_uploaded_ = 0;
};

}  // namespace kuiper
