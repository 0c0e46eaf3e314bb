// What tools read of an answer: its ids, one a line, and its logits as an array of NumPy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/request.h"

namespace kuiper {

// kInternal when the file cannot be written.
Status WriteTokens(const std::string& path, const std::vector<int32_t>& tokens);
// `completion` has logits [tokens, vocab].
Status WriteLogits(const std::string& path, const Completion& completion, int vocab);

}  // namespace kuiper
