// The only JSON reader, for possibly hostile files and for hand-written ones. It reports the byte
// of a syntax error, bounds the nesting and throws nothing. ParseJson builds a tree. A reader of
// large documents derives from JsonEvents and keeps only what it needs. Contains no schema.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// A JSON value. Keeps the order of keys and the exact value of numbers.
struct JsonNode {
  enum class Type { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Type type = Type::kNull;
  bool boolean = false;
  std::string text = {};  // kString: the value; kInt, kFloat: the number as Python prints it
  std::vector<JsonNode> items = {};    // elements of an array, values of an object
  std::vector<std::string> keys = {};  // keys of an object, parallel to items, unique

  // Returns the value of `key`; nullptr if this is not an object or lacks the key.
  const JsonNode* Find(std::string_view key) const;
  bool IsNull() const { return type == Type::kNull; }
  bool IsBool() const { return type == Type::kBool; }
  bool IsString() const { return type == Type::kString; }
  bool IsNumber() const { return type == Type::kInt || type == Type::kFloat; }
  bool IsArray() const { return type == Type::kArray; }
  bool IsObject() const { return type == Type::kObject; }
  // The value of a kInt; nullopt if it does not fit into int64.
  std::optional<int64_t> AsInt() const;
  // The value of a number.
  std::optional<double> AsDouble() const;
};

struct JsonPlace;

// Receives the values of a document in document order; this base class accepts and drops each of
// them. An event returns false, after calling Fail, to stop the reader.
class JsonEvents {
 public:
  static constexpr size_t kMaxDepth = 64;

  virtual ~JsonEvents() = default;
  // Returns kOk if all of `text` was read; error messages begin with `name`.
  Status Read(std::string_view text, StatusCode code, const std::string& name);

  // Called for a value that is neither an object nor an array. Overrides keep the node.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  virtual bool Value(JsonNode) { return true; }
  // Separate events for the two kinds of values that dominate large documents, so that readers need
  // not make a node of each. The defaults make a node and call Value.
  virtual bool String(std::string text);
  virtual bool Unsigned(uint64_t number);
  virtual bool BeginObject() { return true; }
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  virtual bool Key(std::string) { return true; }
  virtual bool EndObject() { return true; }
  virtual bool BeginArray() { return true; }
  virtual bool EndArray() { return true; }

 protected:
  bool Fail(std::string message);

  // Ahead and Skip may be called within String and Key. Ahead returns the document after that
  // string; Skip passes over its first bytes. The skipped part must end with a string in the same
  // syntactic position. The parser has read nothing after the closing quote, and continues as if it
  // had just read that last string.
  std::string_view Ahead() const;
  void Skip(size_t num_bytes);

 private:
  friend class JsonSax;
  std::string error_;
  JsonPlace* place_ = nullptr;  // set while Read runs
};

// Builds a tree. A derived reader can consume parts of the document before they reach the tree.
class JsonTreeBuilder : public JsonEvents {
 public:
  // A value takes up to a hundred times the memory of its text.
  static constexpr size_t kMaxValues = 1 << 20;

  bool Value(JsonNode value) override;
  bool BeginObject() override;
  bool Key(std::string text) override;
  bool EndObject() override;
  bool BeginArray() override;
  bool EndArray() override;

  JsonNode& root() { return root_; }

 protected:
  // Nesting depth of the next value; 0 is the root.
  size_t depth() const { return open_.size(); }
  // The key of the next value of the open object at `level` (0 is the root).
  const std::string& KeyAt(size_t level) const { return open_[level]->keys.back(); }
  bool IsObjectAt(size_t level) const { return open_[level]->IsObject(); }

 private:
  // Returns null if there are too many values.
  JsonNode* Add(JsonNode node);
  bool Open(JsonNode::Type type);

  JsonNode root_;
  size_t num_values_ = 0;
  std::vector<JsonNode*> open_;  // a parent's node does not move while its child is open
};

StatusOr<JsonNode> ParseJson(std::string_view text, StatusCode code, const std::string& name);

// Formats like Python's json.dumps(value, ensure_ascii=False).
std::string PythonJson(const JsonNode& node);
std::string PythonJsonString(std::string_view text);
// Returns PythonJson(node) for messages: shortened, on one line and in quotes.
std::string QuotedJson(const JsonNode& node);
// Python's repr of a finite float.
std::string PythonFloat(double value);

}  // namespace kuiper
