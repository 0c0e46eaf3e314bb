// Reads components of a tokenizer.json: typed fields, and errors that name the file and the
// component. Base of the readers in tokenizer_spec.cpp and pre_tokenizer_spec.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

class ComponentReader {
 protected:
  // `name` stands for the file in messages and must outlive the reader.
  explicit ComponentReader(const std::string& name) : name_(name) {}

  const std::string& name() const { return name_; }

  Status Error(const std::string& what) const {
    return Status(StatusCode::kTokenizer, name_ + ": " + what);
  }
  // `what` begins with the key of the component, or ends with it.
  Status Unsupported(const std::string& what) const {
    constexpr std::pair<std::string_view, const char*> kHints[] = {
        {"model", "the model that is supported is BPE, without dropout and marks of subwords"},
        {"normalizer", "the normalizers that are supported are NFC, Prepend and Replace of a text"},
        {"pre_tokenizer",
         "the pre-tokenizers that are supported are ByteLevel, Digits, Metaspace, Punctuation and "
         "Split"},
        {"decoder",
         "the decoders that are supported are ByteLevel and a Sequence of Replace, ByteFallback, "
         "Fuse and Strip"},
        {"post_processor",
         "the post-processors that are supported are ByteLevel and TemplateProcessing"}};
    const std::string message = name_ + ": " + what + " is not supported";
    for (const auto& [key, hint] : kHints) {
      if (what.starts_with(key) || what.ends_with(key)) {
        return Status(StatusCode::kTokenizer, message, hint);
      }
    }
    return Status(StatusCode::kTokenizer, message);
  }

  static bool IsAbsent(const JsonNode* node) { return node == nullptr || node->IsNull(); }

  StatusOr<std::string_view> Type(const JsonNode& node, const std::string& where) const {
    const JsonNode* type = node.Find("type");
    if (type == nullptr || !type->IsString()) return Error(where + " has no type");
    return std::string_view(type->text);
  }

  StatusOr<std::string> String(const JsonNode& node, const char* key,
                               const std::string& where) const {
    const JsonNode* value = node.Find(key);
    if (value == nullptr || !value->IsString()) return Error(where + ": no string \"" + key + "\"");
    return value->text;
  }

  StatusOr<bool> Bool(const JsonNode& node, const char* key, bool fallback,
                      const std::string& where) const {
    const JsonNode* value = node.Find(key);
    if (IsAbsent(value)) return fallback;
    if (!value->IsBool()) return Error(where + ": \"" + key + "\" is not true or false");
    return value->boolean;
  }

  // Returns the members of a Sequence component.
  StatusOr<const JsonNode*> Members(const JsonNode& node, const char* key,
                                    const std::string& where) const {
    const JsonNode* members = node.Find(key);
    if (members == nullptr || !members->IsArray()) {
      return Error(where + " Sequence: no array \"" + key + "\"");
    }
    return members;
  }

  // Returns the text of {"String": text} in a Replace or Split.
  StatusOr<std::string> Pattern(const JsonNode& node, const char* kind,
                                const std::string& where) const {
    const JsonNode* pattern = node.Find("pattern");
    if (pattern == nullptr) return Error(where + ": no pattern");
    const JsonNode* text = pattern->Find(kind);
    if (text == nullptr || !text->IsString() || pattern->items.size() != 1) {
      return Unsupported(where + " with a pattern other than {\"" + kind + "\": text}");
    }
    if (text->text.empty()) return Error(where + ": empty pattern");
    return text->text;
  }

  // Consecutive steps that rewrite text multiply its growth. No real tokenizer comes near this
  // limit, and a hostile one must not fill the memory.
  Status CheckGrowth(size_t from, size_t to, const char* where, double* growth) const {
    constexpr double kMaxGrowth = 64;
    *growth *= std::max(1.0, static_cast<double>(to) / static_cast<double>(from));
    return *growth <= kMaxGrowth ? OkStatus() : Error(std::string(where) + ": text grows too much");
  }

 private:
  const std::string& name_;
};

}  // namespace kuiper
