#include "demo/result_json.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "demo/exit_code.h"
#include "demo/report.h"
#include "kuiper/chat/chat_response.h"
#include "kuiper/io/token_stream.h"

namespace kuiper::demo {
namespace {

using Json = nlohmann::ordered_json;

Json UsageJson(const AnswerRecord& record) {
  const Completion& c = record.completion;
  return {{"prompt_tokens", c.prompt_tokens},
          {"cached_tokens", c.cached_tokens},
          {"completion_tokens", c.tokens.size()},
          {"reasoning_tokens", c.reasoning_tokens},
          {"dropped_turns", record.dropped_turns},
          {"dropped_tokens", record.dropped_tokens + c.dropped_tokens}};
}

Json TimingJson(const AnswerRecord& record) {
  const Completion& c = record.completion;
  return {{"load_ms", record.load_ms},          {"ttft_ms", c.queue_ms + c.prefill_ms},
          {"prefill_ms", c.prefill_ms},         {"prefill_tps", record.prefill_tps()},
          {"decode_ms", c.decode_ms},           {"decode_tps", record.decode_tps()},
          {"decode_gbps", record.decode_gbps()}};
}

Json KvJson(const AnswerRecord& record) {
  return {{"layout", record.kv.paged ? "paged" : "contiguous"},
          {"block_size", record.kv.page_size},
          {"blocks_used", record.completion.pages.size()},
          {"blocks_total", record.kv.pages_total},
          {"bytes_reserved", record.kv.bytes_reserved},
          {"bytes_touched", record.kv.bytes_touched},
          {"blocks_shared", record.kv.pages_shared},
          {"blocks_evictable", record.kv.pages_evictable},
          {"blocks_evicted", record.kv.evicted_pages},
          {"cache_lookups", record.kv.lookups},
          {"cache_hits", record.kv.hits},
          {"cache_tokens_saved", record.kv.tokens_hit},
          {"preempted_recompute", record.kv.preempted_recompute},
          {"preempted_swap", record.kv.preempted_swap},
          {"slides", record.kv.slides}};
}

Json TokenJson(const Tokenizer* tokenizer, int32_t id, float logprob) {
  const std::string text =
      tokenizer == nullptr ? ""
                           : DecodeTokens(*tokenizer, std::span(&id, 1), {.skip_special = false});
  return {{"id", id}, {"text", text}, {"logprob", logprob}};
}

Json LogprobsJson(const Completion& c, const Tokenizer* tokenizer) {
  Json list = Json::array();
  for (size_t i = 0; i < c.logprobs.size() && i < c.tokens.size(); ++i) {
    Json token = TokenJson(tokenizer, c.tokens[i], c.logprobs[i].chosen);
    token["top"] = Json::array();
    for (const auto& [id, logprob] : c.logprobs[i].top) {
      token["top"].push_back(TokenJson(tokenizer, id, logprob));
    }
    list.push_back(std::move(token));
  }
  return list;
}

// One element of `choices`: what differs between the answers to a prompt.
Json ChoiceJson(const AnswerRecord& record, int index, const Tokenizer* tokenizer) {
  const Completion& c = index == 0 ? record.completion : record.more.at(index - 1);
  Json choice = {
      {"index", index},
      {"text", c.text},
      {"reasoning", c.reasoning},
      {"finish_reason", FinishReasonName(c.finish)},
      {"usage", {{"completion_tokens", c.tokens.size()}, {"reasoning_tokens", c.reasoning_tokens}}},
      {"token_ids_fnv1a64", TokenHash(c.tokens)}};
  if (record.is_beam_search) choice["score"] = c.score;
  if (!c.logprobs.empty()) choice["logprobs"] = LogprobsJson(c, tokenizer);
  return choice;
}

Json ErrorObject(const Status& status) {
  if (status.ok()) return nullptr;
  Json error = {{"code", ErrorName(status.code())}, {"message", status.message(FlagName)}};
  if (!status.hint().empty()) error["hint"] = status.hint(FlagName);
  return error;
}

const char* FinishName(const AnswerRecord& record) {
  return record.ok() ? FinishReasonName(record.completion.finish) : "error";
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Begin(const AnswerRecord& record, const std::string& type) {
  Json json;
  if (!type.empty()) json["type"] = type;
  json["version"] = 1;
  json["model"] = record.model;
  return json;
}

void AddNumbers(const AnswerRecord& record, Json* json) {
  (*json)["finish_reason"] = FinishName(record);
  (*json)["usage"] = UsageJson(record);
  (*json)["token_ids_fnv1a64"] = TokenHash(record.completion.tokens);
  (*json)["timing"] = TimingJson(record);
  (*json)["kv"] = KvJson(record);
}

}  // namespace

std::string ResultJson(const AnswerRecord& record, const std::string& type,
                       const Tokenizer* tokenizer) {
  Json json = Begin(record, type);
  json["text"] = record.completion.text;
  json["reasoning"] = record.completion.reasoning;
  AddNumbers(record, &json);
  if (!record.completion.logprobs.empty()) {
    json["logprobs"] = LogprobsJson(record.completion, tokenizer);
  }
  if (!record.more.empty()) {
    Json& choices = json["choices"];
    for (int i = 0; i <= static_cast<int>(record.more.size()); ++i) {
      choices.push_back(ChoiceJson(record, i, tokenizer));
    }
  }
  json["error"] = ErrorObject(record.status);
  return Dump(json);
}

std::string ErrorJson(const Status& status, const std::string& model, const std::string& type) {
  AnswerRecord record;
  record.status = status;
  record.model = model;
  return ResultJson(record, type, nullptr);
}

std::string StatsJson(const AnswerRecord& record) {
  Json json = Begin(record, "");
  AddNumbers(record, &json);
  json["error"] = ErrorObject(record.status);
  return Dump(json);
}

}  // namespace kuiper::demo
