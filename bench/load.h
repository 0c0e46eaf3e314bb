// What a load is made of: when each request is sent, and what it asks for. The same seed gives the
// same load.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper::tools {

// How long prompts or answers are, in tokens.
class Lengths {
 public:
  // "128", "uniform:64,256", or "lognormal:MEDIAN,SIGMA,MAX" with the standard deviation of the
  // logarithm. kInvalidArgument, naming the parameter.
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
  double request_rate = 1;  // a second, in a Poisson process; 0: all at once
  int requests = 100;       // that are measured
  double duration = 0;      // seconds after which none is sent any more; 0: any
  int warm_up = 0;          // requests before those
  int concurrency = 0;      // at most so many at the same time; 0: any number
  uint64_t seed = 1;
  std::string prompt_lengths = "128", answer_lengths = "64";
  std::string input;  // lines of a batch file instead; "": none
};

struct PlannedCall {
  double seconds = 0;  // from the begin of the load
  bool is_warm_up = false;
  std::string path;  // without /v1
  std::string body;
  int tokens = 0;  // of prompt and answer, at most; 0: not known
};

// `model` is what the bodies call the model.
StatusOr<std::vector<PlannedCall>> PlanLoad(const LoadSpec& spec, const std::string& model);

// A stream of an answer of so many tokens to so many random ones.
std::string RandomPromptBody(const std::string& model, int prompt_tokens, int answer_tokens,
                             std::mt19937_64* random);

}  // namespace kuiper::tools
