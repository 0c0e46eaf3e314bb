// What an answer looks like on the wire: one object per form of the interface. A stream is Begin,
// OnDelta for each delta, End; a whole answer is Whole. Both are written from the same parts.
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
  // All answers have ended.
  virtual std::string End(const AnswerParts& parts) = 0;
  // Instead of End, where an answer failed.
  virtual std::string Failed(const ApiError& error) = 0;
  virtual nlohmann::ordered_json Whole(const AnswerParts& parts) const = 0;
};

// What an answer says of itself.
struct AnswerTitle {
  std::string id;  // without what tells the kind: "3f2a..."
  std::string model = {};
  std::string fingerprint = {};
  int64_t created = 0;  // seconds since 1970
};

// "data: {...}\n\n"
std::string ServerEvent(const nlohmann::ordered_json& data);
// "event: NAME\ndata: {...}\n\n"
std::string ServerEvent(const std::string& name, const nlohmann::ordered_json& data);

}  // namespace kuiper
