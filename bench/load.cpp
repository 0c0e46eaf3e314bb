#include "bench/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/line_reader.h"
#include "kuiper/base/text.h"
#include "kuiper/base/to_json.h"

namespace kuiper::tools {
namespace {

using Json = nlohmann::ordered_json;

// Every tokenizer has tokens for the 256 bytes; in most, they come first.
constexpr int kFirstId = 4, kLastId = 255;
constexpr int kMaxTokens = 1 << 20;

// Parses "a,b" into {a, b}; empty if a part is not a number.
std::vector<double> Numbers(const std::string& text) {
  std::vector<double> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    char* rest = nullptr;
    const double value = std::strtod(word.c_str(), &rest);
    if (word.empty() || *rest != '\0' || !std::isfinite(value)) return {};
    numbers.push_back(value);
    at = end + 1;
  }
  return numbers;
}

bool IsLength(double value) {
  return value >= 1 && value <= kMaxTokens && value == std::floor(value);
}

// Returns the request body for a line of a batch file, with streaming and usage turned on.
StatusOr<PlannedCall> CallOf(const std::string& line, int64_t number, const std::string& model) {
  const std::string name = "line " + std::to_string(number);
  KU_ASSIGN_OR_RETURN(const JsonNode json, ParseJson(line, StatusCode::kInput, name));
  if (!json.IsObject()) return Status(StatusCode::kInput, name + " is no object of JSON");
  const JsonNode* nested = json.Find("body");
  Json body = ToJson(nested != nullptr && nested->IsObject() ? *nested : json);
  for (const char* key : {"custom_id", "method", "url"}) body.erase(key);
  PlannedCall call;
  call.path = body.contains("messages") ? "/chat/completions" : "/completions";
  body["model"] = model;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  call.body = body.dump();
  return call;
}

StatusOr<std::vector<PlannedCall>> CallsOf(const std::string& path, const std::string& model) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Status(StatusCode::kInput, "cannot read " + path);
  LineReader lines(fd);
  std::vector<PlannedCall> calls;
  Status status;
  int64_t number = 0;
  while (const std::optional<std::string> line = lines.Next()) {
    ++number;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    StatusOr<PlannedCall> call = CallOf(*line, number, model);
    if (!call.ok()) {
      status = call.status();
      break;
    }
    calls.push_back(std::move(*call));
  }
  close(fd);
  KU_RETURN_IF_ERROR(status);
  KU_RETURN_IF_ERROR(lines.status());
  if (calls.empty()) return Status(StatusCode::kInput, path + " holds no request");
  return calls;
}

}  // namespace

StatusOr<Lengths> Lengths::Parse(const std::string& text, const char* parameter) {
  const Status bad(StatusCode::kInvalidArgument,
                   Param(parameter) + ": " + Quoted(text) + " is no distribution of lengths",
                   "128, uniform:64,256, or lognormal:MEDIAN,SIGMA,MAX");
  const size_t colon = text.find(':');
  const std::string kind = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::vector<double> numbers =
      Numbers(colon == std::string::npos ? text : text.substr(colon + 1));
  Lengths lengths;
  if (kind.empty() && numbers.size() == 1) {
    if (!IsLength(numbers[0])) return bad;
    lengths.smallest_ = lengths.largest_ = static_cast<int>(numbers[0]);
    return lengths;
  }
  if (kind == "uniform" && numbers.size() == 2) {
    if (!IsLength(numbers[0]) || !IsLength(numbers[1]) || numbers[0] > numbers[1]) return bad;
    lengths.kind_ = Kind::kUniform;
    lengths.smallest_ = static_cast<int>(numbers[0]);
    lengths.largest_ = static_cast<int>(numbers[1]);
    return lengths;
  }
  if (kind != "lognormal" || numbers.size() != 3) return bad;
  const bool is_right = numbers[0] >= 1 && numbers[1] >= 0 && IsLength(numbers[2]);
  if (!is_right || numbers[0] > numbers[2]) return bad;
  lengths.kind_ = Kind::kLognormal;
  lengths.median_ = numbers[0];
  lengths.sigma_ = numbers[1];
  lengths.largest_ = static_cast<int>(numbers[2]);
  return lengths;
}

int Lengths::Draw(std::mt19937_64* random) const {
  if (kind_ == Kind::kFixed) return largest_;
  if (kind_ == Kind::kUniform) {
    return std::uniform_int_distribution<int>(smallest_, largest_)(*random);
  }
  const double value = std::lognormal_distribution<double>(std::log(median_), sigma_)(*random);
  return static_cast<int>(std::clamp(std::round(value), 1.0, double(largest_)));
}

std::string RandomPromptBody(const std::string& model, int prompt_tokens, int answer_tokens,
                             std::mt19937_64* random) {
  std::uniform_int_distribution<int> id(kFirstId, kLastId);
  Json prompt = Json::array();
  for (int i = 0; i < prompt_tokens; ++i) prompt.push_back(id(*random));
  return Json{{"model", model},
              {"prompt", std::move(prompt)},
              {"max_tokens", answer_tokens},
              {"ignore_eos", true},
              {"temperature", 0},
              {"stream", true},
              {"stream_options", {{"include_usage", true}}},
              {"return_token_ids", true}}
      .dump();
}

StatusOr<std::vector<PlannedCall>> PlanLoad(const LoadSpec& spec, const std::string& model) {
  KU_ASSIGN_OR_RETURN(const Lengths prompts, Lengths::Parse(spec.prompt_lengths, "prompt_lengths"));
  KU_ASSIGN_OR_RETURN(const Lengths answers, Lengths::Parse(spec.answer_lengths, "answer_lengths"));
  std::vector<PlannedCall> lines;
  if (!spec.input.empty()) {
    KU_ASSIGN_OR_RETURN(lines, CallsOf(spec.input, model));
  }
  std::mt19937_64 random(spec.seed);
  std::exponential_distribution<double> pause(spec.request_rate > 0 ? spec.request_rate : 1);
  std::vector<PlannedCall> plan;
  double seconds = 0;
  for (int i = 0; i < spec.warm_up + spec.requests; ++i) {
    PlannedCall call;
    if (lines.empty()) {
      const int prompt = prompts.Draw(&random), answer = answers.Draw(&random);
      call.path = "/completions";
      call.body = RandomPromptBody(model, prompt, answer, &random);
      call.tokens = prompt + answer;
    } else {
      call = lines[i % lines.size()];
    }
    call.is_warm_up = i < spec.warm_up;
    if (spec.request_rate > 0) seconds += pause(random);
    call.seconds = seconds;
    if (spec.duration > 0 && seconds > spec.duration) break;
    plan.push_back(std::move(call));
  }
  return plan;
}

}  // namespace kuiper::tools
