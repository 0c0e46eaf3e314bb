#include "kuiper/chat/tool_calls.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kuiper/base/trim.h"

namespace kuiper {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
// Maximum closing tags tried as the end of a block; each attempt parses the block again.
constexpr int kMaxTries = 32;

// Returns the length of the longest suffix of `text` that is a proper prefix of `tag`.
size_t PartialTag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

// Returns the position after the string that begins with the quote at `at`, in valid JSON.
size_t EndOfString(std::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at + 1;
}

// Returns the end of the value that begins at `at`, in valid JSON.
size_t EndOfValue(std::string_view json, size_t at) {
  int depth = 0;
  for (; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      at = EndOfString(json, at) - 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth < 0) return at;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return at;
}

// Returns the text of the value of `key` in a valid JSON object whose keys have no escapes.
std::optional<std::string_view> RawValue(std::string_view object, std::string_view key) {
  size_t at = object.find('{') + 1;
  while (at < object.size()) {
    const size_t quote = object.find('"', at);
    if (quote == std::string_view::npos) return std::nullopt;
    const size_t colon = object.find(':', EndOfString(object, quote));
    if (colon == std::string_view::npos) return std::nullopt;
    const size_t end = EndOfValue(object, colon + 1);
    if (object.substr(quote + 1).starts_with(std::string(key) + '"')) {
      return Trimmed(object.substr(colon + 1, end - colon - 1));
    }
    at = end + 1;
  }
  return std::nullopt;
}

std::optional<ParsedToolCall> ReadHermes(std::string_view block) {
  block = Trimmed(block);
  const auto json = ParseJson(block, StatusCode::kInput, "tool call");
  if (!json.ok() || !json->IsObject()) return std::nullopt;
  const JsonNode* name = json->Find("name");
  if (name == nullptr || !name->IsString() || name->text.empty()) return std::nullopt;
  for (const char* key : {"arguments", "parameters"}) {
    const JsonNode* value = json->Find(key);
    if (value == nullptr) continue;
    // Some models write the object as a string.
    if (value->IsString()) return ParsedToolCall{name->text, value->text};
    if (!value->IsObject()) return std::nullopt;
    const auto raw = RawValue(block, key);
    return ParsedToolCall{name->text, raw.has_value() ? std::string(*raw) : PythonJson(*value)};
  }
  return ParsedToolCall{name->text, "{}"};
}

// Removes one line break after the opening tag and one before the closing tag.
std::string_view WithoutOuterBreaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

std::optional<ParsedToolCall> ReadXml(std::string_view block, const StringParameters& strings) {
  constexpr std::string_view kFunction = "<function=", kEnd = "</function>";
  constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
  block = Trimmed(block);
  if (!block.starts_with(kFunction) || !block.ends_with(kEnd)) return std::nullopt;
  block.remove_suffix(kEnd.size());
  const size_t name_end = block.find('>');
  if (name_end == std::string_view::npos) return std::nullopt;
  ParsedToolCall call;
  call.name = Trimmed(block.substr(kFunction.size(), name_end - kFunction.size()));
  if (call.name.empty()) return std::nullopt;
  const auto of = strings.find(call.name);
  std::string_view rest = Trimmed(block.substr(name_end + 1));
  while (!rest.empty()) {
    const size_t key_end = rest.find('>');
    if (!rest.starts_with(kParameter) || key_end == std::string_view::npos) return std::nullopt;
    const std::string key(Trimmed(rest.substr(kParameter.size(), key_end - kParameter.size())));
    // A value may contain the closing tag. The real one is followed by a parameter or by nothing.
    size_t close = key_end;
    std::string_view behind;
    do {
      close = rest.find(kParameterEnd, close + 1);
      if (close == std::string_view::npos) return std::nullopt;
      behind = Trimmed(rest.substr(close + kParameterEnd.size()));
    } while (!behind.empty() && !behind.starts_with(kParameter));
    const std::string_view value =
        WithoutOuterBreaks(rest.substr(key_end + 1, close - key_end - 1));
    bool is_string = of == strings.end();
    if (!is_string) {
      const auto found = of->second.find(key);
      is_string =
          found != of->second.end() && !(found->second == StringKind::kOrNull && value == "null");
    }
    const auto json = ParseJson(value, StatusCode::kInput, "value");
    call.arguments += (call.arguments.empty() ? "{" : ", ") + PythonJsonString(key) + ": " +
                      (is_string || !json.ok() ? PythonJsonString(value) : PythonJson(*json));
    rest = behind;
  }
  call.arguments = call.arguments.empty() ? "{}" : call.arguments + "}";
  return call;
}

}  // namespace

std::optional<ToolCallFormat> FindToolCallFormat(const std::string& call, const std::string& open,
                                                 const std::string& close) {
  if (open.empty() || close.empty()) return std::nullopt;
  if (call.find("<function=") != std::string::npos) {
    return ToolCallFormat{ToolCallFormat::Kind::kXml, open, close};
  }
  if (call.find("\"name\"") == std::string::npos) return std::nullopt;
  return ToolCallFormat{ToolCallFormat::Kind::kHermes, open, close};
}

namespace {

// Adds the names of the types that a JSON schema allows; "any" if it names none.
void AddTypes(const JsonNode& schema, std::set<std::string_view>* types) {
  const auto add = [&](const JsonNode& type) {
    if (type.IsString()) types->insert(type.text);
  };
  if (const JsonNode* type = schema.Find("type")) {
    add(*type);
    for (const JsonNode& one : type->items) add(one);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const JsonNode* list = schema.Find(key);
    for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
      AddTypes(list->items[i], types);
    }
  }
  const JsonNode* values = schema.Find("enum");
  for (size_t i = 0; values != nullptr && i < values->items.size(); ++i) {
    const JsonNode& value = values->items[i];
    types->insert(value.IsString() ? "string" : value.IsNull() ? "null" : "any");
  }
  if (types->empty()) types->insert("any");
}

}  // namespace

StringParameters StringParametersOf(const JsonNode& tools) {
  StringParameters found;
  for (const JsonNode& tool : tools.items) {
    const JsonNode* function = tool.Find("function");
    if (function == nullptr) function = &tool;
    const JsonNode* name = function->Find("name");
    if (name == nullptr || !name->IsString()) continue;
    auto& strings = found[name->text];
    const JsonNode* schema = function->Find("parameters");
    const JsonNode* properties = schema == nullptr ? nullptr : schema->Find("properties");
    if (properties == nullptr) continue;
    for (size_t i = 0; i < properties->keys.size(); ++i) {
      std::set<std::string_view> types;
      AddTypes(properties->items[i], &types);
      const bool is_nullable = types.erase("null") > 0;
      if (types != std::set<std::string_view>{"string"}) continue;
      strings[properties->keys[i]] = is_nullable ? StringKind::kOrNull : StringKind::kAlways;
    }
  }
  return found;
}

ToolCallParser::Delta ToolCallParser::Push(std::string_view text) {
  rest_ += text;
  Delta delta;
  while (in_block_ ? TakeBlock(false, &delta) : TakeText(false, &delta)) {
  }
  return delta;
}

ToolCallParser::Delta ToolCallParser::Finish() {
  Delta delta;
  while (in_block_ ? TakeBlock(true, &delta) : TakeText(true, &delta)) {
  }
  // After a final call, trailing spaces are dropped.
  if (!after_call_) delta.text += spaces_;
  return delta;
}

bool ToolCallParser::TakeText(bool at_end, Delta* delta) {
  const size_t open = rest_.find(form_.open);
  if (open != std::string::npos) {
    Emit(std::string_view(rest_).substr(0, open), delta);
    rest_.erase(0, open);
    searched_ = form_.open.size();
    num_tried_ = 0;
    in_block_ = true;
    return true;
  }
  const size_t keep = at_end ? 0 : PartialTag(rest_, form_.open);
  Emit(std::string_view(rest_).substr(0, rest_.size() - keep), delta);
  rest_.erase(0, rest_.size() - keep);
  return false;
}

bool ToolCallParser::TakeBlock(bool at_end, Delta* delta) {
  while (true) {
    const size_t close = rest_.find(form_.close, searched_);
    const bool is_open = close == std::string::npos;
    if (is_open && !at_end) {
      const size_t tag = form_.close.size() - 1;
      searched_ = std::max(searched_, rest_.size() > tag ? rest_.size() - tag : 0);
      return false;
    }
    const size_t end = is_open ? rest_.size() : close;
    const auto call =
        ReadBlock(std::string_view(rest_).substr(form_.open.size(), end - form_.open.size()));
    if (call.has_value()) {
      spaces_.clear();
      delta->calls.push_back(*call);
      after_call_ = true;
    } else if (!is_open && ++num_tried_ < kMaxTries) {
      // The tag may be part of a value.
      searched_ = end + form_.close.size();
      continue;
    } else {
      // Not a call: the block up to its first closing tag is text; parse the remainder again.
      const size_t first = rest_.find(form_.close, form_.open.size());
      const size_t text = first == std::string::npos ? rest_.size() : first + form_.close.size();
      Emit(std::string_view(rest_).substr(0, text), delta);
      rest_.erase(0, text);
      in_block_ = false;
      return true;
    }
    rest_.erase(0, is_open ? end : end + form_.close.size());
    in_block_ = false;
    return true;
  }
}

void ToolCallParser::Emit(std::string_view text, Delta* delta) {
  const size_t last = text.find_last_not_of(kSpaces);
  if (last == std::string_view::npos) {
    spaces_ += text;
    return;
  }
  if (!after_call_) {
    delta->text += spaces_;
  } else {
    text.remove_prefix(text.find_first_not_of(kSpaces));
  }
  delta->text += text.substr(0, text.find_last_not_of(kSpaces) + 1);
  spaces_ = text.substr(text.find_last_not_of(kSpaces) + 1);
  after_call_ = false;
}

std::optional<ParsedToolCall> ToolCallParser::ReadBlock(std::string_view block) const {
  return form_.kind == ToolCallFormat::Kind::kHermes ? ReadHermes(block) : ReadXml(block, strings_);
}

}  // namespace kuiper
