// One step's work: T tokens of S sequences, laid out flat. Prefill, chunked prefill, decode and
// mixtures differ only in numbers. Every tensor is a device array at a fixed address; the engine's
// batch builder fills them with one upload.
#pragma once

#include <vector>

#include "kuiper/base/tensor.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

// Rows whose embeddings come from elsewhere.
struct RowPatch {
  int begin = 0;  // the first row of the batch
  // [n, (1 + K) * hidden]: the embedding, and what is added behind each of the first K layers.
  Tensor rows;
};

struct Batch {
  int num_tokens = 0;       // T
  int num_seqs = 0;         // S
  int num_outputs = 0;      // R
  int num_decode_rows = 0;  // the first ones; the others are of prompts, see ApplyArgs
  Tensor token_ids;         // [T] i32, an array of TokenRef
  Tensor sampled;           // [max_samples] i32, tokens of the step before; may be empty
  Tensor positions;         // [axes, T] i32; 1 axis: it is that of all axes of the RoPE
  Tensor slots;             // [T] i32, where new keys and values go
  Tensor block_tables;      // [S, max_pages] i32
  AttnMeta attn;
  Tensor output_rows;  // [R] i32, the rows of the batch that need logits; unused when R == 0
  // Where no rows need logits but the last one of each sequence, the last layer may leave out the
  // others once it has their keys and values: 2 S <= T, S <= max_outputs and R <= T. Empty: it may
  // not.
  Tensor last_rows;               // [S] i32, the last row of each sequence
  AttnMeta last_attn;             // of these rows
  Tensor last_outputs;            // [R] i32, output_rows as elements of last_rows
  Tensor copies;                  // [C, 3] i32, for CopyPages before the step
  std::vector<RowPatch> patches;  // none in steps that are recorded
};

}  // namespace kuiper
