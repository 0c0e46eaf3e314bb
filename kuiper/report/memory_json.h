// The JSON object of a memory plan: what a model would take, for each type of keys and values.
#pragma once

#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"
#include "kuiper/report/answer_result.h"

namespace kuiper {

// One line without its newline. `pictures`: of the prompt, which are in the plan. `spell`: how
// parameters are named in the error of a plan that does not fit.
std::string MemoryJson(const MemoryTable& table, const std::string& model,
                       const std::vector<PictureFacts>& pictures, Speller spell);

}  // namespace kuiper
