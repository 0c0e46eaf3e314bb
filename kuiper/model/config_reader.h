// Reads keys of one object of a model's JSON files and keeps the first error. For config.cpp and
// rope_config.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// After an error, the returned values are in range but meaningless: check status() before using
// them.
class ConfigReader {
 public:
  ConfigReader(const JsonNode& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const Status& status() const { return status_; }
  // Records kModel with one line that begins with the object's location.
  void Fail(const std::string& what);
  // Absent and null are treated alike, as in most of Hugging Face's own configs.
  const JsonNode* Find(const char* key) const;
  bool IsNull(const char* key) const;

  // Bounds are inclusive.
  int Int(const char* key, int min, int max, std::optional<int> fallback = {});
  std::optional<int> MaybeInt(const char* key, int min, int max);
  double Number(const char* key, double min, double max);
  std::optional<double> MaybeNumber(const char* key, double min, double max);
  // Reads a list of `count` numbers.
  std::vector<double> Numbers(const char* key, size_t count, double min, double max);
  bool Bool(const char* key, bool fallback);
  std::string String(const char* key);
  // Reads one token id or a list of them.
  std::vector<int32_t> Tokens(const char* key);

 private:
  int ToInt(const JsonNode& value, const char* key, int min, int max);
  double ToNumber(const JsonNode& value, const char* key, double min, double max);

  const JsonNode& object_;
  std::string where_;
  Status status_;
};

}  // namespace kuiper
