// One step's work: T tokens of S sequences, laid out flat. Prefill, chunked prefill, decode and
// mixtures differ only in numbers. Every tensor is a device array at a fixed address; the engine's
// batch builder fills them with one upload.
#pragma once

#include <vector>

#include "kuiper/base/tensor.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

// Replaces the embeddings of consecutive batch rows (image or video tokens).
struct RowOverride {
  int begin = 0;  // the first row of the batch
  // [n, (1 + K) * hidden]: the embedding, then the vectors to add after each of the first K layers.
  Tensor rows;
};

struct Batch {
  int num_tokens = 0;       // T
  int num_seqs = 0;         // S
  int num_outputs = 0;      // R
  int num_decode_rows = 0;  // leading decode rows; the others are prefill rows, see ApplyArgs
  Tensor token_ids;         // [T] i32, an array of TokenRef
  Tensor sampled;       // [max_samples] i32, tokens that the previous step sampled; may be empty
  Tensor positions;     // [axes, T] i32; with 1 axis, all axes of the RoPE use it
  Tensor slots;         // [T] i32, KV cache slots for the new keys and values
  Tensor block_tables;  // [S, max_pages] i32
  AttnMeta attn;
  Tensor output_rows;  // [R] i32, the batch rows that need logits; unused when R == 0
  // If only the last row of each sequence needs logits, the last layer may skip the other rows once
  // it has stored their keys and values. Requires 2 S <= T, S <= max_outputs and R <= T. Empty: all
  // rows are computed.
  Tensor last_rows;                    // [S] i32, the last row of each sequence
  AttnMeta last_attn;                  // attention metadata of last_rows
  Tensor last_outputs;                 // [R] i32, output_rows as indices into last_rows
  Tensor copies;                       // [C, 3] i32, for CopyPages before the step
  std::vector<RowOverride> overrides;  // empty in steps that are captured as a CUDA graph
};

}  // namespace kuiper
