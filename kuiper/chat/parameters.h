// The only table of the parameters of a request: names, ranges, defaults and help texts. It defines
// the flags, the parameters of /set, and the fields of bodies.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/chat/variable.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/request.h"

namespace kuiper {

struct Parameter {
  std::string name;  // used in bodies and in generation_config.json
  std::function<Variable(Request&)> of;
  Limits limits;
  std::string help;
  std::string typed_name = name;   // used in flags and /set
  bool of_sampling = false;        // a member of SamplingParams
  bool only_for_sampling = false;  // has no effect on greedy decoding
  bool in_bodies = true;
  bool in_chats = false;  // may change from turn to turn

  // kInvalidArgument; its message names the parameter as `spelled`.
  Status Set(Request* request, const std::string& spelled, const std::string& text) const {
    return SetVariable(of(*request), limits, spelled, text);
  }
};

// Help texts may contain parameter names (Param).
const std::vector<Parameter>& Parameters();
// Finds a parameter by either name; nullptr if there is none.
const Parameter* FindParameter(std::string_view name);

// If the model's file does not say whether to sample, adds sampling values that keep small models
// from looping in chats, and returns true.
bool SamplesByDefault(GenerationConfig* config);
// Applies the model's generation_config.json, except to parameters for which `given` is true.
void ApplyGenerationConfig(const GenerationConfig& config,
                           const std::function<bool(const Parameter&)>& given, Request* request);

}  // namespace kuiper
