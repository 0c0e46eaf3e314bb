// CpuLinear: y = x W^T + b for the CPU backend. The weights are in place in the mapped file, or
// prepacked if they have memory of their own. The sum of one output element depends only on (K,
// weight format) and the operands. It never depends on the number of rows T, the split into parts,
// the thread count or the block sizes. Used by cpu_ops.cpp; independent of models. See
// cpu_linear.cpp for the algorithm and kernel.h for the numeric contract.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/linear.h"

namespace kuiper::cpu {

struct LinearKernelSet;

class CpuLinear {
 public:
  // instruction_set: one of InstructionSets(), or empty for the best.
  explicit CpuLinear(ThreadPool& pool, std::string_view instruction_set = "");

  // Allocates the scratch memory: converted activations and per-thread blocks. Call it before Apply
  // and never during a step. The memory never shrinks.
  Status Reserve(int max_tokens, int max_features);
  // Returns the bytes that Reserve allocates.
  size_t ScratchBytes(int max_tokens, int max_features) const;

  // As ApplyArgs: y [T, w.out] = x [T, w.in] W^T + b, then the epilogue. out and x are f32 with any
  // row stride. T <= max_tokens and w.in <= max_features. Ops has checked the arguments.
  void Apply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue = Epilogue::kStore);

  // As Ops::Prepack: rows become the panels of kernel.h or integer.h, if the kernels can use all
  // parts in that layout.
  void Prepack(Linear* w);
  // Unpacks elements [begin, begin + n) of a prepacked dense row. begin is a multiple of
  // FoldElements; n is FoldElements, or less at the row's end.
  int FoldElements(DType type) const;
  static constexpr int kMaxFoldBytes = 8192;  // bytes of FoldElements elements, at most
  void ReadPrepacked(const Tensor& values, int64_t row, int begin, int n, void* to) const;

  // The micro-kernels of the instruction set.
  const LinearKernelSet& kernels() const { return *kernels_; }

  // Returns the instruction sets this machine can run, best first, e.g. {"AVX3_BF16", "AVX3",
  // "AVX2"}.
  static std::vector<std::string> InstructionSets();
  // Returns the best of them, such as "AVX3_BF16", "AVX3", "AVX2" or "NEON".
  static std::string KernelName();

 private:
  ThreadPool& pool_;
  const LinearKernelSet* kernels_ = nullptr;
  int max_tokens_ = 0;
  int max_features_ = 0;
  Buffer activations_;  // x converted and blocked along K
  Buffer workspace_;    // one slice per thread
  size_t workspace_slice_ = 0;
};

}  // namespace kuiper::cpu
