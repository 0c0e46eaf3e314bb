// Measures the tokenizer by itself, on one core: the time to load it, and to encode and decode a
// text.
#include "kuiper/io/tokenizer.h"

#include <fstream>
#include <iterator>
#include <vector>

#include "bench/scenarios.h"
#include "kuiper/base/clock.h"
#include "kuiper/io/token_stream.h"

namespace kuiper::tools {

Status BenchTokenizer(const std::string& tokenizer_path, const std::string& text_path,
                      int repetitions, Report* report) {
  std::ifstream in(text_path, std::ios::binary);
  if (!in) return Status(StatusCode::kInput, "cannot read " + text_path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<double> load;
  for (int r = 0; r < repetitions; ++r) {
    const Clock::time_point begin = Clock::now();
    KU_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(tokenizer_path));
    load.push_back(1e3 * SecondsSince(begin));
  }
  std::vector<double> encode, decode;
  std::vector<int32_t> ids;
  for (int r = 0; r < repetitions; ++r) {
    Clock::time_point begin = Clock::now();
    ids = tokenizer->Encode(text);
    encode.push_back(1e3 * SecondsSince(begin));
    begin = Clock::now();
    if (DecodeTokens(*tokenizer, ids).empty()) return Status(StatusCode::kInput, "no text");
    decode.push_back(1e3 * SecondsSince(begin));
  }
  const double megabytes = text.size() / 1e6;
  const auto line = [&](const char* phase, const Spread& ms) {
    report->Add(Line()
                    .Key("tokenizer", phase)
                    .Cost("ms", ms)
                    .Figure("mb_per_s", megabytes * 1e3 / ms.median));
  };
  report->Print("%.2f MB of text, %zu ids, 1 core\n", megabytes, ids.size());
  report->Add(Line().Key("tokenizer", "load").Cost("ms", SpreadOf(load)));
  line("encode", SpreadOf(encode));
  line("decode", SpreadOf(decode));
  return OkStatus();
}

}  // namespace kuiper::tools
