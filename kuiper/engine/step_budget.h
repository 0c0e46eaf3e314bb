// The remaining budget of a step while the scheduler fills it.
#pragma once

#include <algorithm>

#include "kuiper/engine/sequence.h"

namespace kuiper {

struct StepBudget {
  int tokens = 0;
  int prompt_rows = 0;  // logits rows, see Sequence::next_prompt_row

  // True if at least one token of `seq` fits.
  bool HasRoomFor(const Sequence& seq) const {
    return tokens > 0 && (prompt_rows > 0 || seq.next_prompt_row == Sequence::kNone);
  }
  // Takes as many tokens of `seq` as fit and returns their number. If logits of the prompt are
  // wanted, takes at most as many tokens as there are rows; the prompt's last token needs none.
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
