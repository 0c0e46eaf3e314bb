// The launchers of the CUDA kernels: Run(resources, args) for each op of op_args.h, one source file
// per family. Arguments were checked by Ops; a launcher only enqueues on the stream: it allocates
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
// Largest head_dim of AttentionMha, which takes what AttentionFlash does not.
constexpr int kMaxMhaHeadDim = 1024;

// Rows for which the kernels of decode steps read a 16-bit weight matrix once (linear.cu).
constexpr int kPassRows = 64;

class DenseLinear;

// The resources that kernels get besides their arguments. Scratch memory is used by one op at a
// time, in the order of the stream.
struct Resources {
  cudaStream_t stream = nullptr;
  int num_sms = 0;
  size_t sm_shared_bytes = 0;  // shared memory of an SM
  AttentionKind attention = AttentionKind::kAuto;
  OpsLimits limits;  // what was reserved
  // Partial results of sequences that several blocks share.
  float* partials = nullptr;
  int64_t num_partials = 0;    // floats
  int32_t* tickets = nullptr;  // zero between launches
  int64_t num_tickets = 0;
  float* sample_rows = nullptr;        // [max_seqs, SampleRowFloats(vocab)]
  const DenseLinear* dense = nullptr;  // null when strict
};

// One per op, in the source file of its family.
#define KU_DECLARE_KERNEL(Name) void Run(const Resources& resources, const Name##Args& args);
KU_FOR_EACH_OP(KU_DECLARE_KERNEL)
#undef KU_DECLARE_KERNEL

// Whether kernels for the current device are in the program: asks for the attributes of one.
cudaError_t ProbeKernels();

// Of a row of scratch memory of Sample: rows begin at multiples of 16 bytes.
KU_HOST_DEVICE int64_t SampleRowFloats(int vocab) {
  return (int64_t{vocab} + 3) / 4 * 4;
}

// The number of splits that AttentionFlash and AttentionMma make of a sequence of `len` tokens.
int NumAttentionSplits(int len);
// The kernel that Run(AttentionArgs) takes where `asked` is chosen; q and the output have one type.
AttentionKind ChosenAttention(AttentionKind asked, DType activations, KvFormat kv, int head_dim);
// Allows the shared memory of AttentionMma; called once per device.
void PrepareAttentionMma();

}  // namespace kuiper::KU_GPU
