// The name of the response field for reasoning, on which clients disagree. Shared by the settings
// and the response writers.
#pragma once

namespace kuiper {

enum class ReasoningField { kBoth, kReasoningContent, kReasoning };

}  // namespace kuiper
