// The launchers of the CUDA kernels: Run(resources, args) for each op of op_args.h, one source file
// per family. Ops has checked the arguments. A launcher only enqueues on the stream: it allocates
// nothing and does not wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/op_args.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper::KU_GPU {

// Largest head_dim of RoPE and AttentionFlash; models have 64 to 256.
constexpr int kMaxHeadDim = 512;
// Largest head_dim of AttentionMha, which handles what AttentionFlash does not support.
constexpr int kMaxMhaHeadDim = 1024;

// Rows for which the decode kernels read a 16-bit weight matrix once (linear.cu).
constexpr int kPassRows = 64;

class DenseLinear;

// Resources of kernels besides their arguments. Scratch memory is used by one op at a time, in
// stream order.
struct Resources {
  cudaStream_t stream = nullptr;
  int num_sms = 0;
  size_t sm_shared_bytes = 0;  // shared memory of an SM
  AttentionKind attention = AttentionKind::kAuto;
  OpsLimits limits;  // limits that were reserved
  // Partial results of sequences that several blocks share.
  float* partials = nullptr;
  int64_t num_partials = 0;    // floats
  int32_t* tickets = nullptr;  // zero between launches
  int64_t num_tickets = 0;
  float* sample_rows = nullptr;        // [max_seqs, SampleRowFloats(vocab)]
  const DenseLinear* dense = nullptr;  // null when strict
};

// Declares the launcher of each op, defined in the source file of its family.
#define KU_DECLARE_KERNEL(Name) void Run(const Resources& resources, const Name##Args& args);
KU_FOR_EACH_OP(KU_DECLARE_KERNEL)
#undef KU_DECLARE_KERNEL

// Queries the attributes of one kernel: fails if the program has no kernels for the current device.
cudaError_t ProbeKernels();

// Floats per scratch row of Sample, rounded up for 16-byte alignment.
KU_HOST_DEVICE int64_t SampleRowFloats(int vocab) {
  return (int64_t{vocab} + 3) / 4 * 4;
}

// Returns into how many splits AttentionFlash and AttentionMma divide a sequence of `len` tokens.
int NumAttentionSplits(int len);
// Returns the kernel that Run(AttentionArgs) uses if `asked` is requested; q and the output have
// one type.
AttentionKind ChosenAttention(AttentionKind asked, DType activations, KvFormat kv, int head_dim);
// Allows the shared memory of AttentionMma; called once per device.
void PrepareAttentionMma();

}  // namespace kuiper::KU_GPU
