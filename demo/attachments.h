// Attachments of the next chat message: files inserted before it by /read, and images and videos
// from /image and /video.
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
  // `pictures`: null if the model takes text only. `media`: attachments that are already pending.
  Attachments(PictureReader* pictures, std::vector<ContentPart> media)
      : pictures_(pictures), media_(std::move(media)) {}

  // Each returns the message to show.
  StatusOr<std::string> AddFile(const std::string& path);
  // `command`: "/image" or "/video"; `fps` is for videos, if it was given.
  StatusOr<std::string> AddPicture(const std::string& command, const std::string& path,
                                   std::optional<double> fps);

  bool empty() const { return text_.empty() && media_.empty(); }
  const std::string& text() const { return text_; }
  const std::vector<ContentPart>& media() const { return media_; }
  // Drops all pending attachments, and the images and videos that the conversation does not
  // contain.
  void Clear(const Conversation& conversation);

 private:
  PictureReader* pictures_;
  std::string text_;
  std::vector<ContentPart> media_;
};

}  // namespace kuiper::demo
