// Answers of earlier turns that keep their reasoning in a prompt, although the template would
// remove it. The template renders kAnswerHere as such an answer's text, and PromptTemplate puts the
// answer with its reasoning there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/chat/template_facts.h"
#include "kuiper/io/chat_message.h"

namespace kuiper {

constexpr std::string_view kAnswerHere = "KUIPER_ANSWER_HERE";

// Returns an answer with its reasoning, as the template writes the last one of a chat; absent if
// the answer has no reasoning. `facts.before_reasoning` must not be empty.
std::optional<std::string> AnswerWithReasoning(const Message& message, const TemplateFacts& facts);
// Makes `text` the content, and removes the reasoning.
void SetTextAlone(std::string_view text, Message* message);
// The index of the last question. The template decides about reasoning in the messages after it.
size_t LastQuestion(const std::vector<Message>& messages);

}  // namespace kuiper
