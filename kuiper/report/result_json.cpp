#include "kuiper/report/result_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kuiper/base/hash.h"
#include "kuiper/chat/chat_response.h"
#include "kuiper/io/token_stream.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

Json UsageJson(const AnswerResult& result) {
  const Completion& c = result.completion;
  Json usage = {{"prompt_tokens", c.prompt_tokens},
                {"cached_tokens", c.cached_tokens},
                {"completion_tokens", c.tokens.size()},
                {"reasoning_tokens", c.reasoning_tokens},
                {"dropped_turns", result.dropped_turns},
                {"dropped_tokens", result.dropped_tokens + c.dropped_tokens}};
  if (result.pictures.empty()) return usage;
  int64_t tokens = 0;
  for (const PictureFacts& picture : result.pictures) tokens += picture.tokens;
  usage["image_tokens"] = tokens;
  return usage;
}

// Three decimals; measurements are not more precise.
double Rounded(double value) {
  return std::round(value * 1000) / 1000;
}

Json TimingJson(const AnswerResult& result) {
  const Completion& c = result.completion;
  return {{"load_ms", Rounded(result.load_ms)},
          {"ttft_ms", Rounded(c.queue_ms + c.prefill_ms)},
          {"prefill_ms", Rounded(c.prefill_ms)},
          {"prefill_tps", Rounded(result.prefill_tps())},
          {"decode_ms", Rounded(c.decode_ms)},
          {"decode_tps", Rounded(result.decode_tps())},
          {"decode_gbps", Rounded(result.decode_gbps())}};
}

Json KvJson(const AnswerResult& result) {
  const KvStats kv = result.kv.value_or(KvStats());
  const char* layout = kv.paged ? "paged" : "contiguous";
  return {{"layout", result.kv.has_value() ? Json(layout) : Json()},
          {"block_size", kv.page_size},
          {"blocks_used", result.completion.pages.size()},
          {"blocks_total", kv.pages_total},
          {"bytes_reserved", kv.bytes_reserved},
          {"bytes_touched", kv.bytes_touched},
          {"blocks_shared", kv.pages_shared},
          {"blocks_evictable", kv.pages_evictable},
          {"blocks_evicted", kv.evicted_pages},
          {"cache_lookups", kv.lookups},
          {"cache_hits", kv.hits},
          {"cache_tokens_saved", kv.tokens_hit},
          {"preempted_recompute", kv.preempted_recompute},
          {"preempted_swap", kv.preempted_swap},
          {"slides", kv.slides}};
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

// Returns one element of `choices`: the fields that differ between the answers to a prompt.
Json ChoiceJson(const AnswerResult& result, int index, const Tokenizer* tokenizer) {
  const Completion& c = index == 0 ? result.completion : result.more.at(index - 1);
  Json choice = {
      {"index", index},
      {"text", c.text},
      {"reasoning", c.reasoning},
      {"finish_reason", FinishReasonName(c.finish)},
      {"usage", {{"completion_tokens", c.tokens.size()}, {"reasoning_tokens", c.reasoning_tokens}}},
      {"token_ids_fnv1a64", TokenHash(c.tokens)},
      {"seed", c.seed}};
  if (result.is_beam_search) choice["score"] = c.score;
  if (!c.logprobs.empty()) choice["logprobs"] = LogprobsJson(c, tokenizer);
  return choice;
}

const char* FinishName(const AnswerResult& result) {
  return result.ok() ? FinishReasonName(result.completion.finish) : "error";
}

Json Begin(const AnswerResult& result, const std::string& type) {
  Json json;
  if (!type.empty()) json["type"] = type;
  json["version"] = 1;
  json["model"] = result.model;
  return json;
}

void AddNumbers(const AnswerResult& result, Json* json) {
  (*json)["finish_reason"] = FinishName(result);
  (*json)["usage"] = UsageJson(result);
  (*json)["token_ids_fnv1a64"] = TokenHash(result.completion.tokens);
  (*json)["seed"] = result.completion.seed;
  (*json)["timing"] = TimingJson(result);
  if (!result.pictures.empty()) {
    (*json)["timing"]["image_ms"] = Rounded(result.picture_ms);
    (*json)["timing"]["image_encode_ms"] = Rounded(result.encode_ms);
    (*json)["images"] = PicturesJson(result.pictures);
  }
  (*json)["kv"] = KvJson(result);
  (*json)["ran"] = result.ran.has_value() ? RanObject(*result.ran) : Json();
}

}  // namespace

Json RanObject(const RunFacts& ran) {
  return {{"device", ran.device},
          {"dtype", DTypeName(ran.dtype)},
          {"kv_dtype", DTypeName(ran.kv_format.element_type())},
          {"kv_layout", ran.paged ? "paged" : "contiguous"},
          {"page_size", ran.paged ? Json(ran.page_size) : Json()},
          {"attention", AttentionName(ran.attention)},
          {"steps_recorded", ran.steps_recorded},
          {"steps_replayed", ran.steps_replayed},
          {"steps_eager", ran.steps_eager}};
}

Json PicturesJson(const std::vector<PictureFacts>& pictures) {
  Json list = Json::array();
  for (const PictureFacts& picture : pictures) {
    list.push_back({{"source", picture.source},
                    {"width", picture.width},
                    {"height", picture.height},
                    {"scaled_width", picture.scaled_width},
                    {"scaled_height", picture.scaled_height},
                    {"frames", picture.num_frames > 0 ? Json(picture.num_frames) : Json()},
                    {"patches", picture.patches},
                    {"tokens", picture.tokens}});
  }
  return list;
}

Json ErrorObject(const Status& status, Speller spell) {
  if (status.ok()) return nullptr;
  Json error = {{"code", ErrorName(status.code())}, {"message", status.message(spell)}};
  if (!status.hint().empty()) error["hint"] = status.hint(spell);
  return error;
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string RanJson(const RunFacts& ran) {
  return DumpJson(RanObject(ran));
}

std::string ResultJson(const AnswerResult& result, const std::string& type,
                       const Tokenizer* tokenizer, Speller spell) {
  Json json = Begin(result, type);
  json["text"] = result.completion.text;
  json["reasoning"] = result.completion.reasoning;
  AddNumbers(result, &json);
  if (!result.completion.logprobs.empty()) {
    json["logprobs"] = LogprobsJson(result.completion, tokenizer);
  }
  if (!result.more.empty()) {
    Json& choices = json["choices"];
    for (int i = 0; i <= static_cast<int>(result.more.size()); ++i) {
      choices.push_back(ChoiceJson(result, i, tokenizer));
    }
  }
  json["error"] = ErrorObject(result.status, spell);
  return DumpJson(json);
}

std::string ErrorJson(const Status& status, const std::string& model, const std::string& type,
                      Speller spell) {
  AnswerResult result;
  result.status = status;
  result.model = model;
  return ResultJson(result, type, nullptr, spell);
}

std::string StatsJson(const AnswerResult& result, Speller spell) {
  Json json = Begin(result, "");
  AddNumbers(result, &json);
  json["error"] = ErrorObject(result.status, spell);
  return DumpJson(json);
}

}  // namespace kuiper
