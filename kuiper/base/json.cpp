#include "kuiper/base/json.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/text.h"

namespace kuiper {
namespace {

// Merges repeated keys as a Python dict does: a key keeps its first place and takes its last value.
void MergeRepeatedKeys(JsonNode* object) {
  const size_t count = object->keys.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto& keys = object->keys;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  std::vector<bool> drop(count, false);
  bool any = false;
  for (size_t i = 0; i < count;) {
    size_t last = i;
    while (last + 1 < count && keys[order[last + 1]] == keys[order[i]]) drop[order[++last]] = true;
    if (last > i) {
      std::swap(object->items[order[i]], object->items[order[last]]);
      any = true;
    }
    i = last + 1;
  }
  if (!any) return;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (drop[i]) continue;
    if (kept != i) {
      object->keys[kept] = std::move(object->keys[i]);
      object->items[kept] = std::move(object->items[i]);
    }
    ++kept;
  }
  object->keys.resize(kept);
  object->items.resize(kept);
}

}  // namespace

// The parser's position in a document.
struct JsonPlace {
  const char* const begin;
  const char* const end;
  const char* at = begin;    // next byte to read
  const char* last = begin;  // last byte read
  size_t num_read = 0;
};

namespace {

// Iterates over the bytes of a document without the spaces that indent its lines. These are half of
// a tokenizer.json, and the parser reads them one by one. Finding them needs no parser because no
// string contains a line end. Copies share one place; a null place is the end.
class UnindentedBytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit UnindentedBytes(JsonPlace* place) : place_(place) {}
  reference operator*() const { return *place_->at; }
  UnindentedBytes& operator++() {
    ++place_->num_read;
    place_->last = place_->at;
    if (*place_->at++ == '\n') {
      while (place_->at != place_->end && *place_->at == ' ') ++place_->at;
    }
    return *this;
  }
  bool operator==(const UnindentedBytes& other) const { return AtEnd() == other.AtEnd(); }
  bool operator!=(const UnindentedBytes& other) const { return !(*this == other); }

 private:
  bool AtEnd() const { return place_ == nullptr || place_->at == place_->end; }

  JsonPlace* place_;
};

// Returns the byte number, from 1, of the byte that the parser read as number `position`: the last
// byte, the one before it, or the position just past the end.
size_t ByteOf(const JsonPlace& place, size_t position) {
  if (position > place.num_read) return static_cast<size_t>(place.end - place.begin) + 1;
  return static_cast<size_t>(place.last - place.begin) + 1 - (place.num_read - position);
}

}  // namespace

const JsonNode* JsonNode::Find(std::string_view key) const {
  const auto it = std::find(keys.begin(), keys.end(), key);
  return it == keys.end() ? nullptr : &items[it - keys.begin()];
}

std::optional<int64_t> JsonNode::AsInt() const {
  if (type != Type::kInt) return std::nullopt;
  int64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> JsonNode::AsDouble() const {
  if (!IsNumber()) return std::nullopt;
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Passes on the events of nlohmann's parser, which does not recurse.
class JsonSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonSax(const JsonPlace* place, JsonEvents* events) : place_(*place), events_(*events) {}

  bool null() override { return events_.Value({}); }
  bool boolean(bool value) override {
    return events_.Value({.type = JsonNode::Type::kBool, .boolean = value});
  }
  bool number_integer(number_integer_t value) override { return Int(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return events_.Unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    // The parser also reports integers beyond 64 bits here; Python keeps their digits.
    if (text.find_first_of(".eE") == std::string::npos) return Int(text);
    return events_.Value({.type = JsonNode::Type::kFloat, .text = PythonFloat(value)});
  }
  bool string(string_t& value) override { return events_.String(std::move(value)); }
  bool binary(binary_t&) override { return events_.Fail("binary value"); }
  bool start_object(size_t) override { return events_.BeginObject() && Deeper(); }
  bool key(string_t& value) override { return events_.Key(std::move(value)); }
  bool end_object() override { return --depth_, events_.EndObject(); }
  bool start_array(size_t) override { return events_.BeginArray() && Deeper(); }
  bool end_array() override { return --depth_, events_.EndArray(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return events_.Fail("invalid JSON at byte " + std::to_string(ByteOf(place_, position)));
  }

 private:
  bool Int(std::string text) {
    return events_.Value({.type = JsonNode::Type::kInt, .text = std::move(text)});
  }
  bool Deeper() {
    if (++depth_ <= JsonEvents::kMaxDepth) return true;
    return events_.Fail("nested deeper than " + std::to_string(JsonEvents::kMaxDepth));
  }

  const JsonPlace& place_;
  JsonEvents& events_;
  size_t depth_ = 0;
};

Status JsonEvents::Read(std::string_view text, StatusCode code, const std::string& name) {
  JsonPlace place = {.begin = text.data(), .end = text.data() + text.size()};
  place_ = &place;
  JsonSax sax(&place, this);
  const bool read =
      nlohmann::json::sax_parse(UnindentedBytes(&place), UnindentedBytes(nullptr), &sax);
  place_ = nullptr;
  if (read) return OkStatus();
  return Status(code, name + ": " + error_);
}

std::string_view JsonEvents::Ahead() const {
  KU_CHECK(place_ != nullptr);
  return {place_->at, static_cast<size_t>(place_->end - place_->at)};
}

void JsonEvents::Skip(size_t num_bytes) {
  KU_CHECK(num_bytes <= Ahead().size());
  place_->at += num_bytes;
}

bool JsonEvents::String(std::string text) {
  return Value({.type = JsonNode::Type::kString, .text = std::move(text)});
}

bool JsonEvents::Unsigned(uint64_t number) {
  return Value({.type = JsonNode::Type::kInt, .text = std::to_string(number)});
}

bool JsonEvents::Fail(std::string message) {
  error_ = std::move(message);
  return false;
}

JsonNode* JsonTreeBuilder::Add(JsonNode node) {
  if (++num_values_ > kMaxValues) {
    Fail("more than " + std::to_string(kMaxValues) + " values");
    return nullptr;
  }
  if (!open_.empty()) return &open_.back()->items.emplace_back(std::move(node));
  root_ = std::move(node);
  return &root_;
}

bool JsonTreeBuilder::Open(JsonNode::Type type) {
  JsonNode* node = Add({.type = type});
  if (node != nullptr) open_.push_back(node);
  return node != nullptr;
}

bool JsonTreeBuilder::Value(JsonNode value) {
  return Add(std::move(value)) != nullptr;
}

bool JsonTreeBuilder::BeginObject() {
  return Open(JsonNode::Type::kObject);
}

bool JsonTreeBuilder::Key(std::string text) {
  open_.back()->keys.push_back(std::move(text));
  return true;
}

bool JsonTreeBuilder::EndObject() {
  MergeRepeatedKeys(open_.back());
  open_.pop_back();
  return true;
}

bool JsonTreeBuilder::BeginArray() {
  return Open(JsonNode::Type::kArray);
}

bool JsonTreeBuilder::EndArray() {
  open_.pop_back();
  return true;
}

StatusOr<JsonNode> ParseJson(std::string_view text, StatusCode code, const std::string& name) {
  JsonTreeBuilder builder;
  KU_RETURN_IF_ERROR(builder.Read(text, code, name));
  return std::move(builder.root());
}

// Prints the shortest digits that read back equal, in scientific form if the exponent is below -4
// or at least 16.
std::string PythonFloat(double value) {
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view printed(buffer, end.ptr - buffer);
  const size_t e = printed.find('e');
  std::string digits;
  for (char c : printed.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const char* exponent_text = printed.data() + e + (printed[e + 1] == '+' ? 2 : 1);
  int exponent = 0;
  std::from_chars(exponent_text, end.ptr, exponent);
  std::string out = printed[0] == '-' ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) (out += '.') += digits.substr(1);
    const int magnitude = std::abs(exponent);
    out += exponent < 0 ? "e-" : "e+";
    if (magnitude < 10) out += '0';
    return out + std::to_string(magnitude);
  }
  if (exponent < 0) return out + "0." + std::string(-exponent - 1, '0') + digits;
  if (count <= exponent + 1) return out + digits + std::string(exponent + 1 - count, '0') + ".0";
  return out + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::string PythonJsonString(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  std::string out = "\"";
  for (char c : text) {
    const size_t escape = kEscaped.find(c);
    if (escape != std::string_view::npos) {
      out += '\\';
      out += kLetters[escape];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string PythonJson(const JsonNode& node) {
  switch (node.type) {
    case JsonNode::Type::kNull:
      return "null";
    case JsonNode::Type::kBool:
      return node.boolean ? "true" : "false";
    case JsonNode::Type::kInt:
    case JsonNode::Type::kFloat:
      return node.text;
    case JsonNode::Type::kString:
      return PythonJsonString(node.text);
    case JsonNode::Type::kArray:
    case JsonNode::Type::kObject:
      break;
  }
  const bool object = node.IsObject();
  std::string out(1, object ? '{' : '[');
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (object) out += PythonJsonString(node.keys[i]) + ": ";
    out += PythonJson(node.items[i]);
  }
  return out + (object ? '}' : ']');
}

std::string QuotedJson(const JsonNode& node) {
  return Quoted(node.IsString() ? node.text : PythonJson(node));
}

}  // namespace kuiper
