// What a load's times say: counts, percentiles and goodput, as a table, JSON and plots.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kuiper/base/append_file.h"
#include "kuiper/engine/engine.h"
#include "tools/kuiper_bench_serve.h"
#include "tools/svg_plot.h"

namespace kuiper::tools {
namespace {

using Json = nlohmann::ordered_json;

// Milliseconds of the requests that are measured and were answered.
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

using Named = std::vector<std::pair<const char*, const std::vector<double>*>>;

Named NamedLatencies(const Latencies& l) {
  return {{"ttft_ms", &l.first_token},
          {"itl_ms", &l.between_tokens},
          {"e2e_ms", &l.whole},
          {"late_ms", &l.late}};
}

void PrintTable(const Counts& c, const Latencies& latencies) {
  const double seconds = std::max(c.seconds, 1e-9);
  std::printf("requests %d, answered %d, failed %d, in %.2f s\n", c.requests, c.answered,
              c.requests - c.answered, c.seconds);
  for (const auto& [error, count] : c.errors) std::printf("failed %d: %s\n", count, error.c_str());
  std::printf("requests/s %.3f, prompt tokens/s %.1f (%lld cached), tokens/s %.1f\n",
              c.answered / seconds, static_cast<double>(c.prompt_tokens) / seconds,
              static_cast<long long>(c.cached_tokens), static_cast<double>(c.tokens) / seconds);
  std::printf("goodput %.1f%%, %.3f requests/s\n", 100.0 * c.good / std::max(c.requests, 1),
              c.good / seconds);
  std::printf("%-8s %10s %10s %10s %10s %10s\n", "latency", "mean", "p50", "p90", "p99", "max");
  for (const auto& [name, values] : NamedLatencies(latencies)) {
    if (values->empty()) continue;
    std::printf("%-8s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, Mean(*values),
                Percentile(*values, 0.5), Percentile(*values, 0.9), Percentile(*values, 0.99),
                Percentile(*values, 1));
  }
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
  json["arrivals_s"] = Json::array();
  for (const Arrival& arrival : call.arrivals) json["arrivals_s"].push_back(arrival.seconds);
  return json;
}

Json ReportJson(const ServeOptions& options, const Counts& c, const Latencies& latencies,
                const std::vector<CallTimes>& calls) {
  Json json = {{"version", Engine::Version()},
               {"scenario", "serve"},
               {"load", SpecJson(options)},
               {"requests", c.requests},
               {"answered", c.answered},
               {"good", c.good},
               {"seconds", c.seconds},
               {"prompt_tokens", c.prompt_tokens},
               {"cached_tokens", c.cached_tokens},
               {"tokens", c.tokens},
               {"errors", c.errors}};
  for (const auto& [name, values] : NamedLatencies(latencies)) {
    if (values->empty()) continue;
    json[name] = {{"mean", Mean(*values)},
                  {"p50", Percentile(*values, 0.5)},
                  {"p90", Percentile(*values, 0.9)},
                  {"p99", Percentile(*values, 0.99)},
                  {"max", Percentile(*values, 1)}};
  }
  json["calls"] = Json::array();
  for (const CallTimes& call : calls) json["calls"].push_back(CallJson(call));
  return json;
}

std::string ReportSvg(const Latencies& l, const std::vector<CallTimes>& calls) {
  SvgPanel course{"First token over the load", "planned at, s", "ms", {}, false};
  for (const CallTimes& call : calls) {
    if (call.ok()) course.points.emplace_back(call.planned, call.to_first_token() * 1e3);
  }
  return SvgPlot({{"Time to first token", "ms", "share of requests", Distribution(l.first_token)},
                  {"Time between tokens", "ms", "share of tokens", Distribution(l.between_tokens)},
                  {"Whole answers", "ms", "share of requests", Distribution(l.whole)},
                  course});
}

Status WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return OkStatus();
  std::ofstream out(path);
  out << text;
  return out.flush() ? OkStatus() : WriteFailed(path);
}

}  // namespace

Status ReportLoad(const ServeOptions& options, const std::vector<CallTimes>& all) {
  std::vector<CallTimes> calls;
  std::copy_if(all.begin(), all.end(), std::back_inserter(calls),
               [](const CallTimes& call) { return !call.is_warm_up; });
  const Counts counts = CountsOf(calls, options);
  const Latencies latencies = LatenciesOf(calls);
  PrintTable(counts, latencies);
  KU_RETURN_IF_ERROR(
      WriteFile(options.json, ReportJson(options, counts, latencies, calls).dump(2) + "\n"));
  KU_RETURN_IF_ERROR(WriteFile(options.svg, ReportSvg(latencies, calls)));
  if (counts.answered > 0) return OkStatus();
  return Status(StatusCode::kUnavailable, "no request was answered");
}

}  // namespace kuiper::tools
