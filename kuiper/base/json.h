// The one reader of JSON, for files that may be hostile and for what people write: it reports the
// byte of a syntax error, bounds the nesting and throws nothing. ParseJson builds a tree; a reader
// of large documents takes the events and keeps what it needs (JsonEvents). Knows nobody's schema.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper {

// A value. Keeps the order of keys and the exact value of numbers.
struct JsonNode {
  enum class Type { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

  Type type = Type::kNull;
  bool boolean = false;
  std::string text = {};  // kString: the value; kInt, kFloat: as Python prints the number
  std::vector<JsonNode> items = {};    // elements of an array, values of an object
  std::vector<std::string> keys = {};  // of an object, parallel to items, unique

  // The value of `key`, nullptr when this is no object or has no such key.
  const JsonNode* Find(std::string_view key) const;
  bool IsNull() const { return type == Type::kNull; }
  bool IsBool() const { return type == Type::kBool; }
  bool IsString() const { return type == Type::kString; }
  bool IsNumber() const { return type == Type::kInt || type == Type::kFloat; }
  bool IsArray() const { return type == Type::kArray; }
  bool IsObject() const { return type == Type::kObject; }
  // The value of a kInt that fits into int64.
  std::optional<int64_t> AsInt() const;
  // The value of a number.
  std::optional<double> AsDouble() const;
};

struct JsonPlace;

// Receives the values of a document in their order; here each is accepted and forgotten. An event
// returns false to stop the reader, after Fail has said why.
class JsonEvents {
 public:
  static constexpr size_t kMaxDepth = 64;

  virtual ~JsonEvents() = default;
  // kOk when all of `text` was read; the message of an error begins with `name`.
  Status Read(std::string_view text, StatusCode code, const std::string& name);

  // Neither object nor array. Overrides keep what they are given.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  virtual bool Value(JsonNode) { return true; }
  // The two that large documents consist of, for readers that make no node of each; here they do.
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

  // Within String and Key: the document behind that string. A reader may take entries of it by
  // itself and pass over them, as long as they end with a string that stands in the document as
  // this one does: the parser, which has read nothing behind the quote, goes on as if it had read
  // that.
  std::string_view Ahead() const;
  void Skip(size_t num_bytes);

 private:
  friend class JsonSax;
  std::string error_;
  JsonPlace* place_ = nullptr;  // while Read is under way
};

// Builds a tree. A reader that derives from it can take parts of the document before they reach the
// tree.
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
  // Nesting depth of the value that comes next; 0 is the root.
  size_t depth() const { return open_.size(); }
  // The key under which the open object at `level` (0 is the root) waits for its next value.
  const std::string& KeyAt(size_t level) const { return open_[level]->keys.back(); }
  bool IsObjectAt(size_t level) const { return open_[level]->IsObject(); }

 private:
  // Null when there are too many values.
  JsonNode* Add(JsonNode node);
  bool Open(JsonNode::Type type);

  JsonNode root_;
  size_t num_values_ = 0;
  std::vector<JsonNode*> open_;  // a parent does not move while its child is open
};

StatusOr<JsonNode> ParseJson(std::string_view text, StatusCode code, const std::string& name);

// As Python's json.dumps(value, ensure_ascii=False) prints it.
std::string PythonJson(const JsonNode& node);
std::string PythonJsonString(std::string_view text);
// The same for messages: short, on one line and in quotes.
std::string QuotedJson(const JsonNode& node);
// Python's repr of a finite float.
std::string PythonFloat(double value);

}  // namespace kuiper
