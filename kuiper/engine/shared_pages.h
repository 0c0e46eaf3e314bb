// Leading pages that the sequences of a step share, which attention may read once for all of them
// (AttnMeta::shared_lens). Pure host logic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kuiper {

// The shortest split of the CUDA kernels, and two tiles of the CPU kernels.
inline constexpr int kMinSharedTokens = 128;

// Returns the order of sequences with these first pages. Sequences with the same first page follow
// the first of them; otherwise the order is unchanged.
std::vector<int> GroupByFirstPage(std::span<const int32_t> first_pages);

// Returns the number of leading pages that both tables share; the first `known` are not compared.
int NumEqualPages(std::span<const int32_t> a, std::span<const int32_t> b, int known);

// Returns how many leading tokens are read once for two sequences. These lie on equal pages, within
// the `a` and `b` tokens that each had before the step. 0 if they are fewer than kMinSharedTokens.
int SharedTokens(int num_on_equal_pages, int a, int b);

}  // namespace kuiper
