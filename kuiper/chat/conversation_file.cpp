#include "kuiper/chat/conversation_file.h"

#include "kuiper/base/atomic_file.h"
#include "kuiper/chat/conversation_json.h"
#include "kuiper/io/text_input.h"

namespace kuiper {

Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path) {
  const std::string text = ConversationJson(conversation, model);
  AtomicFile file(path);
  KU_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.Commit();
}

StatusOr<Conversation> LoadConversation(const std::string& path, PictureReader* pictures) {
  KU_ASSIGN_OR_RETURN(const std::string text, ReadTextInput(path, "conversation"));
  StatusOr<Conversation> conversation = ParseConversation(text);
  Status status = conversation.status();
  if (status.ok() && pictures != nullptr) {
    status = conversation->ReadPictures(FolderOf(path), pictures);
  }
  if (status.ok()) return conversation;
  return Status(status.code(), path + ": " + status.message(), status.hint());
}

}  // namespace kuiper
