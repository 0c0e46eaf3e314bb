// Tokens of a sequence whose embeddings come from elsewhere, and where all its tokens stand on the
// axes of positions (M-RoPE): a compact form of [num_axes, T] that a sequence can carry. Plain
// data; the scheduler and its parts read it and know nothing of what the rows show.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kuiper/engine/step_plan.h"

namespace kuiper {

// A grid of tokens, row by row. Its tokens have one position on axis 0, their row's on axis 1 and
// their column's on axis 2; text has the same position on all axes, and goes on behind the largest
// one of the grid.
struct PatchSpan {
  int32_t begin = 0;     // the first token
  int32_t position = 0;  // its own, on all axes
  int32_t rows = 0, columns = 0;
  int64_t source = 0;     // of the embeddings, see StepPlan::Patch
  int32_t first_row = 0;  // of the source

  int32_t end() const { return begin + rows * columns; }
  int32_t next_position() const { return position + (rows > columns ? rows : columns); }
  int32_t PositionOf(int32_t token, int axis) const {
    if (axis == 0) return position;
    return position + (axis == 1 ? (token - begin) / columns : (token - begin) % columns);
  }
};

// Appends the patches of the tokens [begin, end) of a sequence with these spans to those of an
// entry that begins with token `begin`.
void AppendPatches(std::span<const PatchSpan> spans, int32_t begin, int32_t end,
                   std::vector<StepPlan::Patch>* patches);
// Appends the positions on `axis` of the tokens [begin, end) of a sequence with these spans, which
// ascend.
void AppendPositions(std::span<const PatchSpan> spans, int32_t begin, int32_t end, int axis,
                     std::vector<int32_t>* positions);

}  // namespace kuiper
