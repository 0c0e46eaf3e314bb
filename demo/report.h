// Lines on stderr that scripts look for: the KV cache at start-up and the statistics of an answer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "demo/answer.h"
#include "demo/console.h"
#include "kuiper/engine/engine.h"

namespace kuiper::demo {

// "Paged Attention: enabled", "PagedKVCache: ...".
std::vector<std::string> KvCacheLines(const Engine& engine);

// Tokens of an answer and its prompt that have keys and values at its end.
int TokensInCache(const Completion& completion);

// The last line of the statistics: length, finish reason and hash of the ids of one answer.
std::string OutputLine(const Result& result);

// Speeds and lengths of one answer for people, in less than a row of a terminal; where some of the
// prompt was reused, also how much.
std::string ShortStatistics(const Result& result);

// The statistics block, or its one-line form for streamed answers.
std::vector<std::string> StatisticsLines(const Result& result, bool compact, bool prefix_cache);

// "1.50 GB", "512 MB", "12 KB".
std::string HumanBytes(size_t count);

// "######..................", of 24 characters; total above 0.
std::string ProgressBar(int64_t done, int64_t total);
// ", 1:05 left"
std::string TimeLeftText(double seconds);

// 0 in no time.
double PerSecond(double count, double milliseconds);

// snprintf for lines of up to 500 bytes.
template <typename... Args>
std::string Format(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof(text), format, args...);
  return text;
}

}  // namespace kuiper::demo
