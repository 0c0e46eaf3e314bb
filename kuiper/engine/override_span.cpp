#include "kuiper/engine/override_span.h"

#include <algorithm>

namespace kuiper {

void AppendOverrides(std::span<const OverrideSpan> spans, int32_t begin, int32_t end,
                     std::vector<StepPlan::EmbeddingOverride>* overrides) {
  for (const OverrideSpan& span : spans) {
    const int32_t first = std::max(span.begin, begin), last = std::min(span.end(), end);
    if (first >= last) continue;
    overrides->push_back({.rows = {first - begin, last - begin},
                          .source = span.source,
                          .first_row = span.first_row + first - span.begin});
  }
}

void AppendPositions(std::span<const OverrideSpan> spans, int32_t begin, int32_t end, int axis,
                     std::vector<int32_t>* positions) {
  if (spans.empty() && end == begin + 1) {  // the most frequent case: decoding text
    positions->push_back(begin);
    return;
  }
  size_t next = 0;
  int32_t shift = 0;  // position minus token index, for text before the next span
  const auto pass = [&] {
    shift = spans[next].next_position() - spans[next].end();
    ++next;
  };
  while (next < spans.size() && spans[next].end() <= begin) pass();
  for (int32_t token = begin; token < end; ++token) {
    if (next < spans.size() && token == spans[next].end()) pass();
    const bool is_text = next == spans.size() || token < spans[next].begin;
    positions->push_back(is_text ? token + shift : spans[next].PositionOf(token, axis));
  }
}

}  // namespace kuiper
