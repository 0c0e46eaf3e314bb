#include "kuiper/report/benchmark_csv.h"

#include <algorithm>

#include "kuiper/report/number_text.h"

namespace kuiper {
namespace {

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string BenchmarkCsvHeader() {
  return "model_name,input_tokens,output_tokens,prefill_time_ms,prefill_throughput_tps,"
         "decode_time_ms,decode_throughput_tps,decode_latency_ms\n";
}

std::string BenchmarkCsvRow(const AnswerResult& result) {
  const Completion& c = result.completion;
  const int steps = std::max<int>(1, static_cast<int>(c.tokens.size()) - 1);
  return CsvField(result.model) + Format(",%d,%zu,%.3f,%.3f,%.3f,%.3f,%.4f\n", c.prompt_tokens,
                                         c.tokens.size(), c.prefill_ms, result.prefill_tps(),
                                         c.decode_ms, result.decode_tps(), c.decode_ms / steps);
}

}  // namespace kuiper
