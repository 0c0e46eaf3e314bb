#include "kuiper/server/served_model.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/io/image/data_url.h"
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

// Measures one image and returns its tokens. It must be in the body itself: the server opens no
// file and contacts no other host for a client.
StatusOr<int64_t> MeasurePicture(const std::string& where, ContentPart* part,
                                 PictureReader* pictures) {
  if (part->kind == ContentPart::Kind::kVideo) {
    return Status(StatusCode::kUnavailable,
                  Param("messages") + " is not supported: " + where + " is a video");
  }
  if (!IsDataUrl(part->text)) {
    return InputError(Param("messages") + ": " + where +
                          " is not a data: URL; the server opens no files and fetches nothing",
                      "write data:image/png;base64,... with the bytes");
  }
  KU_RETURN_IF_ERROR(WithMessagesField(pictures->Measure(where, part)));
  KU_ASSIGN_OR_RETURN(const VisionInput* picture, pictures->Of(*part));
  return picture->num_tokens();
}

// Measures all images before one is decoded, because a few bytes may expand to many pixels. Refuses
// more images than fit in the context.
Status MeasurePictures(int max_context, std::vector<Message>* messages, PictureReader* pictures) {
  int64_t num_tokens = 0;
  for (size_t i = 0; i < messages->size(); ++i) {
    std::vector<ContentPart>& parts = (*messages)[i].parts;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (parts[k].kind == ContentPart::Kind::kText) continue;
      const std::string where = "message " + std::to_string(i) + ", part " + std::to_string(k);
      KU_ASSIGN_OR_RETURN(const int64_t added, MeasurePicture(where, &parts[k], pictures));
      num_tokens += added;
      if (num_tokens < max_context) continue;
      return Status(StatusCode::kContextExceeded,
                    "This model's maximum context length is " + std::to_string(max_context) +
                        " tokens, but the pictures up to " + where + " have " +
                        std::to_string(num_tokens) + " tokens");
    }
  }
  return OkStatus();
}

// Builds the prompt of a chat, with the chat template, the answer memory and images.
StatusOr<Prompt> ChatPrompt(const ServedModel& model, AnswerMemory* memory,
                            ParsedMessages* messages, uint64_t* history) {
  TemplateOptions options = model.OptionsOf(*messages);
  std::vector<Message> list = std::exchange(messages->messages, {});
  if (history != nullptr) *history = HistoryKey(list, options);
  if (memory != nullptr) memory->Recall(options, &list);
  std::optional<PictureReader> pictures = model.pictures;
  if (pictures.has_value()) {
    KU_RETURN_IF_ERROR(MeasurePictures(model.max_context, &list, &*pictures));
    options.pictures = &*pictures;
  }
  Conversation conversation;
  conversation.SetMessages(std::move(list));
  StatusOr<Prompt> prompt = BuildPrompt(*model.tokenizer, options, {}, &conversation);
  if (prompt.ok() || ShowsTools(conversation, options)) return prompt;
  return Status(StatusCode::kUnavailable,
                Param("tools") + " is not supported: " + prompt.status().message());
}

StatusOr<Prompt> PromptOf(const ServedModel& model, AnswerMemory* memory, ChatRequest* chat,
                          uint64_t* history) {
  ChatRequest& wanted = *chat;
  if (!wanted.is_chat) {
    Prompt prompt;
    prompt.ids = wanted.request.prompt.empty()
                     ? EncodeRaw(*model.tokenizer, wanted.text, wanted.adds_bos)
                     : wanted.request.prompt;
    return prompt;
  }
  if (!model.chat.chat_template->is_chat()) {
    return Status(StatusCode::kUnavailable,
                  Param("messages") + " is not supported: the model has no chat template");
  }
  return ChatPrompt(model, memory, &wanted.messages, history);
}

}  // namespace

bool ServedModel::Has(const std::string& name) const {
  return name.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

TemplateOptions ServedModel::OptionsOf(const ParsedMessages& messages) const {
  TemplateOptions options = WithMessages(chat, messages);
  options.pictures = pictures.has_value() ? &*pictures : nullptr;
  return options;
}

std::optional<ToolCallFormat> ServedModel::tool_format() const {
  const TemplateFacts& facts = chat.chat_template->facts();
  return FindToolCallFormat(facts.tool_call, facts.tool_open, facts.tool_close);
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
  const char* field = is_chat ? "messages" : "prompt";
  for (ChatRequest& wanted : api->prompts) {
    StatusOr<Prompt> prompt = PromptOf(model, memory, &wanted, &prepared.history);
    if (!prompt.ok()) return ErrorOf(prompt.status());
    for (const VisionInput& image : prompt->images) {
      prepared.num_image_tokens += static_cast<int>(image.num_tokens());
    }
    const int num_tokens = static_cast<int>(prompt->ids.size());
    if (num_tokens >= model.max_context) return PromptTooLong(field, num_tokens, model.max_context);
    Request request = MakeRequest(std::move(*prompt), wanted.request);
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

std::vector<Request> TakeRequests(PreparedRequest* prepared) {
  std::vector<Request> requests = std::move(prepared->requests);
  prepared->requests.clear();
  for (Request& request : requests) {
    std::vector<VisionInput> images = std::exchange(request.images, {});
    prepared->requests.push_back(request);
    request.images = std::move(images);
  }
  return requests;
}

StatusOr<std::vector<Segment>> RenderBody(const ServedModel& model,
                                          const ParsedMessages& messages) {
  Conversation conversation;
  conversation.SetMessages(messages.messages);
  return RenderPrompt(conversation, model.OptionsOf(messages));
}

StatusOr<std::vector<int32_t>> EncodeBody(const ServedModel& model, ParsedMessages messages) {
  KU_ASSIGN_OR_RETURN(Prompt prompt, ChatPrompt(model, nullptr, &messages, nullptr));
  return std::move(prompt.ids);
}

}  // namespace kuiper
