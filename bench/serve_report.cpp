// Reports the times of a load: counts and goodput as facts, percentiles as lines of the report.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "bench/serve.h"

namespace kuiper::tools {
namespace {

// Milliseconds of the measured requests that were answered.
struct Latencies {
  std::vector<double> first_token, between_tokens, whole, late;
};

struct Counts {
  int requests = 0, answered = 0, good = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  double seconds = 0;  // from the first request to the last answer
  std::map<std::string, int> errors;
};

double Mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

bool IsGood(const CallTimes& call, const ServeOptions& options) {
  const double first = call.to_first_token() * 1e3, between = Mean(call.between_tokens()) * 1e3;
  return (options.ttft_slo == 0 || first <= options.ttft_slo) &&
         (options.itl_slo == 0 || between <= options.itl_slo);
}

Latencies LatenciesOf(const std::vector<CallTimes>& calls) {
  Latencies all;
  for (const CallTimes& call : calls) {
    all.late.push_back((call.sent - call.planned) * 1e3);
    if (!call.ok()) continue;
    all.first_token.push_back(call.to_first_token() * 1e3);
    all.whole.push_back(call.to_end() * 1e3);
    for (const double gap : call.between_tokens()) all.between_tokens.push_back(gap * 1e3);
  }
  return all;
}

Counts CountsOf(const std::vector<CallTimes>& calls, const ServeOptions& options) {
  Counts counts;
  double begin = 0, end = 0;
  for (const CallTimes& call : calls) {
    if (counts.requests++ == 0) begin = call.planned;
    end = std::max(end, call.ended);
    if (!call.ok()) {
      ++counts.errors[call.error];
      continue;
    }
    ++counts.answered;
    counts.good += IsGood(call, options) ? 1 : 0;
    counts.prompt_tokens += call.prompt_tokens;
    counts.cached_tokens += call.cached_tokens;
    counts.tokens += call.tokens;
  }
  counts.seconds = end - begin;
  return counts;
}

void ReportCounts(const Counts& c, Report* report) {
  const double seconds = std::max(c.seconds, 1e-9);
  report->Set("requests", c.requests);
  report->Set("answered", c.answered);
  report->Set("good", c.good);
  report->Set("seconds", c.seconds);
  report->Set("prompt_tokens", c.prompt_tokens);
  report->Set("cached_tokens", c.cached_tokens);
  report->Set("tokens", c.tokens);
  report->Set("errors", c.errors);
  report->Print("requests %d, answered %d, failed %d, in %.2f s\n", c.requests, c.answered,
                c.requests - c.answered, c.seconds);
  for (const auto& [error, count] : c.errors) {
    report->Print("failed %d: %s\n", count, error.c_str());
  }
  report->Print("requests/s %.3f, prompt tokens/s %.1f (%lld cached), tokens/s %.1f\n",
                c.answered / seconds, static_cast<double>(c.prompt_tokens) / seconds,
                static_cast<long long>(c.cached_tokens), static_cast<double>(c.tokens) / seconds);
  report->Print("goodput %.1f%%, %.3f requests/s\n", 100.0 * c.good / std::max(c.requests, 1),
                c.good / seconds);
}

// Compared with another report only if the requests arrived at the same rate. What the client adds
// is never compared.
void ReportLatency(const char* name, const std::vector<double>& values, double rate, bool is_cost,
                   Report* report) {
  if (values.empty()) return;
  char per_second[32];
  std::snprintf(per_second, sizeof(per_second), "%g", rate);
  Line line;
  line.Key("latency", name).Key("rate", per_second);
  if (is_cost) line.Cost("ms", SpreadOf(values));
  line.Figure("mean_ms", Mean(values), 2)
      .Figure("p50_ms", Percentile(values, 0.5), 2)
      .Figure("p90_ms", Percentile(values, 0.9), 2)
      .Figure("p99_ms", Percentile(values, 0.99), 2)
      .Figure("max_ms", Percentile(values, 1), 2);
  report->Add(line);
}

Json SpecJson(const ServeOptions& o) {
  return {{"url", o.url},
          {"request_rate", o.load.request_rate},
          {"concurrency", o.load.concurrency},
          {"seed", o.load.seed},
          {"prompt_lengths", o.load.input.empty() ? Json(o.load.prompt_lengths) : Json()},
          {"answer_lengths", o.load.input.empty() ? Json(o.load.answer_lengths) : Json()},
          {"input", o.load.input.empty() ? Json() : Json(o.load.input)},
          {"ttft_slo_ms", o.ttft_slo},
          {"itl_slo_ms", o.itl_slo}};
}

Json CallJson(const CallTimes& call) {
  Json json = {{"planned_s", call.planned}, {"sent_s", call.sent},
               {"ended_s", call.ended},     {"prompt_tokens", call.prompt_tokens},
               {"tokens", call.tokens},     {"error", call.ok() ? Json() : Json(call.error)}};
  if (!call.ok()) return json;
  json["ttft_ms"] = call.to_first_token() * 1e3;
  json["e2e_ms"] = call.to_end() * 1e3;
  json["itl_ms"] = Json::array();
  for (const double gap : call.between_tokens()) json["itl_ms"].push_back(gap * 1e3);
  return json;
}

}  // namespace

Status ReportLoad(const ServeOptions& options, const std::vector<CallTimes>& all, Report* report) {
  std::vector<CallTimes> calls;
  std::copy_if(all.begin(), all.end(), std::back_inserter(calls),
               [](const CallTimes& call) { return !call.is_warm_up; });
  const Counts counts = CountsOf(calls, options);
  const Latencies latencies = LatenciesOf(calls);
  report->Set("load", SpecJson(options));
  ReportCounts(counts, report);
  const double rate = options.load.request_rate;
  ReportLatency("ttft", latencies.first_token, rate, true, report);
  ReportLatency("itl", latencies.between_tokens, rate, true, report);
  ReportLatency("e2e", latencies.whole, rate, true, report);
  ReportLatency("late", latencies.late, rate, false, report);
  Json list = Json::array();
  for (const CallTimes& call : calls) list.push_back(CallJson(call));
  report->Set("calls", std::move(list));
  if (counts.answered > 0) return OkStatus();
  return Status(StatusCode::kUnavailable, "no request was answered");
}

}  // namespace kuiper::tools
