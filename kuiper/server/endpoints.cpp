#include "kuiper/server/endpoints.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/to_json.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/io/token_stream.h"
#include "kuiper/server/body_fields.h"
#include "kuiper/server/json_fields.h"
#include "kuiper/server/messages_api.h"
#include "kuiper/server/responses_api.h"
#include "kuiper/server/thinking_fields.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

// Checks that each remaining field is read by ParseMessages or asks for nothing.
Status CheckUnread(const JsonNode& body) {
  for (size_t i = 0; i < body.keys.size(); ++i) {
    if (IsMessagesField(body.keys[i])) continue;
    KU_RETURN_IF_ERROR(CheckForeignField(body.keys[i], body.items[i], {}));
  }
  return OkStatus();
}

StatusOr<ParsedMessages> TakeMessages(const ServedModel& model, JsonNode body) {
  if (!model.chat.chat_template->is_chat()) {
    return Status(StatusCode::kUnavailable,
                  Param("messages") + " is not supported: the model has no chat template");
  }
  bool shows_reasoning = true;
  KU_RETURN_IF_ERROR(TakeThinking(&body, &shows_reasoning));
  KU_RETURN_IF_ERROR(CheckUnread(body));
  return ParseMessages(body);
}

StatusOr<size_t> CountTokensOfChat(const ServedModel& model, JsonNode chat) {
  KU_ASSIGN_OR_RETURN(ApiRequest request, ParseApiRequest(std::move(chat), true, model.defaults));
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                      EncodeBody(model, std::move(request.prompts[0].messages)));
  return ids.size();
}

Json TextOfToken(const Tokenizer& tokenizer, const std::optional<int32_t>& id) {
  return id.has_value() ? Json(tokenizer.Bytes(*id)) : Json();
}

// Returns the value of a parameter as bodies write it.
Json AsInBodies(const Variable& variable, const Limits& limits) {
  if (auto* const* strings = std::get_if<std::vector<std::string>*>(&variable)) return **strings;
  if (auto* const* ids = std::get_if<std::vector<int>*>(&variable)) return **ids;
  if (auto* const* map = std::get_if<std::map<int, float>*>(&variable)) {
    Json object = Json::object();
    for (const auto& [id, number] : **map) object[std::to_string(id)] = number;
    return object;
  }
  const std::string text = VariableText(variable, limits);
  const StatusOr<JsonNode> value = ParseJson(text, StatusCode::kInput, "value");
  return value.ok() ? ToJson(*value) : Json(text);
}

}  // namespace

StatusOr<Json> ComputeBody(Computation compute, const ServedModel& model, const std::string& text) {
  KU_ASSIGN_OR_RETURN(JsonNode body, ParseJson(text, StatusCode::kInput, "the body"));
  if (!body.IsObject()) return InputError("the body is not an object");
  return compute(model, std::move(body));
}

Json ModelJson(const ServedModel& model, const std::string& name) {
  Json input = Json::array({"text"});
  if (model.pictures.has_value()) input.push_back("image");
  return {
      {"id", name},
      {"object", "model"},
      {"created", model.created},
      {"owned_by", "kuiper"},
      {"root", model.names.at(0)},
      {"max_model_len", model.max_context},
      {"architecture", {{"input_modalities", std::move(input)}, {"output_modalities", {"text"}}}}};
}

Json ModelsJson(const ServedModel& model) {
  Json list = Json::array();
  for (const std::string& name : model.names) list.push_back(ModelJson(model, name));
  return {{"object", "list"}, {"data", std::move(list)}};
}

Json PropsJson(const ServedModel& model) {
  Json defaults = Json::object();
  Request request = model.defaults;
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.in_bodies) continue;
    defaults[parameter.name] = AsInBodies(parameter.of(request), parameter.limits);
  }
  defaults["max_tokens"] = model.max_output_tokens > 0 ? Json(model.max_output_tokens) : Json();
  const TemplateOptions& chat = model.chat;
  const auto form = model.tool_format();
  return {{"model", model.names.at(0)},
          {"version", Engine::Version()},
          {"device", model.device},
          {"system_fingerprint", model.fingerprint},
          {"default_generation_settings", std::move(defaults)},
          {"n_ctx", model.max_context},
          {"total_slots", model.config.max_num_seqs},
          {"block_size", model.config.page_size},
          {"paged", model.config.paged},
          {"prefix_cache", model.config.prefix_cache},
          {"thinks", chat.thinking().has_value()},
          {"tool_calls", !form.has_value()                          ? Json()
                         : form->kind == ToolCallFormat::Kind::kXml ? Json("xml")
                                                                    : Json("hermes")},
          {"chat_template",
           chat.chat_template->is_chat() ? Json(chat.chat_template->source()) : Json()},
          {"modalities", {{"vision", model.pictures.has_value()}, {"audio", false}}}};
}

Json TokenizerInfoJson(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  Json info = {{"model_max_length", model.max_context},
               {"vocab_size", tokenizer.max_id() + 1},
               {"bos_token", TextOfToken(tokenizer, tokenizer.bos())},
               {"eos_token", TextOfToken(tokenizer, tokenizer.eos())},
               {"pad_token", nullptr},
               {"chat_template", nullptr}};
  for (const auto& [name, text] : model.chat.chat_template->special_tokens()) info[name] = text;
  if (model.chat.chat_template->is_chat())
    info["chat_template"] = model.chat.chat_template->source();
  return info;
}

StatusOr<Json> TokenizeBody(const ServedModel& model, JsonNode body) {
  std::vector<int32_t> ids;
  TakeField(&body, "model");
  const bool is_completion = GivenField(body, "prompt") != nullptr;
  bool pieces = false, strings = false, special = is_completion;
  KU_RETURN_IF_ERROR(TakeBool(&body, "with_pieces", &pieces));
  KU_RETURN_IF_ERROR(TakeBool(&body, "return_token_strs", &strings));
  KU_RETURN_IF_ERROR(
      TakeBool(&body, is_completion ? "add_special_tokens" : "add_special", &special));
  const JsonNode text = TakeField(&body, is_completion ? "prompt" : "content");
  if (text.IsString()) {
    KU_RETURN_IF_ERROR(CheckUnread(body));
    ids = EncodeRaw(*model.tokenizer, text.text, special);
  } else if (GivenField(body, "messages") != nullptr) {
    KU_ASSIGN_OR_RETURN(ParsedMessages messages, TakeMessages(model, std::move(body)));
    KU_ASSIGN_OR_RETURN(ids, EncodeBody(model, std::move(messages)));
  } else {
    return InputError(Param("content") + " is missing, and so are " + Param("messages"));
  }
  Json texts = Json::array(), objects = Json::array();
  for (const int32_t id : ids) {
    texts.push_back(model.tokenizer->Bytes(id));
    objects.push_back({{"id", id}, {"piece", texts.back()}});
  }
  Json answer = {{"count", ids.size()}, {"max_model_len", model.max_context}};
  answer["tokens"] = pieces ? std::move(objects) : Json(ids);
  if (strings) answer["token_strs"] = std::move(texts);
  return answer;
}

StatusOr<Json> DetokenizeBody(const ServedModel& model, JsonNode body) {
  TakeField(&body, "model");
  if (GivenField(body, "tokens") == nullptr) return InputError(Param("tokens") + " is not a list");
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TakeIds(&body, "tokens"));
  KU_RETURN_IF_ERROR(CheckUnread(body));
  for (const int32_t id : ids) {
    if (id > model.tokenizer->max_id())
      return InputError(Param("tokens") + " contains a value that is not a token id");
  }
  // Keep control tokens in the text, so that tokenizing it returns the same ids.
  const std::string text = DecodeTokens(*model.tokenizer, ids, {.skip_special = false});
  return Json{{"content", text}, {"prompt", text}};
}

StatusOr<Json> CountTokensBody(const ServedModel& model, JsonNode body) {
  if (GivenField(body, "max_tokens") == nullptr) {
    TakeField(&body, "max_tokens");
    SetField(&body, "max_tokens", JsonNode{.type = JsonNode::Type::kInt, .text = "1"});
  }
  KU_ASSIGN_OR_RETURN(JsonNode chat, ChatOfMessages(std::move(body)));
  KU_ASSIGN_OR_RETURN(const size_t count, CountTokensOfChat(model, std::move(chat)));
  return Json{{"input_tokens", count}};
}

StatusOr<Json> CountInputTokensBody(const ServedModel& model, JsonNode body) {
  KU_ASSIGN_OR_RETURN(JsonNode chat, ChatOfResponses(std::move(body)));
  KU_ASSIGN_OR_RETURN(const size_t count, CountTokensOfChat(model, std::move(chat)));
  return Json{{"object", "response.input_tokens"}, {"input_tokens", count}};
}

StatusOr<Json> ApplyTemplateBody(const ServedModel& model, JsonNode body) {
  TakeField(&body, "model");
  KU_ASSIGN_OR_RETURN(const ParsedMessages messages, TakeMessages(model, std::move(body)));
  KU_ASSIGN_OR_RETURN(const std::vector<Segment> segments, RenderBody(model, messages));
  return Json{{"prompt", JoinSegments(segments)}};
}

}  // namespace kuiper
