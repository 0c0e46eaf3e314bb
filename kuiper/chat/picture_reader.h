// The images and videos of messages: from paths and data: URLs to what a vision tower takes, each
// read once. Whoever builds prompts makes one per model; it knows neither engine nor template.
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

  // Reads a part that is no text; a relative path begins at `folder`, "" = the current one. Then
  // the part has an absolute path and a digest: of an image that of its file, of a video that of
  // the frames it shows. kInput when it cannot be read, or had another digest; `where` names a
  // part that has no path in messages.
  Status Read(const std::string& folder, const std::string& where, ContentPart* part);
  // All such parts of the messages.
  Status Read(const std::string& folder, std::vector<Message>* messages);

  // Does the same for an image in a data: URL, but only measures it: the input that Of returns
  // holds the undecoded file.
  Status Measure(const std::string& where, ContentPart* part);

  // What Read made of a part that is no text. kInput when it was not read.
  StatusOr<const VisionInput*> Of(const ContentPart& part) const;
  // The same of all such parts of the messages, in their order.
  StatusOr<std::vector<const VisionInput*>> Of(const std::vector<Message>& messages) const;
  // Forgets what no part of the messages is.
  void KeepOnly(const std::vector<Message>& messages);

  // Tokens of the largest image or frame of a video that is kept; 0 = there is none.
  int64_t largest_frame() const;
  const ImageProcessor& processor() const { return processor_; }
  const VisionTokens& tokens() const { return tokens_; }
  // Milliseconds that Read took since the last call.
  double TakeReadMs() { return std::exchange(read_ms_, 0); }

 private:
  StatusOr<VisionInput> ReadImage(const std::string& path, const std::string& where,
                                  const ContentPart& part, std::string* digest) const;
  Status Keep(const std::string& digest, VisionInput input, ContentPart* part);

  ImageProcessor processor_;
  VisionTokens tokens_;
  double read_ms_ = 0;
  std::map<std::string, VisionInput> inputs_;  // by KeyOf of their parts
};

}  // namespace kuiper
