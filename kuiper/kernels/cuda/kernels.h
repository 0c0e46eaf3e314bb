// The launchers of the CUDA kernels, one source file per family. Arguments were checked by Ops; a
// launcher only enqueues on the stream: it allocates nothing and does not wait.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/kv/kv_view.h"
#include "kuiper/ops/ops.h"

namespace kuiper::KU_GPU {

// Largest head_dim of RoPE and AttentionFlash; models have 64 to 256.
constexpr int kMaxHeadDim = 512;
// Largest head_dim of AttentionMha, which takes what AttentionFlash does not.
constexpr int kMaxMhaHeadDim = 1024;

// elementwise.cu; `sampled` may be empty, `out` of FillRandom is dense.
void Embed(cudaStream_t stream, Tensor out, Tensor table, Tensor ids, Tensor sampled);
void FillRandom(cudaStream_t stream, Tensor out, uint64_t seed);

// norm.cu
void RmsNorm(cudaStream_t stream, Tensor out, Tensor x, Tensor weight, float eps);

// rope.cu
void QkNormRopeStore(cudaStream_t stream, Tensor q, Tensor k, Tensor v, Tensor q_norm,
                     Tensor k_norm, float eps, const RopeTable& rope, Tensor positions,
                     const KvView& kv, Tensor slots);
void StoreKv(cudaStream_t stream, const KvView& kv, Tensor k, Tensor v, Tensor slots);

// page_copy.cu
void CopyPages(cudaStream_t stream, const KvView& kv, Tensor copies);

// linear.cu
void Apply(cudaStream_t stream, Tensor out, Tensor x, const Linear& w, Epilogue epilogue);

// Memory for the partial results of sequences that several blocks share.
struct AttentionScratch {
  float* partials = nullptr;
  int64_t num_partials = 0;    // floats
  int32_t* tickets = nullptr;  // zero between launches
  int64_t num_tickets = 0;
};
// The arguments of Ops::Attention.
struct AttentionArgs {
  Tensor out, q;
  const KvView& kv;
  const AttnMeta& meta;
  float scale;
  const AttnOptions& options;
};
// attention_mha.cu: the reference.
void AttentionMha(cudaStream_t stream, const AttentionArgs& args);
// attention.cu: CUDA cores, every type.
void AttentionFlash(cudaStream_t stream, const AttentionScratch& scratch, int num_sms,
                    const AttentionArgs& args);
// attention_mma.cu: tensor cores, where all types are the same 16-bit one and head_dim is 64, 80 or
// 128. PrepareAttentionMma is called once per device.
bool CanAttentionMma(const AttentionArgs& args);
void PrepareAttentionMma();
void AttentionMma(cudaStream_t stream, const AttentionScratch& scratch, int num_sms,
                  const AttentionArgs& args);
// Splits of a sequence of `len` tokens.
int NumAttentionSplits(int len);

// sample.cu; z [R, vocab_limit] f32 is scratch.
void Sample(cudaStream_t stream, float* z, Tensor tokens, Tensor logits, const SampleArgs& args);

}  // namespace kuiper::KU_GPU
