// The JSON object of one answer, complete or numbers only, and parts of it for other objects.
// `spell`: how to write parameter names in errors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/report/answer_result.h"

namespace kuiper {

// Returns one line without its newline, valid UTF-8. `type` is "" for a single object, or the type
// of the line in a stream. `tokenizer` converts tokens with log probabilities to text.
std::string ResultJson(const AnswerResult& result, const std::string& type,
                       const Tokenizer* tokenizer, Speller spell);
// Returns the same object for a run that failed before there was an answer.
std::string ErrorJson(const Status& status, const std::string& model, const std::string& type,
                      Speller spell);
// Returns numbers only, no text.
std::string StatsJson(const AnswerResult& result, Speller spell);
// Return the object `ran` of these by itself, and its line.
nlohmann::ordered_json RanObject(const RunFacts& ran);
std::string RanJson(const RunFacts& ran);

// [{"source": ..., "width": ..., "height": ..., "scaled_width": ..., "scaled_height": ...,
// "frames": null, "patches": ..., "tokens": ...}]
nlohmann::ordered_json PicturesJson(const std::vector<PictureFacts>& pictures);

// For other objects: `error` (null if there is none), and an object as a line.
nlohmann::ordered_json ErrorObject(const Status& status, Speller spell);
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace kuiper
