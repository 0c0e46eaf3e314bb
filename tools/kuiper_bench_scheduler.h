// What scheduling costs on the host: no model, no tensors.
#pragma once

#include <vector>

namespace kuiper::tools {

// Prints the time of Schedule and Commit per decode step for each number of sequences, with the
// prefix cache on: prompts of 512 tokens, half of them shared, pages of 16 tokens.
void BenchScheduler(const std::vector<int>& batches, int steps);

}  // namespace kuiper::tools
