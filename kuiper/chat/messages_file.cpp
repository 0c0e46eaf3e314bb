#include "kuiper/chat/messages_file.h"

#include "kuiper/base/errors.h"
#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/io/text_input.h"

namespace kuiper {
namespace {

Status FillPictures(const std::vector<ContentPart>& media, std::vector<Message>* messages) {
  size_t next = 0;
  for (Message& message : *messages) {
    for (ContentPart& part : message.parts) {
      if (part.kind == ContentPart::Kind::kText || !part.text.empty()) continue;
      if (next < media.size() && media[next].kind != part.kind) {
        const bool image = part.kind == ContentPart::Kind::kImage;
        return InputError(image
                              ? "the messages have the place of an image where a video was given"
                              : "the messages have the place of a video where an image was given");
      }
      if (next < media.size()) part = media[next];
      ++next;
    }
  }
  if (next == media.size()) return OkStatus();
  return InputError(
      "the messages have places for " + Counted(static_cast<int64_t>(next), "picture") + ", and " +
      std::to_string(media.size()) + (media.size() == 1 ? " was" : " were") + " given");
}

}  // namespace

StatusOr<ParsedMessages> ReadMessagesFile(const std::string& path,
                                          const std::vector<ContentPart>& media, int input_fd) {
  KU_ASSIGN_OR_RETURN(const std::string json, ReadTextInput(path, "messages file", input_fd));
  const auto parse = [&]() -> StatusOr<ParsedMessages> {
    KU_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(json, StatusCode::kInput, "messages"));
    KU_RETURN_IF_ERROR(CheckMessagesFields(root));
    return ParseMessages(root);
  };
  StatusOr<ParsedMessages> messages = parse();
  if (!messages.ok()) return InputError(path + ": " + messages.status().message());
  KU_RETURN_IF_ERROR(FillPictures(media, &messages->messages));
  return messages;
}

}  // namespace kuiper
