// The JSON object of one answer, whole or its numbers alone, and parts of it for other objects.
// `spell`: how parameters are named in errors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/report/answer_result.h"

namespace kuiper {

// One line without its newline, valid UTF-8. `type` is "" for an object alone, or that of the line
// in a stream. `tokenizer` spells tokens that have log probabilities.
std::string ResultJson(const AnswerResult& result, const std::string& type,
                       const Tokenizer* tokenizer, Speller spell);
// The same object for a run that failed before there was an answer.
std::string ErrorJson(const Status& status, const std::string& model, const std::string& type,
                      Speller spell);
// Numbers only: no text.
std::string StatsJson(const AnswerResult& result, Speller spell);
// The object `ran` of these, alone, and its line.
nlohmann::ordered_json RanObject(const RunFacts& ran);
std::string RanJson(const RunFacts& ran);

// [{"source": ..., "width": ..., "height": ..., "scaled_width": ..., "scaled_height": ...,
// "frames": null, "patches": ..., "tokens": ...}]
nlohmann::ordered_json PicturesJson(const std::vector<PictureFacts>& pictures);

// For other objects: `error`, null where there is none, and the line of an object.
nlohmann::ordered_json ErrorObject(const Status& status, Speller spell);
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace kuiper
