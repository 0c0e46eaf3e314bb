// What waits for the next message of a chat: files that /read put in front of it, and the images
// and videos of /image and /video.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

class Attachments {
 public:
  // `pictures`: null where the model takes text only. `media`: what waits already.
  Attachments(PictureReader* pictures, std::vector<ContentPart> media)
      : pictures_(pictures), media_(std::move(media)) {}

  // Each returns what to tell about it.
  StatusOr<std::string> AddFile(const std::string& path);
  // `command`: "/image" or "/video"; `fps` is that of videos, if it was given.
  StatusOr<std::string> AddPicture(const std::string& command, const std::string& path,
                                   std::optional<double> fps);

  const std::string& text() const { return text_; }
  const std::vector<ContentPart>& media() const { return media_; }
  // Nothing waits any longer, and pictures that the conversation does not have are forgotten.
  void Clear(const Conversation& conversation);

 private:
  PictureReader* pictures_;
  std::string text_;
  std::vector<ContentPart> media_;
};

}  // namespace kuiper::demo
