// Tokens of a sequence whose embeddings come from a source, and the positions of all its tokens on
// the axes of M-RoPE. A compact form of positions [num_axes, T], stored with the sequence. Plain
// data for the scheduler and its parts, which do not know what the rows show.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/engine/step_plan.h"

namespace kuiper {

// A grid of tokens, row by row. All its tokens have the same position on axis 0; axis 1 counts rows
// and axis 2 columns. Text has the same position on all axes, and continues after the largest
// position of the grid.
struct OverrideSpan {
  int32_t begin = 0;     // the first token
  int32_t position = 0;  // position of the first token, on all axes
  int32_t rows = 0, columns = 0;
  int64_t source = 0;     // source of the embeddings, see StepPlan::Patch
  int32_t first_row = 0;  // row of the source for the first token

  int32_t end() const { return begin + rows * columns; }
  int32_t next_position() const { return position + (rows > columns ? rows : columns); }
  int32_t PositionOf(int32_t token, int axis) const {
    if (axis == 0) return position;
    return position + (axis == 1 ? (token - begin) / columns : (token - begin) % columns);
  }
};

// Appends the patches of tokens [begin, end) of a sequence with these spans. Rows are counted from
// `begin`, as in an entry that begins there.
void AppendOverrides(std::span<const OverrideSpan> spans, int32_t begin, int32_t end,
                     std::vector<StepPlan::EmbeddingOverride>* overrides);
// Appends the positions on `axis` of tokens [begin, end) of a sequence. `spans` ascend.
void AppendPositions(std::span<const OverrideSpan> spans, int32_t begin, int32_t end, int axis,
                     std::vector<int32_t>* positions);

}  // namespace kuiper
