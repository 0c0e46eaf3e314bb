#include "kuiper/server/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kuiper {
namespace {

const std::vector<double> kSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                      0.75,  1,     2.5,  5,    7.5,  10,   20,   40,  80,   160};
const std::vector<double> kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                     500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

// Escapes quotes, backslashes and line breaks for a label's value.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string(1, c);
  }
  return escaped;
}

// Collects metric families: help and type once, then the samples.
class Writer {
 public:
  Writer(std::string prefix, std::string labels)
      : prefix_(std::move(prefix)), labels_(std::move(labels)) {}

  void Gauge(const char* name, const char* help, double value) {
    Family(name, help, "gauge");
    Sample(name, "", value);
  }
  void Counter(const char* name, const char* help, double value) {
    Family(name, help, "counter");
    Sample(name, "", value);
  }
  template <typename Map>
  void Counters(const char* name, const char* help, const char* label, const Map& values) {
    Family(name, help, "counter");
    for (const auto& [key, value] : values) Sample(name, LabelOf(label, key), value);
  }
  void Add(const char* name, const char* help, const Histogram& histogram) {
    Family(name, help, "histogram");
    text_ += histogram.Text(prefix_ + name, labels_);
  }
  void Info(const char* name, const char* help, const std::string& labels) {
    Family(name, help, "gauge");
    Sample(name, labels, 1);
  }
  std::string Take() { return std::move(text_); }

 private:
  static std::string LabelOf(const char* label, const std::string& value) {
    return std::string(label) + "=\"" + Escaped(value) + "\"";
  }
  static std::string LabelOf(const char* label, int value) {
    return LabelOf(label, std::to_string(value));
  }
  void Family(const char* name, const char* help, const char* type) {
    text_ +=
        "# HELP " + prefix_ + name + " " + help + "\n# TYPE " + prefix_ + name + " " + type + "\n";
  }
  void Sample(const char* name, const std::string& labels, double value) {
    text_ += prefix_ + name + "{" + labels_ + (labels.empty() ? "" : "," + labels) + "} " +
             Number(value) + "\n";
  }

  const std::string prefix_, labels_;
  std::string text_;
};

}  // namespace

void Histogram::Add(double value, int64_t times) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[bound - bounds_.begin()] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

std::string Histogram::Text(const std::string& name, const std::string& labels) const {
  std::string text;
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? Number(bounds_[i]) : "+Inf";
    text.append(name).append("_bucket{").append(labels).append(",le=\"").append(bound);
    text.append("\"} ").append(std::to_string(below)).append("\n");
  }
  return text + name + "_sum{" + labels + "} " + Number(sum_) + "\n" + name + "_count{" + labels +
         "} " + std::to_string(count_) + "\n";
}

Metrics::Metrics()
    : time_to_first_token(kSeconds),
      inter_token_latency(kSeconds),
      request_latency(kSeconds),
      queue_time(kSeconds),
      prefill_time(kSeconds),
      decode_time(kSeconds),
      prompt_length(kTokens),
      generation_length(kTokens),
      step_tokens(kTokens),
      hand_over(kSeconds) {}

int Metrics::SecondsToWait() const {
  constexpr double kMost = 60;
  if (request_latency.count() == 0) return 1;
  const double mean = request_latency.sum() / static_cast<double>(request_latency.count());
  return static_cast<int>(std::clamp(std::ceil(mean), 1.0, kMost));
}

std::string Metrics::Text(const std::string& prefix, const std::string& model) const {
  Writer w(prefix + ":", "model_name=\"" + Escaped(model) + "\"");
  w.Gauge("num_requests_running", "Requests that have a token", num_running);
  w.Gauge("num_requests_waiting", "Requests that wait for their first token", num_waiting);
  w.Gauge("kv_cache_usage_perc", "Share of the KV cache in use, 1 is all",
          kv.pages_total > 0 ? static_cast<double>(kv.pages_used) / kv.pages_total : 0);
  w.Counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache",
            static_cast<double>(kv.tokens_requested));
  w.Counter("prefix_cache_hits_total", "Prompt tokens found there",
            static_cast<double>(kv.tokens_hit));
  w.Counter("num_preemptions_total", "Requests that had to wait for others",
            static_cast<double>(kv.preempted_recompute + kv.preempted_swap));
  w.Counter("prompt_tokens_total", "Prompt tokens of answered requests",
            static_cast<double>(prompt_tokens));
  w.Counter("generation_tokens_total", "Generated tokens", static_cast<double>(generation_tokens));
  w.Counters("request_success_total", "Answers by why they ended", "finished_reason", finished);
  w.Counter("requests_aborted_total", "Requests whose clients went away",
            static_cast<double>(aborted));
  w.Counter("slow_readers_total", "Connections ended because their clients did not read",
            static_cast<double>(slow_readers));
  w.Counter("picture_pixels_decoded_total", "Pixels of pictures that were decoded",
            static_cast<double>(pixels_decoded));
  w.Counter("picture_decodings_cancelled_total",
            "Requests whose clients went away before their pictures were decoded",
            static_cast<double>(decodings_cancelled));
  w.Counters("http_requests_total", "Answers by their status", "status", answers);
  w.Gauge("http_connections", "Open connections", num_connections);
  w.Gauge("http_body_bytes", "Bytes of bodies that arrive", static_cast<double>(num_body_bytes));
  w.Counter("engine_steps_total", "Steps of the engine", static_cast<double>(num_steps));
  w.Add("time_to_first_token_seconds", "From the request to its first token", time_to_first_token);
  w.Add("inter_token_latency_seconds", "Between tokens", inter_token_latency);
  w.Add("e2e_request_latency_seconds", "From the request to its end", request_latency);
  w.Add("request_queue_time_seconds", "In the engine's queue", queue_time);
  w.Add("request_prefill_time_seconds", "Until the first token", prefill_time);
  w.Add("request_decode_time_seconds", "From the first token to the last", decode_time);
  w.Add("request_prompt_tokens", "Tokens of prompts", prompt_length);
  w.Add("request_generation_tokens", "Tokens of answers", generation_length);
  w.Add("iteration_tokens_total", "Tokens handed over by a step", step_tokens);
  w.Add("hand_over_seconds", "From the end of a step to what it wrote", hand_over);
  w.Info("cache_config_info", "The KV cache",
         "block_size=\"" + std::to_string(kv.page_size) + "\",num_gpu_blocks=\"" +
             std::to_string(kv.pages_total) + "\"");
  return w.Take();
}

}  // namespace kuiper
