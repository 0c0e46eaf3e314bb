#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "demo/chat.h"
#include "demo/flag_table.h"

namespace kuiper::demo {
namespace {

// The parameters of a request, by the name of the flag. False: there is no such parameter.
bool Store(const std::string& name, const std::string& value, Generation* g) {
  const float number = static_cast<float>(std::strtod(value.c_str(), nullptr));
  const int count = static_cast<int>(std::strtol(value.c_str(), nullptr, 10));
  if (name == "temp") {
    g->sampling.temperature = number;
  } else if (name == "top-k") {
    g->sampling.top_k = count;
  } else if (name == "top-p") {
    g->sampling.top_p = number;
  } else if (name == "min-p") {
    g->sampling.min_p = number;
  } else if (name == "repetition-penalty") {
    g->sampling.repetition_penalty = number;
  } else if (name == "presence-penalty") {
    g->sampling.presence_penalty = number;
  } else if (name == "frequency-penalty") {
    g->sampling.frequency_penalty = number;
  } else if (name == "seed") {
    g->sampling.seed = std::strtoull(value.c_str(), nullptr, 10);
  } else if (name == "max-tokens") {
    g->max_tokens = count;
  } else if (name == "reasoning-budget") {
    g->reasoning_budget = count;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Status SetParameter(const std::string& name, const std::string& spelled, const std::string& value,
                    Generation* generation) {
  std::string checked = value;
  if (const FlagSpec* flag = FindFlag(name); flag != nullptr) {
    KU_ASSIGN_OR_RETURN(checked, CheckFlagValue(*flag, spelled, value));
  }
  if (Store(name, checked, generation)) return OkStatus();
  return Status(StatusCode::kInvalidArgument, spelled + ": there is no such parameter");
}

Status ApplySettings(const std::string& assignments, Generation* generation) {
  Generation changed = *generation;
  std::istringstream words(assignments);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      return Status(StatusCode::kInvalidArgument, "/set: '" + word + "' is not NAME=VALUE");
    }
    std::string name = word.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    for (const FlagAlias& alias : FlagAliases()) {
      if (name == alias.alias) name = alias.name;
    }
    const Status set = SetParameter(name, "/set " + name, word.substr(equals + 1), &changed);
    if (!set.ok()) return Status(set.code(), set.message(), "/set alone lists the parameters");
  }
  *generation = changed;
  return OkStatus();
}

std::string DescribeSettings(const Generation& g) {
  const SamplingParams& s = g.sampling;
  char text[400];
  std::snprintf(text, sizeof(text),
                "temp=%g top_k=%d top_p=%g min_p=%g repetition_penalty=%g presence_penalty=%g "
                "frequency_penalty=%g seed=%llu max_tokens=%d reasoning_budget=%d",
                s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.presence_penalty,
                s.frequency_penalty, static_cast<unsigned long long>(s.seed), g.max_tokens,
                g.reasoning_budget);
  return text;
}

}  // namespace kuiper::demo
