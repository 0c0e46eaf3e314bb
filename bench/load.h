// The requests of a load: when each is sent, and its body. The same seed gives the same load.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper::tools {

// A distribution of prompt or answer lengths, in tokens.
class Lengths {
 public:
  // Parses "128", "uniform:64,256", or "lognormal:MEDIAN,SIGMA,MAX", where SIGMA is the standard
  // deviation of the logarithm. Returns kInvalidArgument, naming the parameter.
  static StatusOr<Lengths> Parse(const std::string& text, const char* parameter);

  int Draw(std::mt19937_64* random) const;
  int largest() const { return largest_; }

 private:
  enum class Kind { kFixed, kUniform, kLognormal };

  Kind kind_ = Kind::kFixed;
  int smallest_ = 1, largest_ = 1;
  double median_ = 1, sigma_ = 0;
};

struct LoadSpec {
  double request_rate = 1;  // per second, in a Poisson process; 0: all at once
  int requests = 100;       // measured requests
  double duration = 0;      // seconds after which no more requests are sent; 0: no limit
  int warm_up = 0;          // requests before the measured ones
  int concurrency = 0;      // maximum number of requests at the same time; 0: no limit
  uint64_t seed = 1;
  std::string prompt_lengths = "128", answer_lengths = "64";
  std::string input;  // file with batch lines to send instead; "": none
};

struct PlannedCall {
  double seconds = 0;  // from the beginning of the load
  bool is_warm_up = false;
  std::string path;  // without /v1
  std::string body;
  int tokens = 0;  // maximum of prompt plus answer; 0: unknown
};

// `model` is the model name in the bodies.
StatusOr<std::vector<PlannedCall>> PlanLoad(const LoadSpec& spec, const std::string& model);

// Returns the body of a streaming request with prompt_tokens random tokens and an answer of
// answer_tokens tokens.
std::string RandomPromptBody(const std::string& model, int prompt_tokens, int answer_tokens,
                             std::mt19937_64* random);

}  // namespace kuiper::tools
