// The speed of prefill and decode as CSV.
#pragma once

#include <string>

#include "kuiper/report/answer_result.h"

namespace kuiper {

// Both return a line with its newline.
std::string BenchmarkCsvHeader();
std::string BenchmarkCsvRow(const AnswerResult& result);

}  // namespace kuiper
