// Conversations on disk.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper {

// Writes beside the file and renames, so that an interrupted save leaves the old one. kInternal.
Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path);

// kInput when it is missing or no conversation, or when a picture is missing or has changed. Its
// pictures go to `pictures`; null: they are not read.
StatusOr<Conversation> LoadConversation(const std::string& path, PictureReader* pictures);

}  // namespace kuiper
