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

// How many pages both tables begin with; `known` of them need not be compared.
int NumEqualPages(std::span<const int32_t> a, std::span<const int32_t> b, int known);

// How many of the first tokens of two sequences are read once for both: those on the same pages, of
// the `a` and `b` that each had before the step, and 0 if they are fewer than kMinSharedTokens.
int SharedTokens(int num_on_equal_pages, int a, int b);

}  // namespace kuiper
