// Making and changing the objects of bodies: the forms of other interfaces become chats by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Takes the value of `key` out of an object; null when it is absent.
JsonNode TakeField(JsonNode* object, std::string_view key);
// Appends a key that the object does not have.
void SetField(JsonNode* object, std::string key, JsonNode value);
// The same for a key that may be there under another name: `from` becomes `to` unless it is null.
void RenameField(JsonNode* object, std::string_view from, const std::string& to);

// Takes a list of token ids; empty when it is absent. kInput names the field by Param.
StatusOr<std::vector<int32_t>> TakeIds(JsonNode* object, std::string_view key);

// The text of a field that is a string, else "".
std::string TextOfField(const JsonNode& object, std::string_view key);

// The number that the shortest decimal of a float says: 0.95, not 0.949999988.
double Decimal(float value);

JsonNode StringNode(std::string text);
JsonNode BoolNode(bool value);
JsonNode ListNode(std::vector<JsonNode> items = {});
JsonNode ObjectNode(const std::vector<std::pair<std::string, JsonNode>>& fields = {});

// Parts of a message, and its content: a text, or all parts where one is an image.
JsonNode TextPart(std::string text);
JsonNode ImagePart(std::string url);
JsonNode ContentOf(std::vector<JsonNode> parts);

}  // namespace kuiper
