// The JSON object of a memory plan: the memory that a model needs, for each KV format.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/report/answer_result.h"

namespace kuiper {

// Returns one line without its newline. `pictures`: images and videos of the prompt, which the plan
// includes. `spell`: how to write parameter names in the error of a plan that does not fit.
std::string MemoryJson(const MemoryTable& table, const std::string& model,
                       const std::vector<PictureFacts>& pictures, Speller spell);

}  // namespace kuiper
