#include "demo/session_file.h"

#include "demo/prompt_source.h"
#include "kuiper/base/atomic_file.h"
#include "kuiper/chat/conversation_json.h"

namespace kuiper::demo {

Status SaveConversation(const Conversation& conversation, const std::string& model,
                        const std::string& path) {
  const std::string text = ConversationJson(conversation, model);
  AtomicFile file(path);
  KU_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  return file.Commit();
}

StatusOr<Conversation> LoadConversation(const std::string& path) {
  KU_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, "conversation"));
  StatusOr<Conversation> conversation = ParseConversation(text);
  if (conversation.ok()) return conversation;
  return Status(StatusCode::kInput, path + ": " + conversation.status().message());
}

}  // namespace kuiper::demo
