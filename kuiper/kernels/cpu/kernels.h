// The CPU kernels that CpuOps calls, one source file per family. Arguments were checked by Ops; a
// kernel shares its rows among the pool's threads, and no result depends on how.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/kv/kv_view.h"
#include "kuiper/ops/ops.h"

namespace kuiper::cpu {

// Largest head_dim of attention and RoPE; models have 64 to 256.
constexpr int kMaxHeadDim = 1024;

// Calls f(item, thread) for each item in [0, num_items), in any order. `elements` is the total work
// in touched elements: what is over in a few microseconds is not worth waking threads for.
template <typename F>
void ForEachItem(ThreadPool& pool, int64_t num_items, int64_t elements, const F& f) {
  constexpr int64_t kMinParallelElements = 16384;
  if (num_items <= 1 || elements < kMinParallelElements || pool.size() == 1) {
    for (int64_t item = 0; item < num_items; ++item) f(item, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  pool.Run([&](int thread) {
    for (;;) {
      const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= num_items) return;
      f(item, thread);
    }
  });
}

// elementwise.cpp; `sampled` may be empty.
void Embed(ThreadPool& pool, Tensor out, Tensor table, Tensor ids, Tensor sampled);
void FillRandom(ThreadPool& pool, Tensor out, uint64_t seed);
void GatherRows(ThreadPool& pool, Tensor out, Tensor x, Tensor rows);
// gate[i] = silu(gate[i]) * up[i], on the calling thread.
void SiluMulRow(float* gate, const float* up, int64_t n);

// norm.cpp
void RmsNorm(ThreadPool& pool, Tensor out, Tensor x, Tensor weight, float eps);

// rope.cpp
void QkNormRopeStore(ThreadPool& pool, Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm,
                     float eps, const RopeTable& rope, Tensor positions, const KvView& kv,
                     Tensor slots);
void StoreKv(ThreadPool& pool, const KvView& kv, Tensor k, Tensor v, Tensor slots);

// page_copy.cpp
void CopyPages(ThreadPool& pool, const KvView& kv, Tensor copies);

// attention.cpp. Scratch: AttentionScratchBytes for each thread of the pool, 64-byte aligned.
size_t AttentionScratchBytes(AttentionKind kind, int max_context);
void Attention(ThreadPool& pool, AttentionKind kind, void* scratch, size_t scratch_stride,
               int max_context, Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta,
               float scale, const AttnOptions& options);

// sample.cpp. Scratch: SampleScratchBytes for each thread of the pool, 64-byte aligned.
size_t SampleScratchBytes(int vocab);
void Sample(ThreadPool& pool, void* scratch, size_t scratch_stride, Tensor tokens, Tensor logits,
            const SampleArgs& args);

}  // namespace kuiper::cpu
