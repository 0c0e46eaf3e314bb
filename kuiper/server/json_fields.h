// Makes and changes JSON objects, to convert bodies of other API formats to chat bodies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Takes the value of `key` out of an object; returns null if it is absent.
JsonNode TakeField(JsonNode* object, std::string_view key);
// Appends a key that the object does not have.
void SetField(JsonNode* object, std::string key, JsonNode value);
// Renames the key `from` to `to` unless its value is null.
void RenameField(JsonNode* object, std::string_view from, const std::string& to);

// Takes a list of token ids; empty if it is absent. kInput names the field by Param.
StatusOr<std::vector<int32_t>> TakeIds(JsonNode* object, std::string_view key);

// Returns the text of a string field; "" for any other.
std::string TextOfField(const JsonNode& object, std::string_view key);

// Returns the value of the float's shortest decimal: 0.95, not 0.949999988.
double Decimal(float value);

JsonNode StringNode(std::string text);
JsonNode BoolNode(bool value);
JsonNode ListNode(std::vector<JsonNode> items = {});
JsonNode ObjectNode(const std::vector<std::pair<std::string, JsonNode>>& fields = {});

// Content parts of a message. ContentOf returns a plain text, or the parts if one is an image.
JsonNode TextPart(std::string text);
JsonNode ImagePart(std::string url);
JsonNode ContentOf(std::vector<JsonNode> parts);

}  // namespace kuiper
