// The scenarios that put a server under load.
#include "bench/serve.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "bench/server.h"
#include "kuiper/base/clock.h"

namespace kuiper::tools {
namespace {

constexpr int kPromptTokens = 16;   // prompts of the server cost scenario, which measures decoding
constexpr int kMoreContext = 4096;  // context for requests of unknown length

HttpHeaders KeyHeaders() {
  const char* key = std::getenv("KUIPER_API_KEY");
  if (key == nullptr || *key == '\0') return {};
  return {{"Authorization", std::string("Bearer ") + key}};
}

// Returns the tokens per second of sequences, from when all have a token until the first one ends.
StatusOr<double> DecodeRate(const std::vector<std::vector<double>>& arrivals) {
  double begin = 0, end = arrivals.at(0).back();
  for (const std::vector<double>& times : arrivals) {
    begin = std::max(begin, times.front());
    end = std::min(end, times.back());
  }
  if (begin >= end) {
    return Status(StatusCode::kInternal, "the sequences did not decode together",
                  "answers must be longer: " + Param("decode_steps"));
  }
  int64_t count = 0;
  for (const std::vector<double>& times : arrivals) {
    count += std::count_if(times.begin(), times.end(),
                           [&](double at) { return at > begin && at <= end; });
  }
  return static_cast<double>(count) / (end - begin);
}

std::vector<PlannedCall> SameLength(int sequences, int answer_tokens, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<PlannedCall> calls(sequences);
  for (PlannedCall& call : calls) {
    call.path = "/completions";
    call.body = RandomPromptBody("model", kPromptTokens, answer_tokens, &random);
  }
  return calls;
}

// The cost of one way to run requests.
struct Cost {
  double tokens_per_second = 0;
  double cpu_seconds = 0;  // CPU time of the engine's thread, including prompts
};

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs on the engine's thread.
StatusOr<double> EngineRate(Engine& engine, int sequences, int answer_tokens, int seed) {
  engine.ClearPrefixCache();
  std::map<int64_t, std::vector<double>> arrivals;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < sequences; ++i) {
    Request request = MakeBenchRequest(engine, kPromptTokens, answer_tokens, seed + i);
    KU_ASSIGN_OR_RETURN(const int64_t id, engine.Add(std::move(request)));
    arrivals[id];
  }
  while (engine.HasWork()) {
    for (const TokenEvent& event : engine.Step()) {
      if (event.token.has_value()) arrivals.at(event.request).push_back(SecondsSince(begin));
      if (event.finish != FinishReason::kNone)
        KU_RETURN_IF_ERROR(engine.Take(event.request).status());
    }
  }
  std::vector<std::vector<double>> all;
  all.reserve(arrivals.size());
  for (auto& [id, times] : arrivals) all.push_back(std::move(times));
  return DecodeRate(all);
}

StatusOr<Cost> CostAlone(BenchServer& server, int sequences, int answer_tokens, int seed) {
  StatusOr<double> rate = 0.0;
  double cpu = 0;
  server.Call([&](Engine& engine) {
    const double before = ThreadSeconds();
    rate = EngineRate(engine, sequences, answer_tokens, seed);
    cpu = ThreadSeconds() - before;
  });
  KU_RETURN_IF_ERROR(rate.status());
  return Cost{*rate, cpu};
}

StatusOr<Cost> CostServed(BenchServer& server, HttpClient& client, int sequences, int answer_tokens,
                          int seed) {
  double before = 0, after = 0;
  server.Call([&](Engine& engine) {
    engine.ClearPrefixCache();
    before = ThreadSeconds();
  });
  std::vector<std::vector<double>> all;
  for (const CallTimes& call : RunLoad(client, SameLength(sequences, answer_tokens, seed), 0, {})) {
    if (!call.ok()) return Status(StatusCode::kInternal, "an answer failed: " + call.error);
    std::vector<double>& times = all.emplace_back();
    for (const Arrival& arrival : call.arrivals) {
      times.insert(times.end(), arrival.tokens, arrival.seconds);
    }
  }
  server.Call([&](Engine&) { after = ThreadSeconds(); });
  KU_ASSIGN_OR_RETURN(const double rate, DecodeRate(all));
  return Cost{rate, after - before};
}

EngineConfig ConfigOfServer(EngineConfig config, int sequences, int context) {
  config.need_tokenizer = true;
  config.prefix_cache = true;
  config.max_num_seqs = sequences;
  config.max_context = context;
  const int pages = (context + config.page_size - 1) / config.page_size;
  if (!config.num_blocks.has_value()) config.num_blocks = sequences * pages;
  return config;
}

Status BenchBatch(BenchServer& server, HttpClient& client, int batch, const Workload& w,
                  Report* report) {
  std::vector<double> alone, milliseconds, ratios, cpu_ratios;
  for (int r = 0; r <= w.repetitions; ++r) {
    KU_ASSIGN_OR_RETURN(const Cost direct, CostAlone(server, batch, w.steps, r * batch));
    KU_ASSIGN_OR_RETURN(const Cost through, CostServed(server, client, batch, w.steps, r));
    if (r == 0) continue;  // warm-up: touches memory for the first time
    alone.push_back(direct.tokens_per_second);
    milliseconds.push_back(1e3 * batch / through.tokens_per_second);
    ratios.push_back(through.tokens_per_second / direct.tokens_per_second);
    cpu_ratios.push_back(through.cpu_seconds / direct.cpu_seconds);
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  const Spread cost = SpreadOf(milliseconds);
  report->Add(Line()
                  .Key("batch", batch)
                  .Cost("ms", cost)
                  .Figure("tokens_per_s", 1e3 * batch / cost.median)
                  .Figure("engine_tokens_per_s", Median(alone))
                  .Share("ratio", Median(ratios), 2)
                  .Share("least", *least, 2)
                  .Share("most", *most, 2)
                  .Share("engine_cpu", Median(cpu_ratios), 2));
  return OkStatus();
}

}  // namespace

Status BenchServe(const ServeOptions& options, Report* report) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<HttpClient> client, HttpClient::Open(options.url));
  const HttpHeaders headers = KeyHeaders();
  KU_ASSIGN_OR_RETURN(const std::string model, ServedModelName(*client, headers));
  KU_ASSIGN_OR_RETURN(const std::vector<PlannedCall> plan, PlanLoad(options.load, model));
  return ReportLoad(options, RunLoad(*client, plan, options.load.concurrency, headers), report);
}

Status BenchServe(ServeOptions options, EngineConfig config, OpenedModel model, int sequences,
                  Report* report) {
  KU_ASSIGN_OR_RETURN(const std::vector<PlannedCall> plan, PlanLoad(options.load, ""));
  int context = 0;
  for (const PlannedCall& call : plan) {
    context = std::max(context, call.tokens > 0 ? call.tokens : kMoreContext);
  }
  config.max_context = context;
  KU_ASSIGN_OR_RETURN(context, Engine::MaxContext(config, model));
  KU_ASSIGN_OR_RETURN(
      const std::unique_ptr<BenchServer> server,
      BenchServer::Start(ConfigOfServer(std::move(config), sequences, context), std::move(model)));
  PrintDevice(server->engine(), report);
  options.url = server->url();
  return BenchServe(options, report);
}

Status BenchServerCost(EngineConfig config, OpenedModel model, const Workload& w, Report* report) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<BenchServer> server,
                      BenchServer::Start(ConfigOfServer(std::move(config), w.LargestBatch(),
                                                        kPromptTokens + w.steps),
                                         std::move(model)));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<HttpClient> client, HttpClient::Open(server->url()));
  PrintDevice(server->engine(), report);
  for (const int batch : w.batches) {
    KU_RETURN_IF_ERROR(BenchBatch(*server, *client, batch, w, report));
  }
  return OkStatus();
}

}  // namespace kuiper::tools
