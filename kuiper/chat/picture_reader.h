// Reads the images and videos of messages from paths and data: URLs and converts them to inputs of
// the vision encoder, each once. Prompt builders use one reader per model. Independent of the
// engine and the chat template.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/picture_prompt.h"
#include "kuiper/io/chat_message.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/io/image/vision_input.h"

namespace kuiper {

class PictureReader {
 public:
  PictureReader(const ImageProcessor& processor, const VisionTokens& tokens)
      : processor_(processor), tokens_(tokens) {}

  // Reads an image or video; a relative path begins at `folder`, "" = the current one. Sets the
  // part's absolute path and its digest: that of the image's file, or of the video's shown frames.
  // kInput if the part is unreadable or had another digest. Messages call a part without path
  // `where`.
  Status Read(const std::string& folder, const std::string& where, ContentPart* part);
  // Reads all images and videos of the messages.
  Status Read(const std::string& folder, std::vector<Message>* messages);

  // Measures an image in a data: URL without decoding it: the input that Of returns has the
  // undecoded file. Sets the digest as Read does.
  Status Measure(const std::string& where, ContentPart* part);

  // Returns the input that Read or Measure made from the part. kInput if the part was not read.
  StatusOr<const VisionInput*> Of(const ContentPart& part) const;
  // Returns the inputs of all images and videos of the messages, in order.
  StatusOr<std::vector<const VisionInput*>> Of(const std::vector<Message>& messages) const;
  // Drops all inputs except those of the messages.
  void KeepOnly(const std::vector<Message>& messages);

  // Returns the tokens of the largest stored image or video frame; 0 if there is none.
  int64_t largest_frame() const;
  const ImageProcessor& processor() const { return processor_; }
  const VisionTokens& tokens() const { return tokens_; }
  // Returns the milliseconds spent in Read since the last call.
  double TakeReadMs() { return std::exchange(read_ms_, 0); }

 private:
  StatusOr<VisionInput> ReadImage(const std::string& path, const std::string& where,
                                  const ContentPart& part, std::string* digest) const;
  Status Keep(const std::string& digest, VisionInput input, ContentPart* part);

  ImageProcessor processor_;
  VisionTokens tokens_;
  double read_ms_ = 0;
  std::map<std::string, VisionInput> inputs_;  // by KeyOf(part)
};

}  // namespace kuiper
