// Conversations on disk, of --session, /save and /load; --messages reads them too.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

// Writes beside the file and renames, so that an interrupted save leaves the old one. kInternal.
Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path);

// kInput when it is missing or no conversation.
StatusOr<Conversation> LoadConversation(const std::string& path);

}  // namespace kuiper::demo
