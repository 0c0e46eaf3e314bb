// Conversations on disk.
#pragma once

#include <string>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper {

// Writes a temporary file and renames it, so that an interrupted save keeps the old file.
// kInternal.
Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path);

// Reads the conversation's images and videos into `pictures`; if null, skips them. kInput if the
// file is missing or invalid, or if an image or video is missing or has changed.
StatusOr<Conversation> LoadConversation(const std::string& path, PictureReader* pictures);

}  // namespace kuiper
