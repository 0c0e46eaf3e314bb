#include "kuiper/report/result_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kuiper/base/hash.h"
#include "kuiper/report/statistics.h"

namespace kuiper {
namespace {

using nlohmann::json;

AnswerResult Example() {
  AnswerResult record;
  record.model = std::string("m");
  record.load_ms = 5;
  record.weight_bytes_per_token = 2'000'000'000;
  record.kv.emplace();
  record.kv->page_size = 16;
  record.kv->pages_total = 512;
  record.ran = {.device = "cpu (AVX2, 2 threads)",
                .dtype = DType::kBF16,
                .kv_format = KvFormat::Of(DType::kF16),
                .paged = true,
                .page_size = 16,
                .attention = AttentionKind::kFlash2,
                .steps_recorded = 1,
                .steps_replayed = 13,
                .steps_eager = 2};
  Completion& c = record.completion;
  c.tokens.assign(15, 7);
  c.text = "a \"b\"\n\xe4\xbd\xa0";
  c.finish = FinishReason::kLength;
  c.prompt_tokens = 35;
  c.prefill_ms = 229.8;
  c.decode_ms = 1400;
  c.pages = {1, 2, 3, 4};
  return record;
}

TEST(ResultJson, HasTheFieldsOfTheContract) {
  const std::string line = ResultJson(Example(), "", nullptr, BareName);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json j = json::parse(line);
  EXPECT_FALSE(j.contains("type"));
  EXPECT_EQ(j["version"], 1);
  EXPECT_EQ(j["model"], "m");
  EXPECT_EQ(j["text"], "a \"b\"\n你");
  EXPECT_EQ(j["reasoning"], "");
  EXPECT_EQ(j["finish_reason"], "length");
  EXPECT_EQ(j["usage"]["prompt_tokens"], 35);
  EXPECT_EQ(j["usage"]["cached_tokens"], 0);
  EXPECT_EQ(j["usage"]["completion_tokens"], 15);
  EXPECT_EQ(j["usage"]["reasoning_tokens"], 0);
  EXPECT_EQ(j["token_ids_fnv1a64"].get<std::string>().size(), 16u);
  for (const char* key : {"load_ms", "ttft_ms", "prefill_ms", "prefill_tps", "decode_ms",
                          "decode_tps", "decode_gbps"}) {
    EXPECT_TRUE(j["timing"][key].is_number()) << key;
  }
  EXPECT_EQ(j["kv"]["layout"], "paged");
  EXPECT_EQ(j["kv"]["block_size"], 16);
  EXPECT_EQ(j["kv"]["blocks_used"], 4);
  EXPECT_EQ(j["kv"]["blocks_total"], 512);
  EXPECT_TRUE(j["error"].is_null());
}

TEST(ResultJson, OneObjectSaysWhatRan) {
  const std::string ran =
      R"j({"device":"cpu (AVX2, 2 threads)","dtype":"BF16","kv_dtype":"FP16","kv_layout":"paged",)j"
      R"j("page_size":16,"attention":"flash2","steps_recorded":1,"steps_replayed":13,)j"
      R"j("steps_eager":2})j";
  EXPECT_EQ(RanJson(*Example().ran), ran);
  for (const std::string& line :
       {ResultJson(Example(), "", nullptr, BareName), StatsJson(Example(), BareName)}) {
    EXPECT_NE(line.find(",\"ran\":" + ran + ","), std::string::npos) << line;
  }
  RunFacts contiguous = *Example().ran;
  contiguous.paged = false;
  const json j = json::parse(RanJson(contiguous));
  EXPECT_EQ(j["kv_layout"], "contiguous");
  EXPECT_TRUE(j["page_size"].is_null());
}

TEST(ResultJson, FirstTokenBelongsToThePrefill) {
  const json j = json::parse(ResultJson(Example(), "done", nullptr, BareName));
  EXPECT_EQ(j["type"], "done");
  EXPECT_NEAR(j["timing"]["decode_tps"], 10.0, 1e-9);
  EXPECT_NEAR(j["timing"]["decode_gbps"], 20.0, 1e-9);
}

TEST(ResultJson, SamplesAreChoicesAndTheFirstIsTheAnswer) {
  AnswerResult record = Example();
  EXPECT_FALSE(json::parse(ResultJson(record, "", nullptr, BareName)).contains("choices"));
  Completion second;
  second.tokens = {1, 2, 3};
  second.text = "other";
  second.finish = FinishReason::kStop;
  record.more = {second};
  const json j = json::parse(ResultJson(record, "", nullptr, BareName));
  ASSERT_EQ(j["choices"].size(), 2u);
  for (const char* key : {"text", "reasoning", "finish_reason", "token_ids_fnv1a64"}) {
    EXPECT_EQ(j["choices"][0][key], j[key]) << key;
  }
  EXPECT_EQ(j["choices"][0]["index"], 0);
  EXPECT_EQ(j["choices"][1]["index"], 1);
  EXPECT_EQ(j["choices"][1]["text"], "other");
  EXPECT_EQ(j["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(j["choices"][1]["usage"]["completion_tokens"], 3);
  EXPECT_NE(j["choices"][1]["token_ids_fnv1a64"], j["token_ids_fnv1a64"]);
}

TEST(ResultJson, ErrorsKeepTheShape) {
  const Status status(StatusCode::kContextExceeded, "prompt is 9120 tokens", "shorten it");
  const json j = json::parse(ErrorJson(status, "m", "", BareName));
  EXPECT_EQ(j["finish_reason"], "error");
  EXPECT_EQ(j["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(j["error"]["message"], "prompt is 9120 tokens");
  EXPECT_EQ(j["text"], "");
  EXPECT_EQ(j["usage"]["completion_tokens"], 0);
  EXPECT_TRUE(j["kv"]["layout"].is_null()) << "nothing ran";
  EXPECT_TRUE(j["ran"].is_null());
  EXPECT_EQ(j["kv"]["blocks_total"], 0);
}

TEST(ResultJson, BadBytesDoNotBreakIt) {
  const json j =
      json::parse(ErrorJson(Status(StatusCode::kModel, "no \xff\xfe here"), "m\xff", "", BareName));
  EXPECT_EQ(j["error"]["message"], "no \xef\xbf\xbd\xef\xbf\xbd here");
}

// Computed by hand from the definition of FNV-1a 64 over little-endian ids.
TEST(TokenHash, KnownValues) {
  EXPECT_EQ(TokenHash({}), "cbf29ce484222325");
  uint64_t hash = 0xcbf29ce484222325ull;
  const unsigned char bytes[] = {0x39, 0x30, 0, 0, 0xff, 0xff, 0xff, 0xff};
  for (unsigned char b : bytes) hash = (hash ^ b) * 0x100000001b3ull;
  char expected[17];
  std::snprintf(expected, sizeof(expected), "%016llx", static_cast<unsigned long long>(hash));
  const std::vector<int32_t> ids = {12345, -1};
  EXPECT_EQ(TokenHash(ids), expected);
}

TEST(Statistics, LinesOfTheContract) {
  const std::vector<std::string> full = StatisticsLines(Example(), false, false);
  ASSERT_EQ(full.size(), 6u);
  EXPECT_EQ(full[0], "=== Performance Statistics ===");
  EXPECT_EQ(full[1], "Prompt length: 35 tokens");
  EXPECT_EQ(full[2], "Prefill: 35 tokens, 229.8 ms, 152.3 tokens/s");
  EXPECT_EQ(full[3], "Decode: 15 tokens, 1400.0 ms, 10.0 tokens/s");
  EXPECT_EQ(full[4], "===============================");
  EXPECT_EQ(full[5].find("Output: 15 tokens, finish=length, ids="), 0u) << full[5];
  EXPECT_EQ(full[5].substr(full[5].size() - 16), ", decode 20 GB/s");
  const std::vector<std::string> compact = StatisticsLines(Example(), true, false);
  ASSERT_EQ(compact.size(), 2u);
  EXPECT_EQ(compact[0],
            "[Prefill: 35 tokens, 152.3 tokens/s | Decode: 15 tokens, 10.0 tokens/s (ctx: 50)]");
}

TEST(AnswerResult, FullCacheIsAnErrorOnlyWithoutText) {
  AnswerResult record = Example();
  record.status = Status(StatusCode::kResourceExhausted, "KV cache is full");
  record.completion.finish = FinishReason::kContext;
  EXPECT_TRUE(record.ok());
  record.completion.tokens.clear();
  EXPECT_FALSE(record.ok());
  record = Example();
  record.status = Status(StatusCode::kInternal, "NaN");
  record.completion.finish = FinishReason::kError;
  EXPECT_FALSE(record.ok());
}

TEST(AnswerResult, IsInterruptedIfOneAnswerIs) {
  AnswerResult record = Example();
  EXPECT_FALSE(record.is_interrupted());
  record.more.push_back(record.completion);
  record.more[0].finish = FinishReason::kInterrupt;
  EXPECT_TRUE(record.is_interrupted());
}

}  // namespace
}  // namespace kuiper
