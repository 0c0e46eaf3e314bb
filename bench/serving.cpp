// The scenarios that run a model through the engine.
#include <algorithm>
#include <utility>

#include "bench/scenarios.h"
#include "kuiper/base/clock.h"

namespace kuiper::tools {
namespace {

struct FirstToken {
  double milliseconds = 0;
  int cached_tokens = 0;
};

Request MakeQuestion(const Engine& engine, int system_tokens, int question, int new_tokens) {
  Request request = MakeBenchRequest(engine, system_tokens, new_tokens, 0);
  const std::vector<int32_t> tail =
      MakeBenchRequest(engine, kQuestionTokens, 1, question + 1).prompt;
  request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
  return request;
}

StatusOr<FirstToken> Ask(Engine& engine, int system_tokens, int question) {
  KU_ASSIGN_OR_RETURN(const Completion c,
                      engine.Generate(MakeQuestion(engine, system_tokens, question, 1)));
  return FirstToken{c.queue_ms + c.prefill_ms, c.cached_tokens};
}

// Fills the prefix cache with the system prompt, then brings all questions to decoding.
StatusOr<Decoding> AskTogether(Engine& engine, int system_tokens, int questions, int new_tokens) {
  KU_RETURN_IF_ERROR(Ask(engine, system_tokens, 0).status());
  std::vector<Request> requests;
  requests.reserve(questions);
  for (int i = 0; i < questions; ++i) {
    requests.push_back(MakeQuestion(engine, system_tokens, i, new_tokens));
  }
  return StartDecoding(engine, std::move(requests));
}

StatusOr<double> StepMilliseconds(Engine& engine, const Decoding& sequences, int steps) {
  const Clock::time_point begin = Clock::now();
  KU_RETURN_IF_ERROR(StepAll(engine, sequences, steps));
  return SecondsSince(begin) * 1e3 / steps;
}

// What one user observed while another user's prompt was computed.
struct Disturbance {
  std::vector<double> before, gaps;  // milliseconds between two tokens
  std::vector<double> first_tokens;  // milliseconds to the other user's first token
};

// Adds `prompt` while a sequence decodes, and runs steps until the prompt has its first token.
Status Disturb(Engine& engine, const Decoding& user, const Workload& w, const Request& prompt,
               Disturbance* seen) {
  for (int i = 0; i < w.steps; ++i) {
    KU_ASSIGN_OR_RETURN(const double ms, StepMilliseconds(engine, user, 1));
    seen->before.push_back(ms);
  }
  KU_ASSIGN_OR_RETURN(const int64_t other, engine.Add(prompt));
  const Clock::time_point begin = Clock::now();
  Clock::time_point last = begin;
  for (bool done = false; !done;) {
    for (const TokenEvent& event : engine.Step()) {
      if (event.finish == FinishReason::kError) {
        return Status(StatusCode::kInternal, "a sequence failed");
      }
      if (event.request == other) {
        seen->first_tokens.push_back(MillisecondsSince(begin));
        done = true;
      } else {
        seen->gaps.push_back(MillisecondsSince(last));
        last = Clock::now();
      }
    }
  }
  return OkStatus();
}

}  // namespace

Status BenchThroughput(Engine& engine, Machine& machine, const Workload& w, Report* report) {
  std::vector<Row> rows;
  return MeasureRows(engine, machine, w, [&](const Row& row) {
    rows.push_back(row);
    const auto base = std::find_if(rows.begin(), rows.end(),
                                   [&](const Row& first) { return first.tokens == row.tokens; });
    Line line;
    line.Key("context", row.tokens)
        .Key("batch", row.batch)
        .Cost("ms", row.m.seconds.Times(1e3))
        .Figure("tokens_per_s", row.tokens_per_second())
        .Ratio("multiple", row.tokens_per_second() / base->tokens_per_second());
    AddRates(row.m, &line);
    AddEnergy(row.m, row.batch, &line);
    report->Add(line);
  });
}

Status BenchPrefix(Engine& engine, const std::vector<int>& system_prompts, int repetitions,
                   Report* report) {
  for (const int tokens : system_prompts) {
    // Warm-up: touches memory for the first time.
    KU_RETURN_IF_ERROR(Ask(engine, tokens, 0).status());
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
    report->Add(Line()
                    .Key("system", tokens)
                    .Key("question", kQuestionTokens)
                    .Figure("cached", cached, 0)
                    .Figure("cold_ms", Median(cold_times), 2)
                    .Cost("warm_ms", SpreadOf(warm_times))
                    .Share("warm/cold", Median(ratios), 2));
  }
  return OkStatus();
}

Status BenchLatency(const std::vector<std::string>& names, const std::vector<Engine*>& engines,
                    const Workload& w, Report* report) {
  for (const int context : w.contexts) {
    for (const int prompt : w.prompts) {
      std::vector<Disturbance> seen(engines.size());
      for (int r = 0; r <= w.repetitions; ++r) {
        for (size_t e = 0; e < engines.size(); ++e) {
          Engine& engine = *engines[e];
          std::vector<Request> users = {MakeBenchRequest(engine, context, w.steps + prompt + 2, 0)};
          KU_ASSIGN_OR_RETURN(const Decoding user, StartDecoding(engine, std::move(users)));
          KU_RETURN_IF_ERROR(
              Disturb(engine, user, w, MakeBenchRequest(engine, prompt, 1, r + 1), &seen[e]));
          AbortAll(engine, user);
          if (r == 0) seen[e] = {};  // warm-up: touches memory for the first time
        }
      }
      for (size_t e = 0; e < engines.size(); ++e) {
        report->Add(Line()
                        .Key("policy", names[e])
                        .Key("context", context)
                        .Key("prompt", prompt)
                        .Figure("alone_ms", Median(seen[e].before), 2)
                        .Figure("p50_ms", Percentile(seen[e].gaps, 0.5), 2)
                        .Figure("p99_ms", Percentile(seen[e].gaps, 0.99), 2)
                        .Cost("first_ms", SpreadOf(seen[e].first_tokens)));
      }
    }
  }
  return OkStatus();
}

Status BenchCascade(Engine& with, Engine& without, const Workload& w, Report* report) {
  for (const int tokens : w.prompts) {
    for (const int batch : w.batches) {
      const int new_tokens = w.NewTokens(tokens + kQuestionTokens, batch);
      KU_ASSIGN_OR_RETURN(const Decoding on, AskTogether(with, tokens, batch, new_tokens));
      KU_ASSIGN_OR_RETURN(const Decoding off, AskTogether(without, tokens, batch, new_tokens));
      std::vector<double> with_times, without_times, ratios;
      for (int r = 0; r < w.repetitions; ++r) {
        KU_ASSIGN_OR_RETURN(const double with_ms, StepMilliseconds(with, on, w.steps));
        KU_ASSIGN_OR_RETURN(const double without_ms, StepMilliseconds(without, off, w.steps));
        with_times.push_back(with_ms);
        without_times.push_back(without_ms);
        ratios.push_back(without_ms / with_ms);
      }
      AbortAll(with, on);
      AbortAll(without, off);
      report->Add(Line()
                      .Key("system", tokens)
                      .Key("questions", batch)
                      .Cost("with_ms", SpreadOf(with_times))
                      .Figure("without_ms", Median(without_times), 2)
                      .Ratio("speed-up", Median(ratios)));
    }
  }
  return OkStatus();
}

}  // namespace kuiper::tools
