#include "tools/kuiper_bench_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "kuiper/base/clock.h"

namespace kuiper::tools {
namespace {

constexpr int kGroup = 4;  // steps between two bursts

// Floating-point operations of a prompt: multiply-adds count as two, attention is causal, and only
// the last position goes through the head.
double PrefillFlops(const DecoderConfig& d, double tokens) {
  const double layer = static_cast<double>(d.hidden) * d.qkv_size() +
                       static_cast<double>(d.q_size()) * d.hidden + 3.0 * d.hidden * d.intermediate;
  const double attention = 2.0 * d.q_size() * tokens * (tokens + 1) / 2;
  return 2 * (d.layers * (layer * tokens + attention) + static_cast<double>(d.vocab) * d.hidden);
}

double KvBytesPerToken(const Engine& engine) {
  const DecoderConfig& d = engine.model_config().decoder;
  return 2.0 * d.layers * d.kv_heads *
         static_cast<double>(engine.kv_format().row_bytes(d.head_dim));
}

StatusOr<Row> Prefill(Engine& engine, Machine& machine, int tokens, int repetitions) {
  const double flops = PrefillFlops(engine.model_config().decoder, tokens);
  std::vector<double> seconds, peaks, ratios;
  for (int r = 0; r <= repetitions; ++r) {
    const double before = machine.Peak().value_or(0);
    KU_ASSIGN_OR_RETURN(const Completion c,
                        engine.Generate(MakeBenchRequest(engine, tokens, 1, r)));
    const double peak = (before + machine.Peak().value_or(0)) / 2;
    if (r == 0) continue;  // touches memory for the first time
    seconds.push_back(c.prefill_ms / 1e3);
    peaks.push_back(peak);
    ratios.push_back(peak > 0 ? flops / seconds.back() / peak : 0);
  }
  const double s = Median(seconds);
  return Row{"prefill",           tokens,        1, s * 1e3, tokens / s, flops / s / 1e9,
             Median(peaks) / 1e9, Median(ratios)};
}

Status EndedEarly() {
  return Status(StatusCode::kInternal, "a sequence stopped decoding before the measurement's end");
}

// Steps between two bursts; without bursts they follow each other as in real use.
int GroupOf(const Machine& machine, const Workload& w) {
  return machine.bursts() ? kGroup : std::max(w.steps, kGroup);
}

int NumGroups(const Machine& machine, const Workload& w) {
  return std::max(1, w.steps / GroupOf(machine, w)) * w.repetitions;
}

StatusOr<Row> Decode(Engine& engine, Machine& machine, const Workload& w, int context, int batch) {
  std::vector<Request> requests;
  requests.reserve(batch);
  for (int b = 0; b < batch; ++b) {
    requests.push_back(MakeBenchRequest(engine, context, w.NewTokens(context, batch), b));
  }
  KU_ASSIGN_OR_RETURN(const Decoding sequences, StartDecoding(engine, std::move(requests)));
  const int steps = GroupOf(machine, w) * (NumGroups(machine, w) + 1);
  const double kv_tokens = batch * (context + steps / 2.0) + sequences.generated;
  const double bytes =
      static_cast<double>(engine.weight_bytes_per_token()) + KvBytesPerToken(engine) * kv_tokens;
  KU_ASSIGN_OR_RETURN(const Reading r, MeasureReading(machine, bytes, w, [&](int n) {
                        return StepAll(engine, sequences, n);
                      }));
  AbortAll(engine, sequences);
  return Row{"decode",     context,           batch,  r.seconds * 1e3, batch / r.seconds,
             r.rate / 1e9, r.bandwidth / 1e9, r.ratio};
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values.at(std::max<size_t>(rank, 1) - 1);
}

StatusOr<Reading> MeasureReading(Machine& machine, double bytes, const Workload& w,
                                 const std::function<Status(int n)>& steps) {
  const int group = GroupOf(machine, w);
  std::vector<double> seconds, bandwidths, ratios;
  for (int g = 0; g <= NumGroups(machine, w); ++g) {
    const double before = machine.Bandwidth();
    const Clock::time_point begin = Clock::now();
    KU_RETURN_IF_ERROR(steps(group));
    const double s = SecondsSince(begin) / group;
    const double bandwidth = (before + machine.Bandwidth()) / 2;
    if (g == 0) continue;
    seconds.push_back(s);
    bandwidths.push_back(bandwidth);
    ratios.push_back(bytes / s / bandwidth);
  }
  return Reading{Median(seconds), bytes / Median(seconds), Median(bandwidths), Median(ratios)};
}

int Workload::LongestContext() const {
  return *std::max_element(contexts.begin(), contexts.end());
}

int Workload::LargestBatch() const {
  return *std::max_element(batches.begin(), batches.end());
}

int Workload::StepTokens() const {
  return std::max(chunk, 2 * LargestBatch());
}

int Workload::NewTokens(int context, int batch) const {
  // While one has no token yet the others take one each of a step, and prompts the rest.
  const int64_t prefill_steps = int64_t{batch} * context / (StepTokens() - batch + 1) + 1;
  const int group = std::max(steps, kGroup);
  const int measured = group * (repetitions + 1);         // the first group is to warm up
  return static_cast<int>(prefill_steps) + measured + 2;  // a step runs ahead, none is the last
}

Request MakeBenchRequest(const Engine& engine, int tokens, int new_tokens, int seed) {
  Request request;
  const ModelConfig& model = engine.model_config();
  // Pads of pictures need pictures.
  const int vocab = model.vision_tokens.has_value()
                        ? std::min(model.vision_tokens->image_pad, model.vision_tokens->video_pad)
                        : model.decoder.vocab;
  for (int64_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>((i * 7919 + int64_t{seed} * 104729 + 1) % vocab));
  }
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  return request;
}

StatusOr<Decoding> StartDecoding(Engine& engine, std::vector<Request> requests) {
  Decoding sequences;
  std::vector<int64_t>& ids = sequences.ids;
  for (Request& request : requests) {
    KU_ASSIGN_OR_RETURN(const int64_t id, engine.Add(std::move(request)));
    ids.push_back(id);
  }
  size_t running = 0;  // requests that have their first token
  std::vector<bool> started(ids.size(), false);
  while (running < ids.size()) {
    for (const TokenEvent& event : engine.Step()) {
      if (event.finish != FinishReason::kNone) return EndedEarly();
      ++sequences.generated;
      const size_t b = static_cast<size_t>(event.request - ids.front());
      if (started.at(b)) continue;
      started[b] = true;
      ++running;
    }
  }
  return sequences;
}

Status StepAll(Engine& engine, const Decoding& sequences, int steps) {
  for (int i = 0; i < steps; ++i) {
    const std::vector<TokenEvent> events = engine.Step();
    const bool goes_on = std::all_of(events.begin(), events.end(), [](const TokenEvent& event) {
      return event.finish == FinishReason::kNone;
    });
    if (!goes_on || events.size() != sequences.ids.size()) return EndedEarly();
  }
  return OkStatus();
}

void AbortAll(Engine& engine, const Decoding& sequences) {
  for (const int64_t id : sequences.ids) engine.Abort(id);
  while (engine.HasWork()) engine.Step();
  for (const int64_t id : sequences.ids) engine.Take(id).value();
}

StatusOr<std::vector<Row>> MeasureRows(Engine& engine, Machine& machine, const Workload& w) {
  const KvStats kv = engine.kv_stats();
  std::vector<Row> rows;
  for (const int context : w.contexts) {
    for (const int batch : w.batches) {
      const int64_t pages = (w.TokensOf(context, batch) + kv.page_size - 1) / kv.page_size;
      if (pages * batch > kv.pages_total) {
        std::fprintf(stderr,
                     "note: decoding %d x %d tokens is left out: no room for its KV cache\n", batch,
                     context);
        continue;
      }
      KU_ASSIGN_OR_RETURN(const Row row, Decode(engine, machine, w, context, batch));
      rows.push_back(row);
    }
  }
  for (const int tokens : w.prompts) {
    KU_ASSIGN_OR_RETURN(const Row row, Prefill(engine, machine, tokens, w.repetitions));
    rows.push_back(row);
  }
  return rows;
}

}  // namespace kuiper::tools
