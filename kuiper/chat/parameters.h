// The parameters of a request: their names, ranges, defaults and texts stand here and nowhere else.
// Flags, /set of a chat and the bodies of requests are made from this table.
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
  std::string name;  // in bodies, and in generation_config.json
  std::function<Variable(Request&)> of;
  Limits limits;
  std::string help;
  std::string typed_name = name;  // where people type it
  bool of_sampling = false;       // one of SamplingParams
  bool needs_chance = false;      // means nothing to greedy decoding
  bool in_bodies = true;
  bool in_chats = false;  // may change from turn to turn

  // kInvalidArgument, naming the parameter as `spelled`.
  Status Set(Request* request, const std::string& spelled, const std::string& text) const {
    return SetVariable(of(*request), limits, spelled, text);
  }
};

// Texts may hold names of parameters (Param).
const std::vector<Parameter>& Parameters();
// By either name; nullptr when there is none.
const Parameter* FindParameter(std::string_view name);

// If the model's file does not say whether to sample, adds what keeps small models from loops in a
// chat, and returns true.
bool SamplesByDefault(GenerationConfig* config);
// Takes over what the model's generation_config.json says, but for what was `given`.
void ApplyGenerationConfig(const GenerationConfig& config,
                           const std::function<bool(const Parameter&)>& given, Request* request);

}  // namespace kuiper
