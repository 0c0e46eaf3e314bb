// The scenarios that run a model through the engine.
#include <algorithm>
#include <cstdio>

#include "tools/kuiper_bench_scenarios.h"

namespace kuiper::tools {
namespace {

struct FirstToken {
  double milliseconds = 0;
  int cached_tokens = 0;
};

StatusOr<FirstToken> Ask(Engine& engine, int system_tokens, int question) {
  Request request = MakeBenchRequest(engine, system_tokens, 1, 0);
  const std::vector<int32_t> tail =
      MakeBenchRequest(engine, kQuestionTokens, 1, question + 1).prompt;
  request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
  KU_ASSIGN_OR_RETURN(const Completion c, engine.Generate(std::move(request)));
  return FirstToken{c.queue_ms + c.prefill_ms, c.cached_tokens};
}

}  // namespace

void PrintThroughput(const std::vector<Row>& rows) {
  std::printf("%7s %6s %10s %11s %8s\n", "context", "batch", "ms/step", "tokens/s", "multiple");
  for (const Row& row : rows) {
    const auto base = std::find_if(rows.begin(), rows.end(),
                                   [&](const Row& first) { return first.tokens == row.tokens; });
    std::printf("%7d %6d %10.2f %11.1f %7.2fx\n", row.tokens, row.batch, row.milliseconds,
                row.tokens_per_second, row.tokens_per_second / base->tokens_per_second);
  }
}

Status BenchPrefix(Engine& engine, const std::vector<int>& system_prompts, int repetitions) {
  std::printf("%7s %9s %7s %10s %10s %9s\n", "system", "question", "cached", "cold_ms", "warm_ms",
              "warm/cold");
  for (const int tokens : system_prompts) {
    KU_RETURN_IF_ERROR(Ask(engine, tokens, 0).status());  // touches memory for the first time
    std::vector<double> cold_times, warm_times, ratios;
    int cached = 0;
    for (int r = 0; r < repetitions; ++r) {
      engine.ClearPrefixCache();
      KU_ASSIGN_OR_RETURN(const FirstToken cold, Ask(engine, tokens, 2 * r));
      KU_ASSIGN_OR_RETURN(const FirstToken warm, Ask(engine, tokens, 2 * r + 1));
      cold_times.push_back(cold.milliseconds);
      warm_times.push_back(warm.milliseconds);
      ratios.push_back(warm.milliseconds / cold.milliseconds);
      cached = warm.cached_tokens;
    }
    std::printf("%7d %9d %7d %10.2f %10.2f %8.2f%%\n", tokens, kQuestionTokens, cached,
                Median(cold_times), Median(warm_times), Median(ratios) * 100);
  }
  return OkStatus();
}

}  // namespace kuiper::tools
