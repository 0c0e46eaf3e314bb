#include "kuiper/server/served_model.h"

#include <algorithm>
#include <utility>

#include "kuiper/io/token_stream.h"

namespace kuiper {
namespace {

ApiError NoSuchModel(const ServedModel& model, const std::string& name) {
  ApiError error = MakeError(
      404, "model_not_found",
      "The model `" + name + "` does not exist; this server has `" + model.names.at(0) + "`");
  error.param = "model";
  return error;
}

// Prompts of a chat: a template and a memory of answers.
StatusOr<Prompt> ChatPrompt(const ServedModel& model, AnswerMemory* memory,
                            const ParsedMessages& messages, uint64_t* history) {
  const TemplateOptions options = WithMessages(model.chat, messages);
  std::vector<Message> list = messages.messages;
  *history = HistoryKey(list, options);
  if (memory != nullptr) memory->Recall(options, &list);
  Conversation conversation;
  conversation.SetMessages(std::move(list));
  return BuildPrompt(*model.tokenizer, options, {}, &conversation);
}

StatusOr<Prompt> PromptOf(const ServedModel& model, AnswerMemory* memory, const ChatRequest& wanted,
                          uint64_t* history) {
  if (!wanted.is_chat) {
    if (!wanted.request.prompt.empty()) return Prompt{.ids = wanted.request.prompt};
    return Prompt{.ids = EncodeRaw(*model.tokenizer, wanted.text)};
  }
  if (!model.has_template) {
    return Status(StatusCode::kUnavailable,
                  Param("messages") + " is not supported: the model has no chat template");
  }
  return ChatPrompt(model, memory, wanted.messages, history);
}

}  // namespace

bool ServedModel::Has(const std::string& name) const {
  return name.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<ToolCallForm> ServedModel::tool_form() const {
  if (chat.own != nullptr) {
    const TemplateFacts& facts = chat.own->facts();
    return FindToolCallForm(facts.tool_call, facts.tool_open, facts.tool_close);
  }
  return chat.family == ChatFamily::kNone ? std::nullopt : std::optional<ToolCallForm>({});
}

PreparedOr Prepare(const ServedModel& model, AnswerMemory* memory, JsonNode body, bool is_chat) {
  StatusOr<ApiRequest> api = ParseApiRequest(std::move(body), is_chat, model.defaults);
  if (!api.ok()) return ErrorOf(api.status());
  if (!model.Has(api->model)) return NoSuchModel(model, api->model);
  const size_t num_choices = api->prompts.size() * api->parameters().num_samples;
  if (num_choices > static_cast<size_t>(model.max_choices)) {
    return ErrorOf(
        Status(StatusCode::kInput, Param("n") + " asks for " + std::to_string(num_choices) +
                                       " answers at once; " + std::to_string(model.max_choices) +
                                       " are allowed"));
  }
  PreparedRequest prepared;
  for (const ChatRequest& wanted : api->prompts) {
    const StatusOr<Prompt> prompt = PromptOf(model, memory, wanted, &prepared.history);
    if (!prompt.ok()) return ErrorOf(prompt.status());
    const int num_tokens = static_cast<int>(prompt->ids.size());
    if (num_tokens >= model.max_context) return PromptTooLong(num_tokens, model.max_context);
    Request request = MakeRequest(*prompt, wanted.request);
    const int room = model.max_context - num_tokens;
    if (!api->has_max_tokens) request.max_new_tokens = room;
    if (model.max_output_tokens > 0) {
      request.max_new_tokens = std::min(request.max_new_tokens, model.max_output_tokens);
    }
    if (api->echo) {
      prepared.echoes.push_back(wanted.text.empty() ? DecodeTokens(*model.tokenizer, request.prompt)
                                                    : wanted.text);
    }
    prepared.requests.push_back(std::move(request));
  }
  prepared.api = std::move(*api);
  return prepared;
}

PreparedOr Prepare(const ServedModel& model, AnswerMemory* memory, const std::string& body,
                   bool is_chat) {
  StatusOr<JsonNode> json = ParseJson(body, StatusCode::kInput, "the body");
  if (!json.ok()) return ErrorOf(json.status());
  return Prepare(model, memory, std::move(*json), is_chat);
}

StatusOr<std::vector<Segment>> RenderBody(const ServedModel& model,
                                          const ParsedMessages& messages) {
  Conversation conversation;
  conversation.SetMessages(messages.messages);
  return RenderPrompt(conversation, WithMessages(model.chat, messages));
}

}  // namespace kuiper
