#include "kuiper/server/responses_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "kuiper/server/json_fields.h"
#include "kuiper/server/token_logprobs.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const PreparedRequest& prepared, AnswerTitle title, const Tokenizer& tokenizer)
      : api_(prepared.api), title_(std::move(title)), tokenizer_(tokenizer) {}

  std::string Begin(const AnswerParts& parts) override;
  std::string OnDelta(const AnswerDelta& delta, const AnswerParts& parts) override;
  std::string End(const AnswerParts& parts) override;
  std::string Failed(const ApiError& error) override {
    return Event("error", {{"code", error.code}, {"message", error.message}, {"param", nullptr}});
  }
  Json Whole(const AnswerParts& parts) const override;

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  // Returns the next numbered event of the stream.
  std::string Event(const std::string& type, const Json& fields);
  Json Response(const char* status, Json output, Json usage, Json incomplete) const;
  std::string ItemId(Kind kind, size_t index) const;
  Json TextItem(Kind kind, size_t index, const std::string& text, const Json& logprobs,
                const char* status) const;
  static Json Part(Kind kind, const std::string& text, const Json& logprobs);
  // The log probabilities from token `begin` on; an empty list if the request does not want them.
  Json Logprobs(const AnswerParts::Choice& choice, size_t begin) const;
  Json CallItem(const CallPart& call, size_t index, const std::string& arguments,
                const char* status) const;
  std::string SwitchItem(Kind kind, const AnswerParts::Choice& choice);
  std::string AddText(Kind kind, const std::string& text, const AnswerParts::Choice& choice);
  std::string AddCall(const CallPart& call, const AnswerParts::Choice& choice);

  const ApiRequest& api_;
  const AnswerTitle title_;
  const Tokenizer& tokenizer_;
  int64_t num_events_ = 0;
  Json done_ = Json::array();  // completed items
  Kind open_ = Kind::kNone;
  std::string text_;         // text of the open item
  size_t num_logprobs_ = 0;  // tokens whose log probabilities have been sent
};

std::string ResponsesWriter::Event(const std::string& type, const Json& fields) {
  Json event = {{"type", type}, {"sequence_number", num_events_++}};
  event.update(fields);
  return ServerEvent(type, event);
}

Json ResponsesWriter::Response(const char* status, Json output, Json usage, Json incomplete) const {
  return {{"id", "resp_" + title_.id},
          {"object", "response"},
          {"created_at", title_.created},
          {"status", status},
          {"error", nullptr},
          {"incomplete_details", std::move(incomplete)},
          {"instructions", nullptr},
          {"metadata", Json::object()},
          {"model", title_.model},
          {"output", std::move(output)},
          {"parallel_tool_calls", true},
          {"temperature", Decimal(api_.parameters().sampling.temperature)},
          {"top_p", Decimal(api_.parameters().sampling.top_p)},
          {"tool_choice", "auto"},
          {"tools", Json::array()},
          {"store", false},
          {"usage", std::move(usage)}};
}

std::string ResponsesWriter::ItemId(Kind kind, size_t index) const {
  const char* prefix = kind == Kind::kReasoning ? "rs_" : kind == Kind::kCall ? "fc_" : "msg_";
  return prefix + title_.id + "_" + std::to_string(index);
}

Json ResponsesWriter::Logprobs(const AnswerParts::Choice& choice, size_t begin) const {
  if (!api_.wants_logprobs) return Json::array();
  const std::span<const TokenPart> tokens(choice.tokens);
  return LogprobEntries(tokenizer_, tokens.subspan(std::min(begin, tokens.size())),
                        api_.top_logprobs);
}

Json ResponsesWriter::Part(Kind kind, const std::string& text, const Json& logprobs) {
  if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", logprobs}};
}

Json ResponsesWriter::TextItem(Kind kind, size_t index, const std::string& text,
                               const Json& logprobs, const char* status) const {
  Json content = Json::array();
  if (!text.empty()) content.push_back(Part(kind, text, logprobs));
  if (kind == Kind::kReasoning) {
    return {{"id", ItemId(kind, index)},
            {"type", "reasoning"},
            {"status", status},
            {"summary", Json::array()},
            {"content", std::move(content)}};
  }
  return {{"id", ItemId(kind, index)},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

Json ResponsesWriter::CallItem(const CallPart& call, size_t index, const std::string& arguments,
                               const char* status) const {
  return {{"id", ItemId(Kind::kCall, index)},
          {"type", "function_call"},
          {"status", status},
          {"call_id", call.id},
          {"name", call.call.name},
          {"arguments", arguments}};
}

std::string ResponsesWriter::Begin(const AnswerParts&) {
  const Json response = Response("in_progress", Json::array(), nullptr, nullptr);
  std::string out = Event("response.created", {{"response", response}});
  out += Event("response.in_progress", {{"response", response}});
  return out;
}

// Unless the open item is of this kind, ends it and begins a new one.
std::string ResponsesWriter::SwitchItem(Kind kind, const AnswerParts::Choice& choice) {
  if (kind == open_) return "";
  std::string out;
  if (open_ != Kind::kNone) {
    const size_t index = done_.size();
    const Json at = {
        {"item_id", ItemId(open_, index)}, {"output_index", index}, {"content_index", 0}};
    const bool is_message = open_ == Kind::kMessage;
    const Json logprobs = is_message ? Logprobs(choice, choice.text_begin) : Json::array();
    Json text = at, part = at;
    text["text"] = text_;
    if (is_message) text["logprobs"] = logprobs;
    part["part"] = Part(open_, text_, logprobs);
    out += Event(is_message ? "response.output_text.done" : "response.reasoning_text.done", text);
    out += Event("response.content_part.done", part);
    const Json item = TextItem(open_, index, text_, logprobs, "completed");
    out += Event("response.output_item.done", {{"output_index", index}, {"item", item}});
    done_.push_back(item);
  }
  open_ = kind;
  text_.clear();
  if (kind == Kind::kNone) return out;
  const size_t index = done_.size();
  out += Event(
      "response.output_item.added",
      {{"output_index", index}, {"item", TextItem(kind, index, "", Json::array(), "in_progress")}});
  return out + Event("response.content_part.added", {{"item_id", ItemId(kind, index)},
                                                     {"output_index", index},
                                                     {"content_index", 0},
                                                     {"part", Part(kind, "", Json::array())}});
}

std::string ResponsesWriter::AddText(Kind kind, const std::string& text,
                                     const AnswerParts::Choice& choice) {
  std::string out = SwitchItem(kind, choice);
  text_ += text;
  const bool is_message = kind == Kind::kMessage;
  Json delta = {{"item_id", ItemId(kind, done_.size())},
                {"output_index", done_.size()},
                {"content_index", 0},
                {"delta", text}};
  if (is_message) {
    delta["logprobs"] = Logprobs(choice, std::max(num_logprobs_, choice.text_begin));
    num_logprobs_ = choice.tokens.size();
  }
  return out +
         Event(is_message ? "response.output_text.delta" : "response.reasoning_text.delta", delta);
}

std::string ResponsesWriter::AddCall(const CallPart& call, const AnswerParts::Choice& choice) {
  std::string out = SwitchItem(Kind::kNone, choice);
  const size_t index = done_.size();
  const Json at = {{"item_id", ItemId(Kind::kCall, index)}, {"output_index", index}};
  Json delta = at, whole = at;
  delta["delta"] = call.call.arguments;
  whole["arguments"] = call.call.arguments;
  const Json item = CallItem(call, index, call.call.arguments, "completed");
  out += Event("response.output_item.added",
               {{"output_index", index}, {"item", CallItem(call, index, "", "in_progress")}});
  out += Event("response.function_call_arguments.delta", delta);
  out += Event("response.function_call_arguments.done", whole);
  out += Event("response.output_item.done", {{"output_index", index}, {"item", item}});
  done_.push_back(item);
  return out;
}

std::string ResponsesWriter::OnDelta(const AnswerDelta& delta, const AnswerParts& parts) {
  const AnswerParts::Choice& choice = parts.choices().at(0);
  std::string out;
  if (!delta.reasoning.empty()) out += AddText(Kind::kReasoning, delta.reasoning, choice);
  if (!delta.text.empty()) out += AddText(Kind::kMessage, delta.text, choice);
  for (const CallPart& call : delta.calls) out += AddCall(call, choice);
  return out;
}

std::string ResponsesWriter::End(const AnswerParts& parts) {
  std::string out = SwitchItem(Kind::kNone, parts.choices().at(0));
  Json whole = Whole(parts);
  whole["output"] = done_;
  const bool is_whole = whole["status"] == "completed";
  return out +
         Event(is_whole ? "response.completed" : "response.incomplete", {{"response", whole}});
}

Json ResponsesWriter::Whole(const AnswerParts& parts) const {
  const AnswerParts::Choice& choice = parts.choices().at(0);
  Json output = Json::array();
  if (!choice.reasoning.empty()) {
    output.push_back(
        TextItem(Kind::kReasoning, output.size(), choice.reasoning, Json::array(), "completed"));
  }
  if (!choice.text.empty()) {
    output.push_back(TextItem(Kind::kMessage, output.size(), choice.text,
                              Logprobs(choice, choice.text_begin), "completed"));
  }
  for (const CallPart& call : choice.calls) {
    output.push_back(CallItem(call, output.size(), call.call.arguments, "completed"));
  }
  const int input = parts.num_prompt_tokens(), generated = parts.num_generated_tokens();
  const Json usage = {
      {"input_tokens", input},
      {"input_tokens_details", {{"cached_tokens", parts.num_cached_tokens()}}},
      {"output_tokens", generated},
      {"output_tokens_details", {{"reasoning_tokens", parts.num_reasoning_tokens()}}},
      {"total_tokens", input + generated}};
  const bool is_cut = choice.finish() == std::string("length");
  return Response(is_cut ? "incomplete" : "completed", std::move(output), usage,
                  is_cut ? Json{{"reason", "max_output_tokens"}} : Json());
}

}  // namespace

std::unique_ptr<AnswerWriter> MakeResponsesWriter(const PreparedRequest& prepared,
                                                  AnswerTitle title, const Tokenizer& tokenizer,
                                                  ReasoningField) {
  return std::make_unique<ResponsesWriter>(prepared, std::move(title), tokenizer);
}

}  // namespace kuiper
