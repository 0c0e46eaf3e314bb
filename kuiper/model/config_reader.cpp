#include "kuiper/model/config_reader.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "kuiper/base/text.h"

namespace kuiper {
namespace {

constexpr size_t kMaxEosTokens = 256;

std::string ToText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

void ConfigReader::Fail(const std::string& what) {
  if (status_.ok()) status_ = Status(StatusCode::kModel, where_ + ": " + what);
}

const JsonNode* ConfigReader::Find(const char* key) const {
  const JsonNode* value = object_.Find(key);
  return value == nullptr || value->IsNull() ? nullptr : value;
}

bool ConfigReader::IsNull(const char* key) const {
  const JsonNode* value = object_.Find(key);
  return value != nullptr && value->IsNull();
}

int ConfigReader::Int(const char* key, int min, int max, std::optional<int> fallback) {
  const JsonNode* value = Find(key);
  if (value != nullptr) return ToInt(*value, key, min, max);
  if (!fallback) Fail(std::string(key) + " is missing");
  return fallback.value_or(min);
}

std::optional<int> ConfigReader::MaybeInt(const char* key, int min, int max) {
  const JsonNode* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return ToInt(*value, key, min, max);
}

double ConfigReader::Number(const char* key, double min, double max) {
  const std::optional<double> value = MaybeNumber(key, min, max);
  if (!value) Fail(std::string(key) + " is missing");
  return value.value_or(min);
}

std::optional<double> ConfigReader::MaybeNumber(const char* key, double min, double max) {
  const JsonNode* value = Find(key);
  if (value == nullptr) return std::nullopt;
  return ToNumber(*value, key, min, max);
}

std::vector<double> ConfigReader::Numbers(const char* key, size_t count, double min, double max) {
  std::vector<double> numbers(count, min);
  const JsonNode* value = Find(key);
  if (value == nullptr || !value->IsArray() || value->items.size() != count) {
    Fail(std::string(key) + " is not a list of " + std::to_string(count) + " numbers");
    return numbers;
  }
  for (size_t i = 0; i < count; ++i) numbers[i] = ToNumber(value->items[i], key, min, max);
  return numbers;
}

bool ConfigReader::Bool(const char* key, bool fallback) {
  const JsonNode* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->IsBool()) Fail(std::string(key) + " is not true or false");
  return value->boolean;
}

std::string ConfigReader::String(const char* key) {
  const JsonNode* value = Find(key);
  if (value == nullptr) return "";
  if (!value->IsString()) Fail(std::string(key) + " is not a string");
  return value->IsString() ? value->text : "";
}

std::vector<int32_t> ConfigReader::Tokens(const char* key) {
  const JsonNode* value = Find(key);
  if (value == nullptr) return {};
  constexpr int kMaxId = std::numeric_limits<int32_t>::max();
  if (!value->IsArray()) return {ToInt(*value, key, 0, kMaxId)};
  std::vector<int32_t> ids;
  if (value->items.size() > kMaxEosTokens) {
    Fail(std::string(key) + " lists more than " + std::to_string(kMaxEosTokens) + " tokens");
    return ids;
  }
  for (const JsonNode& id : value->items) ids.push_back(ToInt(id, key, 0, kMaxId));
  return ids;
}

int ConfigReader::ToInt(const JsonNode& value, const char* key, int min, int max) {
  // Some exporters write 1000000.0 for an integer.
  const std::optional<double> number = value.AsDouble();
  if (number && *number >= min && *number <= max && *number == std::floor(*number)) {
    return static_cast<int>(*number);
  }
  Fail(std::string(key) + " is " + QuotedJson(value) + ", expected an integer from " +
       std::to_string(min) + " to " + std::to_string(max));
  return min;
}

double ConfigReader::ToNumber(const JsonNode& value, const char* key, double min, double max) {
  const std::optional<double> number = value.AsDouble();
  if (number && *number >= min && *number <= max) return *number;
  Fail(std::string(key) + " is " + QuotedJson(value) + ", expected a number from " + ToText(min) +
       " to " + ToText(max));
  return min;
}

}  // namespace kuiper
