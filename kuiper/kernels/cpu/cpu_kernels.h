// The CPU kernels that CpuOps calls: Run(resources, args) for each op of op_args.h, one source file
// per family of ops. Ops has checked the arguments. A kernel divides its rows among the threads of
// the pool; no result depends on the division.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cpu/attention_pairs.h"
#include "kuiper/kernels/cpu/linear/cpu_linear.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/op_args.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper::cpu {

// Largest head_dim of attention and RoPE; models have 64 to 256.
constexpr int kMaxHeadDim = 1024;

// Calls f(item, thread) for each item in [0, num_items), in any order. `elements` is the total work
// in touched elements. A few microseconds of work run on the calling thread alone, since waking
// threads would take longer. Threads claim several small items at a time.
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

// The resources that kernels use besides their arguments.
struct Resources {
  ThreadPool& pool;
  CpuLinear& linear;
  AttentionKind attention;
  const PairKernel* bf16_pair_kernel =
      nullptr;                // kernel with vdpbf16ps, if that is fast here, or null
  OpsLimits limits = {};      // sizes that scratch memory is reserved for
  char* scratch = nullptr;    // a slice for each thread of the pool, 64-byte aligned
  size_t scratch_stride = 0;  // bytes between slices

  template <typename T>
  T* Scratch(int thread) const {
    return reinterpret_cast<T*>(scratch + thread * scratch_stride);
  }
};

// One kernel per op, in the source file of its family.
#define KU_DECLARE_KERNEL(Name) void Run(const Resources& resources, const Name##Args& args);
KU_FOR_EACH_OP(KU_DECLARE_KERNEL)
#undef KU_DECLARE_KERNEL

// Scratch memory per thread.
size_t AttentionScratchBytes(AttentionKind kind, int max_context);
size_t SampleScratchBytes(int vocab);

// gate[i] = silu(gate[i]) * up[i], on the calling thread.
void SiluMulRow(float* gate, const float* up, int64_t n);
// y[i] = gelu(y[i]), in the variant that `epilogue` names, on the calling thread.
void GeluRow(Epilogue epilogue, float* y, int64_t n);

}  // namespace kuiper::cpu
