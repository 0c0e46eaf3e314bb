#include "kuiper/jinja/string_format.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "kuiper/base/text.h"
#include "kuiper/jinja/characters.h"
#include "kuiper/jinja/markup.h"
#include "kuiper/jinja/print.h"

namespace kuiper::jinja {
namespace {

constexpr int kMaxWidth = 10000;

// [[fill]align][sign][0][width][.precision][type], of both format languages.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^
  char sign = '-';
  bool zeros = false;
  int width = 0;
  int precision = -1;
  char type = 's';
  bool escapes = false;  // strings and lists are escaped
};

bool TakeNumber(std::string_view text, size_t* at, int* number) {
  *number = 0;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    *number = *number * 10 + (text[(*at)++] - '0');
    if (*number > kMaxWidth) return false;
  }
  return true;
}

// Returns a number as printf prints it; empty if the type is unknown.
std::string NumberText(const Value& value, const Spec& spec) {
  char buffer[kMaxWidth + 400];
  const std::string sign = spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  if (std::string_view("dixXo").find(spec.type) != std::string_view::npos) {
    const int64_t whole = value.Is(Kind::kFloat) ? static_cast<int64_t>(value.real) : value.integer;
    const uint64_t size =
        whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
    const char* format = spec.type == 'x'   ? "%llx"
                         : spec.type == 'X' ? "%llX"
                         : spec.type == 'o' ? "%llo"
                                            : "%llu";
    std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned long long>(size));
    return (whole < 0 ? "-" : sign) + buffer;
  }
  if (std::string_view("fFeEgG").find(spec.type) == std::string_view::npos) return "";
  const std::string format = std::string("%") + (sign.empty() ? "" : sign) + ".*" + spec.type;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::snprintf(buffer, sizeof(buffer), format.c_str(), precision,  // NOLINT: our own format
                value.AsDouble());
  return buffer;
}

// Appends `value` formatted by `spec`; returns an error message, or "".
std::string AppendFormatted(const Value& value, const Spec& spec, Heap& heap, TextBuilder* out) {
  TextBuilder text = heap.Builder();
  bool right = false;
  if (spec.type == 's' && spec.escapes) {
    text.Append(*Escaped(heap, value).text);
    right = value.IsNumber();
  } else if (spec.type == 's') {
    AppendStr(value, &text);
    right = value.IsNumber();
  } else {
    const bool fits =
        value.IsInteger() || (value.Is(Kind::kFloat) && value.real > -9e18 && value.real < 9e18);
    const std::string number = fits ? NumberText(value, spec) : "";
    if (number.empty()) return "this format does not fit a " + std::string(TypeName(value));
    text.Append(number, value.origin());
    right = true;
  }
  const Text* body = heap.Copy(text);
  if (spec.type == 's' && spec.precision >= 0) {
    const size_t end = ByteOfCharacter(body->bytes(), static_cast<size_t>(spec.precision));
    body = heap.Slice(*body, 0, end);
  }
  const int missing =
      spec.width - static_cast<int>(std::min<size_t>(CountCharacters(body->bytes()), kMaxWidth));
  const char align = spec.align != '\0' ? spec.align : right ? '>' : '<';
  const int before = missing <= 0 ? 0 : align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const bool zeros = spec.zeros && right && spec.align == '\0';
  const bool has_sign =
      zeros && body->size() > 0 && (body->bytes()[0] == '-' || body->bytes()[0] == '+');
  if (has_sign) out->AppendPart(*body, 0, 1);
  for (int i = 0; i < before; ++i) out->Append(zeros ? "0" : spec.fill, kTemplate);
  out->AppendPart(*body, has_sign ? 1 : 0, body->size());
  for (int i = before; i < missing; ++i) out->Append(spec.fill, kTemplate);
  return "";
}

// Parses the part between % and the type; `*at` ends after the type.
bool ParsePercent(std::string_view format, size_t* at, std::string_view* name, Spec* spec) {
  if (*at < format.size() && format[*at] == '(') {
    const size_t close = format.find(')', *at);
    if (close == std::string_view::npos) return false;
    *name = format.substr(*at + 1, close - *at - 1);
    *at = close + 1;
  }
  // Unlike format(), % aligns to the right.
  bool left = false;
  for (; *at < format.size() && std::string_view("-+ 0#").find(format[*at]) != std::string::npos;
       ++*at) {
    const char flag = format[*at];
    left = left || flag == '-';
    spec->zeros = spec->zeros || flag == '0';
    if (flag == '+' || flag == ' ') spec->sign = flag;
  }
  if (!TakeNumber(format, at, &spec->width)) return false;
  if (*at < format.size() && format[*at] == '.') {
    ++*at;
    if (!TakeNumber(format, at, &spec->precision)) return false;
  }
  if (*at >= format.size()) return false;
  spec->type = format[(*at)++];
  if (left) spec->align = '<';
  if (!left && !(spec->zeros && spec->type != 's')) spec->align = '>';
  return true;
}

// Parses the part after the colon of {name:spec}.
bool ParseSpec(std::string_view text, Spec* spec) {
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && (text[i] == '<' || text[i] == '>' || text[i] == '^');
  };
  const size_t first = text.empty() ? 0 : FirstCharacter(text).size;
  if (first > 0 && is_align(first)) {
    spec->fill = text.substr(0, first);
    spec->align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec->align = text[at++];
  }
  if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string::npos) {
    spec->sign = text[at++];
  }
  if (at < text.size() && text[at] == '0') {
    spec->zeros = true;
    ++at;
  }
  if (!TakeNumber(text, &at, &spec->width)) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!TakeNumber(text, &at, &spec->precision)) return false;
  }
  if (at < text.size()) spec->type = text[at++];
  if (spec->type == 's' && spec->precision >= 0) return at == text.size();
  return at == text.size();
}

// Finds the value of {field}: a number, a name, or the next value. Attributes are refused.
bool FieldValue(Call& call, std::string_view field, size_t* next, Value* value) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view name = field.substr(0, end);
  if (end < field.size()) return call.Fail("format() takes no attributes of " + Quoted(name));
  const bool number = name.find_first_not_of("0123456789") == std::string_view::npos;
  if (number && name.size() < 9) {
    const size_t index = name.empty() ? (*next)++ : std::stoul(std::string(name));
    if (index >= call.args.size()) return call.Fail("format() has too few arguments");
    *value = call.args[index];
    return true;
  }
  for (const auto& [key, keyword] : call.keywords) {
    if (key != name) continue;
    *value = keyword;
    return true;
  }
  return call.Fail("format() has no argument " + Quoted(name));
}

// Formats one {field:spec}; `inside` is the text between the braces.
bool AppendField(Call& call, std::string_view inside, size_t* next, TextBuilder* out) {
  const size_t colon = std::min(inside.find(':'), inside.size());
  Spec spec;
  if (colon < inside.size() && !ParseSpec(inside.substr(colon + 1), &spec)) {
    return call.Fail("format() does not support the format " + Quoted(inside.substr(colon)));
  }
  std::string_view field = inside.substr(0, colon);
  if (field.find('!') != std::string_view::npos) {
    return call.Fail("format() takes no conversions");
  }
  Value value;
  if (!FieldValue(call, field, next, &value)) return false;
  const bool number = value.IsNumber() && spec.type == 's' && spec.precision >= 0;
  if (number) spec.type = 'g';
  if (!call.self.is_markup) {
    const std::string error = AppendFormatted(value, spec, call.heap(), out);
    return error.empty() || call.Fail(error);
  }
  if (value.is_markup && colon + 1 < inside.size()) {
    return call.Fail("format() does not support a format for markup");
  }
  TextBuilder text = call.heap().Builder();
  const std::string error = AppendFormatted(value, spec, call.heap(), &text);
  const Text* plain = call.heap().Copy(text);
  value.is_markup ? out->Append(*plain) : AppendEscaped(*plain, out);
  return error.empty() || call.Fail(error);
}

}  // namespace

bool FormatPercent(Runtime& run, const Node& node, const Value& format, const Value& values,
                   Value* result) {
  const std::string_view text = format.bytes();
  TextBuilder out = run.heap().Builder();
  size_t next = 0;
  const bool is_tuple = values.Is(Kind::kTuple);
  const size_t count = is_tuple ? values.list->items.size() : 1;
  for (size_t at = 0; at < text.size() && !out.overflowed();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.AppendPart(*format.text, at, percent - at);
    if (percent == text.size()) break;
    at = percent + 1;
    if (at < text.size() && text[at] == '%') {
      out.AppendPart(*format.text, at++, 1);
      continue;
    }
    std::string_view name;
    Spec spec;
    if (!ParsePercent(text, &at, &name, &spec)) return run.Fail(node, "incomplete format");
    spec.escapes = format.is_markup;
    Value value = values;
    if (name.data() != nullptr) {
      const Value* found = values.Is(Kind::kDict) ? values.dict->Find(name) : nullptr;
      if (found == nullptr) return run.Fail(node, "the format has no value " + Quoted(name));
      value = *found;
    } else {
      if (next >= count) return run.Fail(node, "not enough arguments for format string");
      if (is_tuple) value = values.list->items[next];
      ++next;
    }
    const std::string error = AppendFormatted(value, spec, run.heap(), &out);
    if (!error.empty()) return run.Fail(node, error);
  }
  // Python treats these as mappings here, whose entries need not all be used.
  const bool is_mapping =
      values.Is(Kind::kDict) || values.Is(Kind::kList) || values.Is(Kind::kUndefined);
  if (next < count && !is_mapping) {
    return run.Fail(node, "not all arguments converted during string formatting");
  }
  *result = Value::String(run.heap().Copy(out));
  result->is_markup = format.is_markup;
  return true;
}

bool FormatBraces(Call& call, const Value& format, const Text** result) {
  const std::string_view text = format.bytes();
  TextBuilder out = call.heap().Builder();
  size_t next = 0;
  for (size_t at = 0; at < text.size() && !out.overflowed();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.AppendPart(*format.text, at, brace - at);
    if (brace == text.size()) break;
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
      out.AppendPart(*format.text, brace, 1);
      at = brace + 2;
      continue;
    }
    const size_t close = text.find('}', brace);
    if (text[brace] == '}' || close == std::string_view::npos) {
      return call.Fail("single brace in a format string");
    }
    if (!AppendField(call, text.substr(brace + 1, close - brace - 1), &next, &out)) return false;
    at = close + 1;
  }
  *result = call.heap().Copy(out);
  return true;
}

}  // namespace kuiper::jinja
