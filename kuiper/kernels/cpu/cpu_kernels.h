// The CPU kernels that CpuOps calls: Run(resources, args) for each op of op_args.h, one source file
// per family. Arguments were checked by Ops; a kernel shares its rows among the pool's threads, and
// no result depends on how.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/cpu_linear.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/op_args.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper::cpu {

// Largest head_dim of attention and RoPE; models have 64 to 256.
constexpr int kMaxHeadDim = 1024;

// Calls f(item, thread) for each item in [0, num_items), in any order. `elements` is the total work
// in touched elements: a few microseconds of work are not worth waking threads for, and small items
// are claimed several at a time.
template <typename F>
void ForEachItem(ThreadPool& pool, int64_t num_items, int64_t elements, const F& f) {
  constexpr int64_t kMinParallelElements = 16384, kClaimElements = 8192;
  if (num_items <= 1 || elements < kMinParallelElements || pool.size() == 1) {
    for (int64_t item = 0; item < num_items; ++item) f(item, 0);
    return;
  }
  const int64_t claim = std::max<int64_t>(
      1, std::min(kClaimElements * num_items / elements, num_items / (4 * pool.size())));
  pool.RunRanges(num_items, claim, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t item = begin; item < end; ++item) f(item, thread);
  });
}

// The resources that kernels get besides their arguments.
struct Resources {
  ThreadPool& pool;
  CpuLinear& linear;
  AttentionKind attention;
  const PairKernel* fast_pairs = nullptr;  // of an instruction for them that pays here
  OpsLimits limits = {};                   // what was reserved
  char* scratch = nullptr;                 // a slice for each thread of the pool, 64-byte aligned
  size_t scratch_stride = 0;               // bytes between slices

  template <typename T>
  T* Scratch(int thread) const {
    return reinterpret_cast<T*>(scratch + thread * scratch_stride);
  }
};

// One per op, in the source file of its family.
#define KU_DECLARE_KERNEL(Name) void Run(const Resources& resources, const Name##Args& args);
KU_FOR_EACH_OP(KU_DECLARE_KERNEL)
#undef KU_DECLARE_KERNEL

// Scratch memory of a thread.
size_t AttentionScratchBytes(AttentionKind kind, int max_context);
size_t SampleScratchBytes(int vocab);

// On the calling thread: gate[i] = silu(gate[i]) * up[i].
void SiluMulRow(float* gate, const float* up, int64_t n);
// On the calling thread: y[i] = gelu(y[i]), the one of the epilogue.
void GeluRow(Epilogue epilogue, float* y, int64_t n);

}  // namespace kuiper::cpu
