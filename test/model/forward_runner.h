// Runs a decoder on one sequence with a KV cache, without the engine: tokens in, logits of every
// position out. Pages are assigned in a shuffled order, so that mixed-up pages are detected.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kuiper/kv/kv_cache.h"
#include "kuiper/model/decoder.h"
#include "kuiper/ops/ops.h"

namespace kuiper::test {

struct RunnerOptions {
  bool paged = true;
  int page_size = 16;
  DType kv_dtype = DType::kF32;
};

class ForwardRunner {
 public:
  ForwardRunner(Ops& ops, const Decoder& decoder, int max_tokens, const RunnerOptions& options);

  // Appends the tokens in one step and returns their logits, [tokens, vocab].
  std::vector<float> Append(std::span<const int32_t> tokens, const LayerProbe& probe = {});
  int length() const { return length_; }

 private:
  Tensor Upload(const std::vector<int32_t>& values, std::vector<Buffer>& owner);

  Ops& ops_;
  const Decoder& decoder_;
  int max_tokens_;
  RunnerOptions options_;
  std::unique_ptr<KvCache> kv_;
  Activations act_;
  std::vector<int32_t> table_;  // page of each block; contiguous: the cache row
  int length_ = 0;
};

}  // namespace kuiper::test
