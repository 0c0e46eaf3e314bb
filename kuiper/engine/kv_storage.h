// The KV cache memory that the scheduler works with: the pool of pages, the prefix cache, the swap
// space, and the growing and shrinking storage. The step loop prepares it for each step. Only the
// scheduler assigns pages to sequences.
#pragma once

#include <memory>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/kv_cache.h"
#include "kuiper/kv/reuse.h"
#include "kuiper/kv/swap_space.h"

namespace kuiper {

class KvStorage {
 public:
  // `device` and `kv` must outlive the storage.
  static StatusOr<std::unique_ptr<KvStorage>> Create(const EngineConfig& config,
                                                     ComputeDevice& device, KvCache& kv);

  // Allocates usable pages for num_tokens tokens that belong to no request, until Release.
  StatusOr<std::vector<int32_t>> Allocate(int num_tokens);
  void Release(const std::vector<int32_t>& pages);
  // Makes the pages of the step usable and moves pages in and out. On an error, the pages from
  // usable_end() on are not usable.
  Status Prepare(const Scheduler::Step& step);
  int usable_end() const;
  // Frees the memory after the last page in use.
  void ReleaseUnused();
  void ClearReuse();

  // Records that the sequence wrote to its pages, for the statistics.
  void RecordTouched(const Sequence& seq);
  // Returns all of KvStats except the counts of the scheduler.
  KvStats Stats() const;

  BlockPool& pool() { return pool_; }
  KvReuse* reuse() { return reuse_.get(); }              // null: nothing is reused
  BlockPool* host_pages() { return host_pages_.get(); }  // null: nothing is swapped
  SwapSpace* swap() { return swap_.get(); }

 private:
  KvStorage(const EngineConfig& config, KvCache& kv);
  // Makes pages [0, end) usable.
  Status Grow(int end);
  Status MakeSwapSpace(const EngineConfig& config, ComputeDevice& device);

  KvCache& kv_;
  const bool paged_;
  BlockPool pool_;
  std::unique_ptr<KvReuse> reuse_;
  std::unique_ptr<SwapSpace> swap_;
  std::unique_ptr<BlockPool> host_pages_;  // pages of the swap space
  std::vector<int> touched_rows_;          // contiguous: most tokens that each cache row ever held
  int touched_end_ = 1;                    // paged: 1 + the largest page of the storage ever used
};

}  // namespace kuiper
