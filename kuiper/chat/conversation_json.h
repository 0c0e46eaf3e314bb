// Conversations as text: {"version": 1, "model": ..., "messages": [...]} with OpenAI-style
// messages, so that ParseMessagesJson (io/messages_json.h) reads them too.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper {

std::string ConversationJson(const Conversation& conversation, const std::string& model);

// kInput if the text is not a conversation; a conversation may be empty.
StatusOr<Conversation> ParseConversation(const std::string& json);

}  // namespace kuiper
