// Files that tools read: the ids of an answer, one per line, and its logits as a NumPy array.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// Returns kInternal if the file cannot be written.
Status WriteTokens(const std::string& path, const std::vector<int32_t>& tokens);
// `completion` must have logits [tokens, vocab].
Status WriteLogits(const std::string& path, const Completion& completion, int vocab);

}  // namespace kuiper
