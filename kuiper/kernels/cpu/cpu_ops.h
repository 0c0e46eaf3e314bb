// The CPU backend: Ops on host memory with one thread pool. Activations are FP32; weights and the
// KV cache are read in the format that they are stored in. Created by MakeOps only.
//
// Terms that comments and names in this folder use:
//   x, W, y            Activations, weights and results of a linear layer: y = x W^T + b.
//   row, batch row     One row of x and y: one token. Rows of W are called output features.
//   output feature     One row of W, which makes one column of y.
//   K                  The input features: the dimension that products sum over.
//   lane               One of the 16 FP32 partial sums of an accumulator, for all register widths.
//   lane reduction     Adds the 16 lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1. In names: fold.
//   K slice            16 elements of K (32 in BF16 pairs), one word per lane. In names: chunk.
//   K block            128 K slices; its lanes are reduced to one sum. In names: fold block.
//   sub-block          The part of a K block for which a tile of x stays in the L1 cache.
//   pair               Two consecutive elements of a sum in one 32-bit word, the even one lower.
//   tile               Tokens by output features whose sums one micro-kernel call computes.
//   attention tile     64 key positions, from a multiple of 64 on (kTile).
//   panel              Several rows, interleaved so that one load takes a word of each of them.
//   prepacked          W stored as panels when the model is loaded; otherwise W is read in place.
//   quantised value    An integer or FP8 number in place of a float. In names: code.
//   quantisation block The columns of W that share a scale and zero point. In names: unit.
//   operand            One of the two numbers of a product. In names: factor, also used for scale.
//   query row          One query head of one token; attention computes a score row for each.
//   KV row             The key or the value of one token and kv head.
//   work item          The query rows that one thread computes together.
//   run                Sequences that begin with the same pages, in one work item (cascade).
//   attend to          A query row attends to the keys that mask and window allow. In names: sees.
//   prefetch           Requests cache lines before they are read. In names: Fetch, ahead.
//   in place           Read where it is stored, without a copy.
//   instruction set    A target of Highway (AVX2, NEON, ...) or AVX3_VNNI, AVX3_BF16.
#pragma once

#include <memory>
#include <string>

#include "kuiper/kernels/cpu/cpu_device.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/linear/cpu_linear.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/ops.h"

namespace kuiper::cpu {

class CpuOps final : public Ops {
 public:
  static StatusOr<std::unique_ptr<Ops>> Make(const OpsOptions& options);
  // Returns the instruction sets of this build's kernels: CompiledTargets() of cpu_target.h.
  static std::string CompiledFor();

  DType ActivationType(DType) const override { return DType::kF32; }
  AttentionKind AttentionFor(DType, KvFormat, int) const override {
    return resources_.attention == AttentionKind::kMha ? AttentionKind::kMha
                                                       : AttentionKind::kFlash1;
  }
  Status Reserve(const OpsLimits& limits) override;
  size_t ScratchBytes(const OpsLimits& limits) const override;
  void Prepack(Linear* linear) override { linear_.Prepack(linear); }
  Status Prepare(const Linear&, Epilogue, DType, int64_t) override { return OkStatus(); }

 private:
  explicit CpuOps(const OpsOptions& options);

#define KU_COMPUTE_OP(Name)                                   \
  void Compute(const Name##Args& args) override {             \
    device_.Do([this, args] { cpu::Run(resources_, args); }); \
  }
  KU_FOR_EACH_OP(KU_COMPUTE_OP)
#undef KU_COMPUTE_OP

  // Returns the bytes of scratch_ per thread.
  size_t ScratchStride(const OpsLimits& limits) const;

  ThreadPool pool_;
  CpuLinear linear_;
  CpuDevice device_;
  Buffer scratch_;  // one slice per thread, shared by attention and sampling
  Resources resources_;
};

}  // namespace kuiper::cpu
