// A call of attention in the form that its kernels read, made from the op's arguments in
// attention.cu. Also the launchers of the kernels among which that file chooses.
#pragma once

#include "kuiper/kernels/common/attention_mask.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {

constexpr float kLog2E = 1.44269504f;

// AttnOptions for kernels: which keys a query attends to, and what ALiBi adds to its scores.
struct AttnMask {
  bool causal = true;
  int window = 0;                 // tokens; 0: no limit
  const float* slopes = nullptr;  // [query heads]; null: no ALiBi

  __device__ __forceinline__ KeyRange Keys(int pos, int len) const {
    return SeenKeys(causal, window, pos, len);
  }
  // The ALiBi slope of a query head, in the scale of exp2.
  __device__ __forceinline__ float Slope(int head) const { return slopes[head] * kLog2E; }
};

struct AttnCall {
  MatrixArg out, q;            // [T, heads * head_dim]
  int64_t q_head_stride;       // elements
  const int32_t* cu_q;         // [S + 1]
  const int32_t* kv_lens;      // [S]
  const int32_t* shared_lens;  // [S], or null: no keys are shared
  int rows;                    // T
  int num_seqs, max_q_len, max_kv_len;
  bool appends;                          // AttnMeta::appends
  int heads, kv_heads, group, head_dim;  // group: query heads per kv head
  AttnMask mask;
  float scale_log2e;
};

// attention_mha.cu: the reference.
void AttentionMha(const Resources& resources, const AttnCall& call, const KvView& kv);
// attention.cu: CUDA cores, every type.
void AttentionFlash(const Resources& resources, const AttnCall& call, const KvView& kv);
// attention_mma.cu: tensor cores. Needs 16-bit activations, head_dim 64, 72, 80 or 128, and keys
// and values of the same type or of one for which IsMmaBytes.
bool CanAttentionMma(DType activations, KvFormat kv, int head_dim);
void AttentionMma(const Resources& resources, const AttnCall& call, const KvView& kv);
// attention_mma_bytes.cu: the part of AttentionMma and PrepareAttentionMma for these formats.
bool IsMmaBytes(KvFormat kv);
void AttentionMmaBytes(const Resources& resources, const AttnCall& call, const KvView& kv);
void PrepareAttentionMmaBytes();

}  // namespace kuiper::KU_GPU
