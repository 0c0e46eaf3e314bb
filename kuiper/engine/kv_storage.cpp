#include "kuiper/engine/kv_storage.h"

#include <algorithm>
#include <string>

namespace kuiper {

KvStorage::KvStorage(const EngineConfig& config, KvCache& kv)
    : kv_(kv),
      paged_(config.paged),
      pool_(kv.shape().num_pages, kv.shape().page_size),
      touched_rows_(config.paged ? 0 : kv.shape().num_pages, 0) {
  if (paged_) pool_.set_observer(config.on_kv_event);
  if (!config.prefix_cache) return;
  reuse_ = paged_ ? MakePageReuse(pool_, config.prefix_cache_tokens, config.on_prefix_event)
                  : MakeRowReuse(pool_);
}

StatusOr<std::unique_ptr<KvStorage>> KvStorage::Create(const EngineConfig& config,
                                                       ComputeDevice& device, KvCache& kv) {
  std::unique_ptr<KvStorage> storage(new KvStorage(config, kv));
  if (config.paged && config.preemption != Preemption::kRecompute) {
    KU_RETURN_IF_ERROR(storage->MakeSwapSpace(config, device));
  }
  return storage;
}

Status KvStorage::MakeSwapSpace(const EngineConfig& config, ComputeDevice& device) {
  const KvShape& shape = kv_.shape();
  const int pages =
      static_cast<int>(std::min<size_t>(pool_.num_pages(), config.swap_bytes / shape.page_bytes()));
  if (pages == 0) {
    return Status(StatusCode::kInvalidArgument, "the swap space holds no block",
                  Param("swap_space") + " must be at least " + std::to_string(shape.page_bytes()) +
                      " bytes, or use " + Param("preemption") + " recompute");
  }
  KU_ASSIGN_OR_RETURN(swap_, SwapSpace::Create(device, kv_, pages));
  host_pages_ = std::make_unique<BlockPool>(pages + 1, shape.page_size);
  return OkStatus();
}

StatusOr<std::vector<int32_t>> KvStorage::Allocate(int num_tokens) {
  const int count = (num_tokens + pool_.page_size() - 1) / pool_.page_size();
  if (reuse_ != nullptr) reuse_->Evict(count - pool_.num_free());
  if (pool_.num_free() < count) {
    return Status(StatusCode::kResourceExhausted, "the KV cache has too few blocks for the prompt");
  }
  std::vector<int32_t> pages;
  for (int i = 0; i < count; ++i) {
    KU_CHECK(pool_.Allocate(1, &pages));
    pool_.NotifyHeld(KvEvent::Kind::kAllocate, {}, i, pages.back());
  }
  const Status grown = Grow(pool_.end());
  if (grown.ok()) return pages;
  Release(pages);
  return grown;
}

void KvStorage::Release(const std::vector<int32_t>& pages) {
  for (size_t i = 0; i < pages.size(); ++i) {
    pool_.Release(pages[i]);
    pool_.NotifyReleased({}, static_cast<int>(i), pages[i]);
  }
}

Status KvStorage::Grow(int end) {
  Status grown = kv_.EnsurePages(end);
  touched_end_ = std::max(touched_end_, std::min(end, usable_end()));
  return grown;
}

Status KvStorage::Prepare(const Scheduler::Step& step) {
  // Moves of this step may still read pages that a preempted or ended sequence has returned.
  int end = pool_.end();
  for (const PageMove& move : step.moves) end = std::max(end, move.device_page + 1);
  Status grown = Grow(end);
  if (swap_ == nullptr) return grown;
  if (grown.ok()) {
    swap_->Run(step.moves);
    return grown;
  }
  // Sequences that should be swapped in to pages without memory end with this error.
  for (const PageMove& move : step.moves) {
    if (move.to_host || move.device_page < usable_end()) swap_->Run({&move, 1});
  }
  return grown;
}

int KvStorage::usable_end() const {
  if (!paged_) return kv_.shape().num_pages;
  return static_cast<int>(kv_.bytes() / kv_.shape().page_bytes());
}

void KvStorage::ReleaseUnused() {
  kv_.ShrinkTo(pool_.end());
  touched_end_ = std::min(touched_end_, usable_end());
}

void KvStorage::ClearReuse() {
  if (reuse_ != nullptr) reuse_->Clear();
}

void KvStorage::RecordTouched(const Sequence& seq) {
  if (paged_ || seq.pages.empty()) return;
  int& most = touched_rows_.at(seq.pages[0]);
  most = std::max(most, seq.num_computed);
}

KvStats KvStorage::Stats() const {
  const KvShape& shape = kv_.shape();
  KvStats stats;
  stats.paged = paged_;
  stats.page_size = shape.page_size;
  stats.layers = shape.layers;
  stats.pages_total = pool_.num_pages();
  stats.pages_used = pool_.num_used();
  stats.pages_free = pool_.num_free();
  stats.pages_shared = pool_.num_shared();
  stats.pages_peak = pool_.peak_used();
  stats.bytes_reserved = kv_.bytes();
  if (paged_) {
    stats.bytes_touched = (touched_end_ - 1) * shape.page_bytes();
  } else {
    for (int tokens : touched_rows_) stats.bytes_touched += tokens * shape.token_bytes();
  }
  if (host_pages_ != nullptr) {
    stats.swap_pages_total = host_pages_->num_pages();
    stats.swap_pages_used = host_pages_->num_used();
  }
  if (reuse_ != nullptr) {
    const KvReuse::Stats reuse = reuse_->stats();
    stats.prefix_cache = true;
    stats.pages_evictable = reuse_->num_evictable();
    stats.lookups = reuse.lookups;
    stats.hits = reuse.hits;
    stats.tokens_requested = reuse.tokens_requested;
    stats.tokens_hit = reuse.tokens_hit;
    stats.evicted_pages = reuse.evicted_pages;
  }
  return stats;
}

}  // namespace kuiper
