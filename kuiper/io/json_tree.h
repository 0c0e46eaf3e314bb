// A small JSON tree for what this program reads from people and from tokenizer files: keeps the
// order of keys and the exact value of numbers, reports the byte of a syntax error, and bounds the
// nesting, so that walking a tree may recurse, and the number of values. JsonTreeBuilder lets a
// reader of large files take parts of the document before they reach the tree (tokenizer_json.cpp).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

struct JsonNode {
  enum class Type { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Type type = Type::kNull;
  bool boolean = false;
  std::string text;               // kString: the value; kInt, kFloat: as Python prints the number
  std::vector<JsonNode> items;    // elements of an array, values of an object
  std::vector<std::string> keys;  // of an object, parallel to items, unique

  // The value of `key`, nullptr when this is no object or has no such key.
  const JsonNode* Find(std::string_view key) const;
  bool IsNull() const { return type == Type::kNull; }
  bool IsBool() const { return type == Type::kBool; }
  bool IsString() const { return type == Type::kString; }
  bool IsArray() const { return type == Type::kArray; }
  bool IsObject() const { return type == Type::kObject; }
  // The value of a kInt that fits into int64.
  std::optional<int64_t> AsInt() const;
};

// Receives the events of nlohmann's SAX parser, which itself does not recurse.
class JsonTreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  static constexpr size_t kMaxDepth = 64;
  // A value takes up to a hundred times the memory of its text.
  static constexpr size_t kMaxValues = 1 << 20;

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(size_t elements) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(size_t elements) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override;

  // Parses `text`; the message of an error begins with `name`.
  Status Parse(std::string_view text, StatusCode code, const std::string& name);
  JsonNode& root() { return root_; }

 protected:
  // Nesting depth of the value that comes next; 0 is the root.
  size_t depth() const { return open_.size(); }
  // The key under which the open object at `level` (0 is the root) waits for its next value.
  const std::string& KeyAt(size_t level) const { return open_[level]->keys.back(); }
  bool IsObjectAt(size_t level) const { return open_[level]->IsObject(); }
  // Stops the parser with this message.
  bool Fail(std::string message);

 private:
  // Null when there are too many values.
  JsonNode* Add(JsonNode::Type type);
  bool AddText(JsonNode::Type type, std::string text);
  bool Open(JsonNode::Type type);

  JsonNode root_;
  size_t num_values_ = 0;
  std::vector<JsonNode*> open_;  // a parent does not move while its child is open
  std::string error_;
};

StatusOr<JsonNode> ParseJsonTree(std::string_view text, StatusCode code, const std::string& name);

// As Python's json.dumps(value, ensure_ascii=False) prints it.
std::string PythonJson(const JsonNode& node);
std::string PythonJsonString(std::string_view text);

}  // namespace kuiper
