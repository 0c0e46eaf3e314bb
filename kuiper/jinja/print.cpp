#include "kuiper/jinja/print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kuiper/base/json.h"
#include "kuiper/jinja/characters.h"

namespace kuiper::jinja {
namespace {

constexpr int kMaxDepth = 64;

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return PythonFloat(value);
}

std::string Hex(const char* format, char32_t code) {
  char buffer[16];
  std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(code));
  return buffer;
}

// Returns a character as repr() prints it between quotes.
std::string Escaped(char32_t c, std::string_view bytes, char quote) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  if (c == static_cast<char32_t>(quote)) return std::string("\\") + quote;
  if (IsPrintable(c)) return std::string(bytes);
  return Hex(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

void AppendRepr(const Value& value, int depth, TextBuilder* out);

void AppendStringRepr(const Text& text, TextBuilder* out) {
  const std::string_view bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  const Origin edge = text.runs()[0].origin;
  out->Append(std::string_view(&quote, 1), edge);
  size_t at = 0;
  for (const Run& run : text.runs()) {
    for (const size_t end = at + run.length; at < end;) {
      const Character c = FirstCharacter(bytes.substr(at));
      out->Append(Escaped(c.code, bytes.substr(at, c.size), quote), run.origin);
      at += c.size;
    }
  }
  out->Append(std::string_view(&quote, 1), edge);
}

void AppendListRepr(const Value& value, int depth, TextBuilder* out) {
  const bool is_tuple = value.Is(Kind::kTuple);
  out->Append(is_tuple ? "(" : "[", kData);
  const std::vector<Value>& items = value.list->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", kData);
    AppendRepr(items[i], depth + 1, out);
  }
  if (is_tuple && items.size() == 1) out->Append(",", kData);
  out->Append(is_tuple ? ")" : "]", kData);
}

void AppendDictRepr(const Dict& dict, int depth, TextBuilder* out) {
  out->Append("{", kData);
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out->Append(", ", kData);
    first = false;
    AppendRepr(key, depth + 1, out);
    out->Append(": ", kData);
    AppendRepr(value, depth + 1, out);
  }
  out->Append("}", kData);
}

void AppendRepr(const Value& value, int depth, TextBuilder* out) {
  if (out->overflowed()) return;
  if (depth > kMaxDepth) {
    out->Append("...", kData);
    return;
  }
  switch (value.kind) {
    case Kind::kUndefined:
      out->Append("Undefined", kTemplate);
      break;
    case Kind::kNone:
      out->Append("None", kTemplate);
      break;
    case Kind::kBool:
      out->Append(value.integer != 0 ? "True" : "False", value.origin());
      break;
    case Kind::kInt:
      out->Append(std::to_string(value.integer), value.origin());
      break;
    case Kind::kBigInt:
      out->Append(*value.text);
      break;
    case Kind::kFloat:
      out->Append(FloatText(value.real), value.origin());
      break;
    case Kind::kString:
      if (value.is_markup) out->Append("Markup(", kTemplate);
      AppendStringRepr(*value.text, out);
      if (value.is_markup) out->Append(")", kTemplate);
      break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      AppendListRepr(value, depth, out);
      break;
    case Kind::kDict:
    case Kind::kNamespace:
      AppendDictRepr(*value.dict, depth, out);
      break;
    default:
      out->Append(std::string("<").append(TypeName(value)).append(">"), kTemplate);
  }
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, TextBuilder* out) : style_(style), out_(out) {}

  bool Print(const Value& value, int depth) {
    if (depth > kMaxDepth) return Fail("Circular reference detected");
    switch (value.kind) {
      case Kind::kNone:
        out_->Append("null", kData);
        return true;
      case Kind::kBool:
        out_->Append(value.integer != 0 ? "true" : "false", kData);
        return true;
      case Kind::kInt:
        out_->Append(std::to_string(value.integer), kData);
        return true;
      case Kind::kBigInt:
        out_->Append(*value.text);
        return true;
      case Kind::kFloat:
        out_->Append(Real(value.real), kData);
        return true;
      case Kind::kString:
        String(*value.text);
        return true;
      case Kind::kList:
      case Kind::kTuple:
        return PrintList(value.list->items, depth);
      case Kind::kDict:
        return PrintDict(*value.dict, depth);
      default:
        return Fail("Object of type " + std::string(TypeName(value)) + " is not JSON serializable");
    }
  }

  std::string error;

 private:
  bool Fail(std::string message) {
    error = std::move(message);
    return false;
  }

  static std::string Real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return PythonFloat(value);
  }

  void String(const Text& text) {
    const std::string_view bytes = text.bytes();
    out_->Append("\"", kData);
    size_t at = 0;
    for (const Run& run : text.runs()) {
      for (const size_t end = at + run.length; at < end;) {
        const unsigned char byte = static_cast<unsigned char>(bytes[at]);
        if (byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\') {
          size_t stop = at + 1;
          while (stop < end && Plain(bytes[stop])) ++stop;
          out_->Append(bytes.substr(at, stop - at), run.origin);
          at = stop;
          continue;
        }
        const Character c = FirstCharacter(bytes.substr(at));
        out_->Append(JsonCharacter(c.code, bytes.substr(at, c.size)), run.origin);
        at += c.size;
      }
    }
    out_->Append("\"", kData);
  }

  static bool Plain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

  std::string JsonCharacter(char32_t c, std::string_view bytes) const {
    if (c < 0x80 && c != 0x7F) {
      const std::string quoted = PythonJsonString(bytes);
      return quoted.substr(1, quoted.size() - 2);
    }
    // Python escapes only non-ASCII characters; DEL is ASCII.
    if (!style_.ensure_ascii || c == 0x7F) return std::string(bytes);
    if (c < 0x10000) return Hex("\\u%04x", c);
    return Hex("\\u%04x", 0xD800 + ((c - 0x10000) >> 10)) +
           Hex("\\u%04x", 0xDC00 + ((c - 0x10000) & 0x3FF));
  }

  void NewLine(int depth) {
    if (!style_.indent.has_value()) return;
    std::string line = "\n";
    for (int i = 0; i < depth; ++i) line += *style_.indent;
    out_->Append(line, kData);
  }

  bool PrintList(const std::vector<Value>& items, int depth) {
    out_->Append("[", kData);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator, kData);
      NewLine(depth + 1);
      if (!Print(items[i], depth + 1)) return false;
    }
    if (!items.empty()) NewLine(depth);
    out_->Append("]", kData);
    return !out_->overflowed();
  }

  bool PrintKey(const Value& key, int depth) {
    if (key.Is(Kind::kString)) {
      String(*key.text);
      return true;
    }
    if (!key.IsNumber() && !key.Is(Kind::kNone) && !key.Is(Kind::kBigInt)) {
      return Fail("keys must be str, int, float, bool or None, not " + std::string(TypeName(key)));
    }
    out_->Append("\"", kData);
    if (!Print(key, depth)) return false;
    out_->Append("\"", kData);
    return true;
  }

  bool PrintDict(const Dict& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return Compare(a->first, b->first) == -1;
      });
    }
    out_->Append("{", kData);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_->Append(style_.item_separator, kData);
      NewLine(depth + 1);
      if (!PrintKey(entries[i]->first, depth)) return false;
      out_->Append(style_.key_separator, kData);
      if (!Print(entries[i]->second, depth + 1)) return false;
    }
    if (!entries.empty()) NewLine(depth);
    out_->Append("}", kData);
    return !out_->overflowed();
  }

  const JsonStyle& style_;
  TextBuilder* out_;
};

}  // namespace

void AppendStr(const Value& value, TextBuilder* out) {
  if (value.Is(Kind::kString)) {
    out->Append(*value.text);
  } else if (!value.Is(Kind::kUndefined)) {
    AppendRepr(value, 0, out);
  }
}

std::optional<std::string> AppendJson(const Value& value, const JsonStyle& style,
                                      TextBuilder* out) {
  JsonPrinter printer(style, out);
  if (printer.Print(value, 0) || out->overflowed()) return std::nullopt;
  return printer.error;
}

}  // namespace kuiper::jinja
