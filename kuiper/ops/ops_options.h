// What is chosen when Ops are made, and what they reserve memory for. Plain values; the engine's
// configuration holds them and the backends read them.
#pragma once

#include <algorithm>
#include <string>

namespace kuiper {

// Which attention kernel runs. Each gives the same bits for paged and contiguous storage.
enum class AttentionKind {
  kAuto,    // kFlash2 where it applies, else kFlash1
  kMha,     // plain two-pass softmax: the reference
  kFlash1,  // online softmax over key tiles
  kFlash2,  // the same on tensor cores; kFlash1 where they do not apply
};

// "auto", "mha", "flash1", "flash2".
constexpr const char* AttentionName(AttentionKind kind) {
  constexpr const char* kNames[] = {"auto", "mha", "flash1", "flash2"};
  return kNames[static_cast<int>(kind)];
}

// What the bits of a row depend on besides its own sequence. The CPU is always strict.
enum class Determinism {
  kStrict,  // nothing: prefill equals decode
  kOn,      // whether it is a decode row: rows of prompts have an order of summation of their own
  kOff,     // as kOn, but nobody checks that algorithms of libraries keep to it, or run after run
            // takes the same ones
};

struct OpsOptions {
  int num_threads = 0;  // CPU: 0 = one per usable core
  // CPU: the best instruction set that the kernels of this process use from now on, e.g. "AVX2";
  // empty: the best there is.
  std::string cpu_target = {};
  Determinism determinism = Determinism::kOn;
  AttentionKind attention = AttentionKind::kAuto;
  // CUDA: Prepare times the library's algorithms for products that no run on this machine has timed
  // before and keeps the choice for all later runs (kernels/cuda/gemm_choice.h).
  bool tune = false;
};

// What the largest step needs; Reserve sizes the scratch memory by it.
struct OpsLimits {
  int max_tokens = 0;    // T
  int max_seqs = 0;      // S and R
  int max_features = 0;  // widest input of a linear layer
  int max_context = 0;   // longest kv_len
  int vocab = 0;
  bool cascade = false;    // AttnMeta::shared_lens is used
  bool quantized = false;  // linear layers may have quantised weights

  // Grows to hold what either holds.
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
