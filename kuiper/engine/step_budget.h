// What is left of a step while the scheduler fills it.
#pragma once

#include <algorithm>

#include "kuiper/engine/sequence.h"

namespace kuiper {

struct StepBudget {
  int tokens = 0;
  int prompt_rows = 0;  // of logits, see Sequence::next_prompt_row

  // At least for one token.
  bool HasRoomFor(const Sequence& seq) const {
    return tokens > 0 && (prompt_rows > 0 || seq.next_prompt_row == Sequence::kNone);
  }
  // How many tokens of a sequence fit, which are taken: of a prompt whose logits somebody wants as
  // many as there are rows for, of which its last token needs none.
  int Spend(const Sequence& seq) {
    const int begin = seq.num_computed, last = seq.num_prompt - 1;
    int count = std::min(seq.num_computable(), tokens);
    if (seq.next_prompt_row < last) {
      const int first = std::max(begin, seq.next_prompt_row);
      if (last - first > prompt_rows) count = std::min(count, first - begin + prompt_rows);
      prompt_rows -= std::max(0, std::min(begin + count, last) - first);
    }
    tokens -= count;
    return count;
  }
};

}  // namespace kuiper
