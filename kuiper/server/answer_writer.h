// Writes responses in one API format. A stream is Begin, OnDelta for each delta, then End; a
// complete response is Whole. Both use the same AnswerParts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kuiper/server/answer_parts.h"
#include "kuiper/server/api_error.h"
#include "kuiper/server/reasoning_field.h"

namespace kuiper {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual std::string Begin(const AnswerParts& parts) = 0;
  virtual std::string OnDelta(const AnswerDelta& delta, const AnswerParts& parts) = 0;
  // Call when all choices have ended.
  virtual std::string End(const AnswerParts& parts) = 0;
  // Replaces End if a choice failed.
  virtual std::string Failed(const ApiError& error) = 0;
  virtual nlohmann::ordered_json Whole(const AnswerParts& parts) const = 0;
};

// The metadata of a response.
struct AnswerTitle {
  std::string id;  // without the prefix of its kind: "3f2a..."
  std::string model = {};
  std::string fingerprint = {};
  int64_t created = 0;  // seconds since 1970
};

// "data: {...}\n\n"
std::string ServerEvent(const nlohmann::ordered_json& data);
// "event: NAME\ndata: {...}\n\n"
std::string ServerEvent(const std::string& name, const nlohmann::ordered_json& data);

}  // namespace kuiper
