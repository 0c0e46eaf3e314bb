// Conversations on disk: {"version": 1, "model": ..., "messages": [...]} with OpenAI-style
// messages, so that --messages reads them too.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

// Writes beside the file and renames, so that an interrupted save leaves the old one. kInternal.
Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path);

// kInput when it is missing or no conversation.
Status LoadConversation(const std::string& path, Conversation* conversation);

}  // namespace kuiper::demo
