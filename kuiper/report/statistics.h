// Lines that scripts search for (docs/command_line.md): the KV cache at start-up, and the
// statistics of an answer and of a chat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/report/answer_result.h"

namespace kuiper {

// "Paged Attention: enabled", "PagedKVCache: ...".
std::vector<std::string> KvCacheLines(const Engine& engine);

// Returns the number of tokens of an answer and its prompt that have keys and values at its end.
int TokensInCache(const Completion& completion);

// The last line of the statistics: length, finish reason and hash of the ids of one answer.
std::string OutputLine(const AnswerResult& result);

// Speed and length of one answer for users, shorter than a terminal row. If part of the prompt was
// reused, also says how much.
std::string ShortStatistics(const AnswerResult& result);

// The statistics block, or its one-line form for streamed answers.
std::vector<std::string> StatisticsLines(const AnswerResult& result, bool compact,
                                         bool prefix_cache);

// Totals of all answers of a chat.
struct ChatTotals {
  int turns = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
};
std::string TotalsText(const ChatTotals& totals);

}  // namespace kuiper
