// Where reasoning stands in an answer: clients disagree. Of the settings and of those who write
// answers.
#pragma once

namespace kuiper {

enum class ReasoningField { kBoth, kReasoningContent, kReasoning };

}  // namespace kuiper
