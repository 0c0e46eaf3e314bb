// What an Engine tells about itself.
#include "kuiper/engine/engine.h"
#include "kuiper/engine/engine_state.h"

namespace kuiper {

const Tokenizer* Engine::tokenizer() const {
  return s_->tokenizer.get();
}
const ModelConfig& Engine::model_config() const {
  return s_->model->config();
}
const GenerationConfig& Engine::generation_config() const {
  return s_->model->generation();
}
ChatFamily Engine::chat_family() const {
  return ChatFamilyOf(model_config().model_type);
}
const EngineConfig& Engine::config() const {
  return s_->config;
}
const MemoryPlan& Engine::memory_plan() const {
  return s_->plan;
}
DType Engine::weight_type() const {
  return model_config().decoder.dtype;
}
DType Engine::kv_type() const {
  return s_->runner->kv().shape().dtype;
}
size_t Engine::weight_bytes_per_token() const {
  return s_->model->decode_bytes();
}
std::string Engine::device_description() const {
  return s_->ops->device().Description();
}
double Engine::load_ms() const {
  return s_->load_ms;
}

KvStats Engine::kv_stats() const {
  const KvShape& shape = s_->runner->kv().shape();
  KvStats stats;
  stats.paged = s_->config.paged;
  stats.page_size = shape.page_size;
  stats.layers = shape.layers;
  stats.pages_total = s_->pool->num_pages();
  stats.pages_used = s_->pool->num_used();
  stats.pages_free = s_->pool->num_free();
  stats.pages_shared = s_->pool->num_shared();
  stats.pages_peak = s_->pool->peak_used();
  stats.bytes_reserved = s_->runner->kv().bytes();
  if (stats.paged) {
    stats.bytes_touched = (s_->touched_end - 1) * shape.page_bytes();
  } else {
    for (int tokens : s_->touched_rows) stats.bytes_touched += tokens * shape.token_bytes();
  }
  const Scheduler::Stats& scheduler = s_->scheduler->stats();
  stats.preempted_recompute = scheduler.preempted_recompute;
  stats.preempted_swap = scheduler.preempted_swap;
  stats.pages_swapped_out = scheduler.pages_swapped_out;
  stats.pages_swapped_in = scheduler.pages_swapped_in;
  stats.slides = scheduler.slides;
  if (s_->host_pages != nullptr) {
    stats.swap_pages_total = s_->host_pages->num_pages();
    stats.swap_pages_used = s_->host_pages->num_used();
  }
  if (s_->reuse != nullptr) {
    const PrefixCache::Stats reuse = s_->reuse->stats();
    stats.prefix_cache = true;
    stats.pages_evictable = s_->reuse->num_evictable();
    stats.lookups = reuse.lookups;
    stats.hits = reuse.hits;
    stats.tokens_requested = reuse.tokens_requested;
    stats.tokens_hit = reuse.tokens_hit;
    stats.evicted_pages = reuse.evicted_pages;
  }
  return stats;
}

std::vector<int32_t> Engine::block_table() const {
  if (s_->active.empty()) return s_->last_table;
  const Sequence* seq = s_->scheduler->Find(s_->active.begin()->first);
  return seq != nullptr ? seq->pages : s_->last_table;
}

}  // namespace kuiper
