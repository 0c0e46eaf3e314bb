// StepPlan -> Batch: fills a pinned host arena and uploads it to device arrays at fixed addresses.
// Block tables stay on the device; only rows that changed since the last step are uploaded. A token
// the host does not know yet is written as its row among the sampled tokens (see Ops::Embed).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/sequence.h"
#include "kuiper/model/batch.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

class BatchBuilder {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_seqs = 0;
    int max_outputs = 0;
    int max_pages = 0;  // of one sequence; 1 when contiguous
    int page_size = 0;  // contiguous: the length of a cache row
    int max_kv_len = 0;
    bool cascade = false;  // fill AttnMeta::shared_lens
  };
  static StatusOr<std::unique_ptr<BatchBuilder>> Create(Ops& ops, const Limits& limits);
  static MemorySize SizeOf(const Limits& limits);

  // pad_to_seqs: decode batches are padded to this many sequences for graph replay (0 = none);
  // padded rows are one-token sequences on the null page. `slot`, below kMaxStepsInFlight, says
  // which host arena to fill: uploads of an earlier step in that slot must be done.
  Batch Build(const StepPlan& plan, int pad_to_seqs = 0, int slot = 0);

  // Table entries uploaded so far; shows that unchanged tables are not sent again.
  int64_t table_entries_uploaded() const { return table_entries_uploaded_; }

 private:
  BatchBuilder(Ops& ops, const Limits& limits) : ops_(ops), limits_(limits) {}
  void SetTableRow(int slot, int row, const std::vector<int32_t>& pages);

  Ops& ops_;
  Limits limits_;
  std::array<Buffer, kMaxStepsInFlight> host_;  // arenas of i32: as on the device, then tables
  Buffer device_;
  Buffer device_tables_;              // [max_seqs, max_pages] i32
  std::vector<int32_t> last_tables_;  // what the device has when all uploads are done
  std::vector<int> table_lengths_;    // valid entries of each row
  int64_t table_entries_uploaded_ = 0;
};

}  // namespace kuiper
