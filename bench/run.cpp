#include "bench/run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "kuiper/base/clock.h"

namespace kuiper::tools {
namespace {

constexpr int kGroup = 4;  // steps between two bursts

struct Rows {
  double count = 0;
  double keys = 0;  // keys that the rows attend to, in total
};

// Returns the floating-point operations of a step; multiply-adds count as two. Only `outputs` go
// through the LM head, and through the last layer after the keys and values of all rows are stored.
double Flops(const DecoderConfig& d, const Rows& all, const Rows& outputs) {
  const double hidden = d.hidden;
  const auto behind_qkv = [&](const Rows& rows) {
    return (hidden * d.q_size() + 3 * hidden * d.intermediate) * rows.count +
           2.0 * d.q_size() * rows.keys;
  };
  return 2 * (d.layers * hidden * d.qkv_size() * all.count + (d.layers - 1) * behind_qkv(all) +
              behind_qkv(outputs) + outputs.count * hidden * d.vocab);
}

double KvBytesPerToken(const Engine& engine) {
  const DecoderConfig& d = engine.model_config().decoder;
  return 2.0 * d.layers * d.kv_heads *
         static_cast<double>(engine.kv_format().row_bytes(d.head_dim));
}

StatusOr<Row> Prefill(Engine& engine, Machine& machine, const Workload& w, int tokens) {
  const double n = tokens, chunks = std::ceil(n / w.StepTokens());
  // Each chunk reads the weights, and the cache content so far.
  const Work work = {
      chunks * (static_cast<double>(engine.weight_bytes_per_token()) +
                KvBytesPerToken(engine) * (n + std::min<double>(n, w.StepTokens())) / 2),
      Flops(engine.model_config().decoder, {n, n * (n + 1) / 2}, {1, n})};
  int seed = 0;
  KU_ASSIGN_OR_RETURN(
      const Measurement m, Measure(machine, work, w.repetitions, 1, [&](int) -> StatusOr<double> {
        KU_ASSIGN_OR_RETURN(const Completion c,
                            engine.Generate(MakeBenchRequest(engine, tokens, 1, seed++)));
        return c.prefill_ms / 1e3;
      }));
  return Row{"prefill", tokens, 1, m};
}

Status EndedEarly() {
  return Status(StatusCode::kInternal, "a sequence stopped decoding before the measurement's end");
}

// Returns the steps between two bursts; without bursts, steps follow each other as in real use.
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
  const Rows rows{static_cast<double>(batch), kv_tokens};
  const Work work = {
      static_cast<double>(engine.weight_bytes_per_token()) + KvBytesPerToken(engine) * kv_tokens,
      Flops(engine.model_config().decoder, rows, rows)};
  KU_ASSIGN_OR_RETURN(const Measurement m, MeasureSteps(machine, work, w, [&](int n) {
                        return StepAll(engine, sequences, n);
                      }));
  AbortAll(engine, sequences);
  return Row{"decode", context, batch, m};
}

}  // namespace

StatusOr<Measurement> Measure(Machine& machine, const Work& work, int groups, int group,
                              const std::function<StatusOr<double>(int n)>& run) {
  std::vector<double> seconds, bandwidths, peaks, of_memory, of_arithmetic, of_roof;
  double joules = 0;
  for (int g = 0; g <= groups; ++g) {
    double bandwidth = work.bytes > 0 ? machine.Bandwidth() / 2 : 0;
    double peak = work.flops > 0 ? machine.Peak().value_or(0) / 2 : 0;
    const double before = machine.Joules().value_or(0);
    KU_ASSIGN_OR_RETURN(const double elapsed, run(group));
    const double drawn = machine.Joules().value_or(0) - before;
    if (work.flops > 0) peak += machine.Peak().value_or(0) / 2;
    if (work.bytes > 0) bandwidth += machine.Bandwidth() / 2;
    if (g == 0) continue;  // warm-up: touches memory for the first time
    const double s = elapsed / group;
    const double memory = bandwidth > 0 ? work.bytes / bandwidth / s : 0;
    const double arithmetic = peak > 0 ? work.flops / peak / s : 0;
    joules += drawn;
    seconds.push_back(s);
    if (bandwidth > 0) {
      bandwidths.push_back(bandwidth);
      of_memory.push_back(memory);
    }
    if (peak > 0) {
      peaks.push_back(peak);
      of_arithmetic.push_back(arithmetic);
    }
    if (bandwidth > 0 || peak > 0) of_roof.push_back(std::max(memory, arithmetic));
  }
  Measurement m{work,
                SpreadOf(seconds),
                SpreadOf(bandwidths),
                SpreadOf(peaks),
                SpreadOf(of_memory),
                SpreadOf(of_arithmetic),
                SpreadOf(of_roof),
                {}};
  if (machine.Joules().has_value()) m.joules = joules / groups / group;
  return m;
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values.at(std::max<size_t>(rank, 1) - 1);
}

StatusOr<Measurement> MeasureSteps(Machine& machine, const Work& work, const Workload& w,
                                   const std::function<Status(int n)>& steps) {
  return Measure(machine, work, NumGroups(machine, w), GroupOf(machine, w),
                 [&](int n) -> StatusOr<double> {
                   const Clock::time_point begin = Clock::now();
                   KU_RETURN_IF_ERROR(steps(n));
                   return SecondsSince(begin);
                 });
}

void AddRates(const Measurement& m, Line* line) {
  const auto known = [](const Spread& s, double factor) {
    return s.count > 0 ? std::optional<double>(s.median * factor) : std::nullopt;
  };
  if (m.work.bytes > 0) {
    line->Figure("gbps", m.bytes_per_second() / 1e9)
        .Figure("machine_gbps", known(m.bandwidth, 1e-9))
        .Share("of_memory", known(m.of_memory, 1));
  }
  if (m.work.flops > 0) {
    line->Figure("gflops", m.flops_per_second() / 1e9)
        .Figure("machine_gflops", known(m.peak, 1e-9))
        .Share("of_peak", known(m.of_arithmetic, 1));
  }
  line->Share(kOfRoof, known(m.of_roof, 1));
}

void AddEnergy(const Measurement& m, double tokens, Line* line) {
  if (m.joules) line->Figure("joules_per_token", *m.joules / tokens, 4);
}

double Row::tokens_per_second() const {
  return (phase == "prefill" ? tokens : batch) / m.seconds.median;
}

std::string PageName(bool paged, int page_size) {
  return paged ? std::to_string(page_size) : "row";
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
  // Until all have their first token, the others take one token each of a step, and prompts take
  // the remainder.
  const int64_t prefill_steps = int64_t{batch} * context / (StepTokens() - batch + 1) + 1;
  const int group = std::max(steps, kGroup);
  const int measured = group * (repetitions + 1);  // one more group for warm-up
  // One step is scheduled ahead, and none is the last.
  return static_cast<int>(prefill_steps) + measured + 2;
}

void PrintDevice(const Engine& engine, Report* report) {
  const EngineConfig& config = engine.config();
  report->Set("device", engine.device_description());
  report->Set("dtype", DTypeName(engine.weight_type()));
  report->Set("kv_dtype", engine.kv_format().name());
  report->Set("layout", config.paged ? "paged" : "contiguous");
  report->Set("recorded", config.use_graph);
  report->Print("%s, %s, %s KV cache of %s%s\n", engine.device_description().c_str(),
                DTypeName(engine.weight_type()), config.paged ? "paged" : "contiguous",
                engine.kv_format().name(), config.use_graph ? ", recorded decode step" : "");
}

Request MakeBenchRequest(const Engine& engine, int tokens, int new_tokens, int seed) {
  Request request;
  const ModelConfig& model = engine.model_config();
  // Image and video placeholder tokens would need images, so exclude them.
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

Status MeasureRows(Engine& engine, Machine& machine, const Workload& w,
                   const std::function<void(const Row&)>& on_row) {
  const KvStats kv = engine.kv_stats();
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
      on_row(row);
    }
  }
  for (const int tokens : w.prompts) {
    KU_ASSIGN_OR_RETURN(const Row row, Prefill(engine, machine, w, tokens));
    on_row(row);
  }
  return OkStatus();
}

}  // namespace kuiper::tools
