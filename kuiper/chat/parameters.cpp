#include "kuiper/chat/parameters.h"

#include <map>
#include <utility>

namespace kuiper {
namespace {

template <typename T>
Parameter OfRequest(const char* name, T Request::*field, Limits limits, std::string help) {
  return {name, [field](Request& r) -> Variable { return &(r.*field); }, limits, std::move(help)};
}

Parameter InChats(Parameter parameter) {
  parameter.in_chats = true;
  return parameter;
}

Parameter NotInBodies(Parameter parameter) {
  parameter.in_bodies = false;
  return parameter;
}

Parameter Typed(const char* typed_name, Parameter parameter) {
  parameter.typed_name = typed_name;
  return parameter;
}

template <typename T>
Parameter Sampling(const char* name, T SamplingParams::*field, Limits limits, std::string help) {
  Parameter parameter = {name, [field](Request& r) -> Variable { return &(r.sampling.*field); },
                         limits, std::move(help)};
  parameter.of_sampling = true;
  return InChats(std::move(parameter));
}

Parameter NeedsChance(Parameter parameter) {
  parameter.only_for_sampling = true;
  return parameter;
}

std::vector<Parameter> MakeTable() {
  return {
      Typed("temp", Sampling("temperature", &SamplingParams::temperature, {0, 100},
                             "temperature, 0 = greedy")),
      NeedsChance(Sampling("top_k", &SamplingParams::top_k, {.min = -1},
                           "sample among the k most likely tokens, 0 and -1 = all")),
      NeedsChance(Sampling("top_p", &SamplingParams::top_p, {.max = 1, .above_min = true},
                           "sample among the most likely tokens of this total probability")),
      NeedsChance(Sampling("min_p", &SamplingParams::min_p, {0, 1},
                           "sample among tokens at least this likely, relative to the likeliest")),
      Sampling("repetition_penalty", &SamplingParams::repetition_penalty, {0.01, 100},
               "divides the logits of tokens seen before"),
      Sampling("presence_penalty", &SamplingParams::presence_penalty, {-2, 2},
               "subtracted from the logits of generated tokens"),
      Sampling("frequency_penalty", &SamplingParams::frequency_penalty, {-2, 2},
               "the same per occurrence"),
      Sampling("seed", &SamplingParams::seed, {.min = -1},
               "sampler seed; below 0 = random, printed with the output"),
      InChats(OfRequest("max_tokens", &Request::max_new_tokens, {.min = 1, .minus_one = INT32_MAX},
                        "tokens to generate at most; -1 = up to the end of the context")),
      OfRequest("min_tokens", &Request::min_new_tokens, {},
                "minimum tokens before the end of the sequence or " + Param("stop") +
                    " may end the answer"),
      InChats(
          OfRequest("reasoning_budget", &Request::reasoning_budget,
                    {.min = -1, .automatic = kAutoReasoningBudget},
                    "thinking tokens before </think> is forced, -1 = no limit, auto = half of " +
                        Param("max_tokens"))),
      InChats(OfRequest("stop", &Request::stop, {},
                        "end the answer before this string; may be repeated")),
      OfRequest("stop_token_ids", &Request::stop_token_ids, {},
                "ids of tokens that end the answer as the end-of-sequence token does"),
      OfRequest("logit_bias", &Request::logit_bias, {-100, 100},
                "added to the logits of these ids of tokens"),
      OfRequest("ignore_eos", &Request::ignore_eos, {}, "continue after the end-of-sequence token"),
      NotInBodies(OfRequest("logprobs", &Request::num_logprobs, {0, 20},
                            "alternatives per token in JSON output")),
      OfRequest("beam_width", &Request::beam_width, {1, 256},
                "answer by beam search with this many beams"),
      OfRequest("length_penalty", &Request::length_penalty, {-100, 100},
                "for beam search: above 0 favours long answers, below 0 short ones"),
      OfRequest("priority", &Request::priority, {-100, 100},
                "more is more urgent, and starts before requests that came earlier"),
      Typed("num_samples",
            OfRequest("n", &Request::num_samples, {1, 1024},
                      "answers to the prompt; answer i is that of " + Param("seed") + " + i")),
  };
}

}  // namespace

const std::vector<Parameter>& Parameters() {
  static const std::vector<Parameter> table = MakeTable();
  return table;
}

const Parameter* FindParameter(std::string_view name) {
  for (const Parameter& parameter : Parameters()) {
    if (name == parameter.name || name == parameter.typed_name) return &parameter;
  }
  return nullptr;
}

bool SamplesByDefault(GenerationConfig* config) {
  if (config->do_sample.has_value() || config->sampling.contains("temperature")) return false;
  config->sampling.insert({{"temperature", 0.8}, {"top_p", 0.95}, {"min_p", 0.05}});
  return true;
}

void ApplyGenerationConfig(const GenerationConfig& config,
                           const std::function<bool(const Parameter&)>& given, Request* request) {
  std::map<std::string, double> values = config.sampling;
  // If do_sample is false, decode greedily whatever the other fields say.
  const bool samples = config.do_sample.value_or(values.contains("temperature"));
  values["temperature"] = samples ? values.try_emplace("temperature", 1).first->second : 0;
  for (const Parameter& parameter : Parameters()) {
    const auto value = values.find(parameter.name);
    if (!parameter.of_sampling || value == values.end() || given(parameter)) continue;
    const Variable variable = parameter.of(*request);
    if (float* const* number = std::get_if<float*>(&variable)) {
      **number = static_cast<float>(value->second);
    } else if (int* const* count = std::get_if<int*>(&variable)) {
      **count = static_cast<int>(value->second);
    }
  }
}

}  // namespace kuiper
