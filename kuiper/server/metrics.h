// The server's metrics in Prometheus' text format, with vLLM's names. Written and read on the
// network thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"

namespace kuiper {

class Histogram {
 public:
  // Ascending upper bounds of the buckets; one more bucket follows the last bound.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void Add(double value, int64_t times = 1);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  // Returns the samples, each with `labels` ("model_name=\"a\"").
  std::string Text(const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0;
};

struct Metrics {
  Metrics();

  int num_running = 0, num_waiting = 0, num_connections = 0;
  KvStats kv;
  size_t num_body_bytes = 0;
  int64_t num_steps = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0;
  int64_t aborted = 0, slow_readers = 0;
  int64_t pixels_decoded = 0, decodings_cancelled = 0;
  std::map<std::string, int64_t> finished;  // by reason
  std::map<int, int64_t> answers;           // by HTTP status
  Histogram time_to_first_token, inter_token_latency, request_latency, queue_time, prefill_time,
      decode_time, prompt_length, generation_length, step_tokens, hand_over;

  // Estimates the seconds until a place is free from the mean request latency: 1 to 60.
  int SecondsToWait() const;
  // Returns all metrics, with names that begin with "prefix:".
  std::string Text(const std::string& prefix, const std::string& model) const;
};

}  // namespace kuiper
