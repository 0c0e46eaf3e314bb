// Options for making Ops, and the limits they reserve memory for. Plain values; the engine's
// configuration holds them and the backends read them.
#pragma once

#include <algorithm>
#include <string>

namespace kuiper {

// Selects the attention kernel. Each gives the same bits for paged and contiguous storage.
enum class AttentionKind {
  kAuto,    // kFlash2 if it applies, else kFlash1
  kMha,     // plain two-pass softmax: the reference
  kFlash1,  // online softmax over key tiles
  kFlash2,  // online softmax on tensor cores; kFlash1 if they do not apply
};

// "auto", "mha", "flash1", "flash2".
constexpr const char* AttentionName(AttentionKind kind) {
  constexpr const char* kNames[] = {"auto", "mha", "flash1", "flash2"};
  return kNames[static_cast<int>(kind)];
}

// What the bits of a row may depend on besides its own sequence. The CPU is always strict.
enum class Determinism {
  kStrict,  // nothing: prefill equals decode
  kOn,      // whether it is a decode row: prefill rows have their own order of summation
  // Like kOn, but without checking that library algorithms keep to it, or that all runs use the
  // same algorithms.
  kOff,
};

struct OpsOptions {
  int num_threads = 0;  // CPU: 0 = one per usable core
  // CPU: the best instruction set that kernels of this process use from now on, e.g. "AVX2"; empty:
  // the best available.
  std::string cpu_target = {};
  Determinism determinism = Determinism::kOn;
  AttentionKind attention = AttentionKind::kAuto;
  // CUDA: Prepare times the library's algorithms for products not yet timed on this machine. It
  // keeps the choice for all later runs (kernels/cuda/gemm_choice.h).
  bool tune = false;
};

// The sizes of the largest step, which determine the scratch memory that Reserve allocates.
struct OpsLimits {
  int max_tokens = 0;    // T
  int max_seqs = 0;      // S and R
  int max_features = 0;  // widest input of a linear layer
  int max_context = 0;   // longest kv_len
  int vocab = 0;
  bool cascade = false;    // AttnMeta::shared_lens is used
  bool quantized = false;  // linear layers may have quantised weights

  // Raises each limit to that of `other` if that one is larger.
  void Include(const OpsLimits& other) {
    max_tokens = std::max(max_tokens, other.max_tokens);
    max_seqs = std::max(max_seqs, other.max_seqs);
    max_features = std::max(max_features, other.max_features);
    max_context = std::max(max_context, other.max_context);
    vocab = std::max(vocab, other.vocab);
    cascade = cascade || other.cascade;
    quantized = quantized || other.quantized;
  }
};

}  // namespace kuiper
