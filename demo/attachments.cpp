#include "demo/attachments.h"

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/io/text_input.h"
#include "kuiper/report/answer_result.h"

namespace kuiper::demo {

StatusOr<std::string> Attachments::AddFile(const std::string& path) {
  if (path.empty()) return InvalidArgument("/read needs a file");
  KU_ASSIGN_OR_RETURN(const std::string text, ReadTextInput(path, "file"));
  text_ += text + (text.ends_with('\n') ? "\n" : "\n\n");
  return "read " + Counted(static_cast<int64_t>(text.size()), "byte") + " of " + path +
         ": they go in front of the next message";
}

StatusOr<std::string> Attachments::AddPicture(const std::string& command, const std::string& path,
                                              std::optional<double> fps) {
  if (pictures_ == nullptr) return InvalidArgument(command + ": this model takes text only");
  if (path.empty()) return InvalidArgument(command + " needs a file");
  ContentPart part{.kind = ContentPart::Kind::kImage, .text = path};
  if (command == "/video") {
    part.kind = ContentPart::Kind::kVideo;
    part.fps = fps;
  }
  KU_RETURN_IF_ERROR(pictures_->Read("", command, &part));
  KU_ASSIGN_OR_RETURN(const auto inputs, pictures_->Of({Message{.parts = {part}}}));
  media_.push_back(std::move(part));
  return PictureFacts(*inputs[0]).Describe() + ": goes with the next message";
}

void Attachments::Clear(const Conversation& conversation) {
  text_.clear();
  media_.clear();
  if (pictures_ != nullptr) pictures_->KeepOnly(conversation.Messages());
}

}  // namespace kuiper::demo
