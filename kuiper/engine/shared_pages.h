// What the sequences of a step share: pages at the beginning of their tables, which attention may
// read once for all of them (AttnMeta::shared_lens). Pure host logic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kuiper {

// The shortest split of the CUDA kernels, and two tiles of the CPU's.
inline constexpr int kMinSharedTokens = 128;

// The order in which sequences with these first pages shall stand: those with the same page next to
// each other, behind the first of them; otherwise as they are.
std::vector<int> GroupByFirstPage(std::span<const int32_t> first_pages);

// How many of the first tokens of both sequences lie on the same pages, of the `tokens` each had
// before the step: 0 if they are fewer than kMinSharedTokens.
struct SequenceTable {
  std::span<const int32_t> pages;
  int tokens = 0;
};
int SharedTokens(const SequenceTable& a, const SequenceTable& b, int page_size);

}  // namespace kuiper
