// The JSON object of one answer: -o json, the last line of -o jsonl, and --stats-json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "demo/answer.h"
#include "kuiper/base/status.h"

namespace kuiper::demo {

// One line without its newline, valid UTF-8. `type` is "" (json) or "done" (jsonl). `tokenizer`
// spells the alternatives of --logprobs.
std::string ResultJson(const Result& result, const std::string& type, const Tokenizer* tokenizer);
// The same object for a run that failed before there was an answer.
std::string ErrorJson(const Status& status, const std::string& model, const std::string& type);
// Numbers only: no text.
std::string StatsJson(const Result& result);
// The object `ran` of these, alone, and its line.
nlohmann::ordered_json RanObject(const RunFacts& ran);
std::string RanJson(const RunFacts& ran);

// [{"source": ..., "width": ..., "height": ..., "scaled_width": ..., "scaled_height": ...,
// "frames": null, "patches": ..., "tokens": ...}]
nlohmann::ordered_json PicturesJson(const std::vector<PictureFacts>& pictures);

// For other objects of the programs: `error`, null where there is none, and the line of an object.
nlohmann::ordered_json ErrorObject(const Status& status);
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace kuiper::demo
