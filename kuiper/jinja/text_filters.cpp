// Filters that return texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"
#include "kuiper/jinja/markup.h"
#include "kuiper/jinja/print.h"
#include "kuiper/jinja/string_format.h"

namespace kuiper::jinja {
namespace {

bool Finish(Call& call, const TextBuilder& builder, Value* result) {
  *result = Value::String(call.heap().Copy(builder));
  return true;
}

// Applies a string method as a filter to any value that can be printed.
template <const char* kMethod>
bool AsMethod(Call& call, Value* result) {
  const bool is_markup = call.self.is_markup;
  call.self = Value::String(call.SelfText());
  if (!FindStringMethod(kMethod)->function(call, result)) return false;
  result->is_markup = is_markup;
  return true;
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize",
               kStrip[] = "strip";

// Words begin in upper case and continue in lower case; they begin after space and - ( { [ <.
bool Title(Call& call, Value* result) {
  const Text& text = *call.SelfText();
  TextBuilder builder = call.heap().Builder();
  bool starts = true;
  for (size_t at = 0; at < text.size();) {
    const Character c = FirstCharacter(text.bytes().substr(at));
    std::string changed;
    AppendCase(c.code, starts ? Case::kUpper : Case::kLower, &changed);
    builder.Append(changed, text.OriginAt(at));
    starts = IsSpace(c.code) || std::u32string_view(U"-({[<").find(c.code) != std::u32string::npos;
    at += c.size;
  }
  return Finish(call, builder, result);
}

bool String(Call& call, Value* result) {
  *result = Value::String(call.SelfText());
  result->is_markup = call.self.is_markup;
  return true;
}

bool Safe(Call& call, Value* result) {
  *result = Value::String(call.SelfText());
  result->is_markup = true;
  return true;
}

bool Escape(Call& call, Value* result) {
  *result = Escaped(call.heap(), call.self);
  return true;
}

bool ForceEscape(Call& call, Value* result) {
  *result = Escaped(call.heap(), Value::String(call.SelfText()));
  return true;
}

bool Replace(Call& call, Value* result) {
  call.self = Value::String(call.SelfText());
  for (size_t i = 0; i < 2; ++i) {
    if (call.args[i].Is(Kind::kString)) continue;
    TextBuilder builder = call.heap().Builder();
    AppendStr(call.args[i], &builder);
    call.args[i] = Value::String(call.heap().Copy(builder));
  }
  return FindStringMethod("replace")->function(call, result);
}

bool ToJson(Call& call, Value* result) {
  JsonStyle style;
  style.ensure_ascii = call.Flag(0);
  style.sort_keys = call.Flag(3);
  if (call.Given(1) && !call.args[1].Is(Kind::kNone)) {
    style.item_separator = std::string(1, ',');
    if (call.args[1].Is(Kind::kString)) {
      style.indent = call.args[1].bytes();
    } else if (call.args[1].IsInteger() && call.args[1].integer <= 64) {
      style.indent.emplace(static_cast<size_t>(std::max<int64_t>(call.args[1].integer, 0)), ' ');
    } else {
      return call.Fail("indent is neither a number up to 64 nor a string");
    }
  }
  if (call.Given(2) && !call.args[2].Is(Kind::kNone)) {
    const Value& pair = call.args[2];
    if (!pair.IsSequence() || pair.list->items.size() != 2 ||
        !pair.list->items[0].Is(Kind::kString) || !pair.list->items[1].Is(Kind::kString)) {
      return call.Fail("separators are two strings");
    }
    style.item_separator = pair.list->items[0].bytes();
    style.key_separator = pair.list->items[1].bytes();
  }
  if (call.self.Is(Kind::kUndefined)) return call.Fail(UndefinedMessage(call.self));
  TextBuilder builder = call.heap().Builder();
  if (const auto error = AppendJson(call.self, style, &builder)) return call.Fail(*error);
  return Finish(call, builder, result);
}

// True if str.splitlines finds a line break at the end.
bool TrailingBreak(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return IsLineBreak(FirstCharacter(text.substr(begin)).code);
}

bool Indent(Call& call, Value* result) {
  if (!call.self.Is(Kind::kString)) {
    return call.Fail("indent takes a string, not " + QuotedType(call.self));
  }
  const Text& text = *call.SelfText();
  const Text* indent = nullptr;
  int64_t width = 4;
  if (call.Given(0) && call.args[0].Is(Kind::kString)) {
    indent = call.args[0].text;
  } else {
    if (!call.Integer(0, "width", &width)) return false;
    if (width > 1000) return call.Fail("width is above 1000");
    indent = call.heap().Copy(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
                              kTemplate);
  }
  Call lines{call.run, call.node, Value::String(&text), {Value::Bool(false)}, {}};
  Value list;
  if (!FindStringMethod("splitlines")->function(lines, &list)) return false;
  // A line break at the end begins an empty line.
  const bool ends_open = text.size() == 0 || TrailingBreak(text.bytes());
  if (ends_open) call.heap().Push(list.list, Value::String(call.heap().Refer("", kTemplate)));
  TextBuilder builder = call.heap().Builder();
  bool first = true;
  for (const Value& line : list.list->items) {
    if (!first) builder.Append("\n", kTemplate);
    if (first ? call.Flag(1) : line.text->size() > 0 || call.Flag(2)) builder.Append(*indent);
    builder.Append(*line.text);
    first = false;
  }
  Finish(call, builder, result);
  result->is_markup = call.self.is_markup;
  return true;
}

bool Truncate(Call& call, Value* result) {
  int64_t length = 255, leeway = 5;
  if (!call.Integer(0, "length", &length) || !call.Integer(3, "leeway", &leeway)) return false;
  const Text dots("...", kTemplate);
  const Text* end = &dots;
  if (call.Given(2) && !call.String(2, "end", &end)) return false;
  const bool is_markup = call.self.is_markup;
  const int64_t end_length = static_cast<int64_t>(CountCharacters(end->bytes()));
  if (length < end_length) return call.Fail("length is below that of the end");
  if (!call.self.Is(Kind::kString)) {
    // A short enough value stays as it is; of longer values only strings can be cut.
    Value size;
    if (!FindFilter("length")->function(call, &size)) return false;
    *result = call.self;
    return size.integer <= length + leeway ||
           call.Fail("truncate takes a string, not " + QuotedType(call.self));
  }
  const Text& text = *call.self.text;
  *result = Value::String(&text);
  result->is_markup = is_markup;
  if (static_cast<int64_t>(CountCharacters(text.bytes())) <= length + leeway) return true;
  size_t keep = ByteOfCharacter(text.bytes(), static_cast<size_t>(length - end_length));
  if (!call.Flag(1)) {
    const size_t space = text.bytes().substr(0, keep).rfind(' ');
    if (space != std::string_view::npos) keep = space;
  }
  TextBuilder builder = call.heap().Builder();
  builder.AppendPart(text, 0, keep);
  if (is_markup && !(call.Given(2) && call.args[2].is_markup)) {
    AppendEscaped(*end, &builder);
  } else {
    builder.Append(*end);
  }
  Finish(call, builder, result);
  result->is_markup = is_markup;
  return true;
}

bool Format(Call& call, Value* result) {
  Value values;
  if (call.keywords.empty()) {
    List* list = call.heap().NewList();
    list->items = call.args;
    values = Value::OfList(list, Kind::kTuple);
  } else {
    Dict* dict = call.heap().NewDict();
    for (const auto& [name, value] : call.keywords) {
      call.heap().Set(dict, Value::String(call.heap().Refer(name, kTemplate)), value);
    }
    values = Value::OfDict(dict);
  }
  Value format = Value::String(call.SelfText());
  format.is_markup = call.self.is_markup;
  return FormatPercent(call.run, call.node, format, values, result);
}

std::optional<double> NumberIn(std::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

bool ToInt(Call& call, Value* result) {
  int64_t base = 10;
  if (!call.Integer(1, "base", &base)) return false;
  if (base < 2 || base > 36) return call.Fail("base is not between 2 and 36");
  if (call.self.Is(Kind::kUndefined)) return call.Fail(UndefinedMessage(call.self));
  *result = call.Given(0) ? call.args[0] : Value::Int(0);
  if (call.self.IsInteger()) {
    *result = Value::Int(call.self.integer, call.self.from_data);
    return true;
  }
  std::optional<double> real;
  if (call.self.Is(Kind::kFloat)) real = call.self.real;
  if (call.self.Is(Kind::kString)) {
    std::string_view text = call.self.bytes();
    text.remove_prefix(LeadingSpace(text));
    text.remove_suffix(TrailingSpace(text));
    if (text.starts_with('+')) text.remove_prefix(1);
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value, static_cast<int>(base));
    if (read.ec == std::errc() && read.ptr == end) {
      *result = Value::Int(value, call.self.text->OriginAt(0) != kTemplate);
      return true;
    }
    real = NumberIn(text);
  }
  if (real.has_value() && std::abs(*real) < 9e18) {
    *result = Value::Int(static_cast<int64_t>(*real), true);
  }
  return true;
}

bool ToFloat(Call& call, Value* result) {
  if (call.self.Is(Kind::kUndefined)) return call.Fail(UndefinedMessage(call.self));
  *result = call.Given(0) ? call.args[0] : Value::Float(0);
  if (call.self.IsNumber()) {
    *result = Value::Float(call.self.AsDouble(), call.self.from_data);
  } else if (call.self.Is(Kind::kString)) {
    if (const auto value = NumberIn(call.self.bytes())) *result = Value::Float(*value, true);
  }
  return true;
}

bool Absolute(Call& call, Value* result) {
  const Value& v = call.self;
  if (!v.IsNumber()) return call.Fail("not a number");
  if (v.IsInteger() && v.integer == INT64_MIN) return call.Fail("the integer is too large");
  *result = v.Is(Kind::kFloat) ? Value::Float(std::abs(v.real), v.from_data)
                               : Value::Int(std::abs(v.integer), v.from_data);
  return true;
}

bool Round(Call& call, Value* result) {
  int64_t precision = 0;
  if (!call.self.IsNumber()) return call.Fail("not a number");
  if (!call.Integer(0, "precision", &precision)) return false;
  if (std::abs(precision) > 20) return call.Fail("precision is not between -20 and 20");
  std::string_view method = "common";
  if (call.Given(1)) {
    const Text* text = nullptr;
    if (!call.String(1, "method", &text)) return false;
    method = text->bytes();
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double value = call.self.AsDouble();
  double rounded = 0;
  if (method == "common") {
    // Python rounds the decimal value; exact ties go to even.
    rounded = precision == 0 ? std::nearbyint(value) : std::nearbyint(value * scale) / scale;
    if (precision > 0) {
      char buffer[400];
      std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), value);
      rounded = NumberIn(buffer).value_or(rounded);
    }
  } else if (method == "ceil") {
    rounded = std::ceil(value * scale) / scale;
  } else if (method == "floor") {
    rounded = std::floor(value * scale) / scale;
  } else {
    return call.Fail("method is not one of common, ceil, floor");
  }
  *result = Value::Float(rounded, call.self.from_data);
  if (call.self.IsInteger() && method == "common" && precision >= 0) *result = call.self;
  return true;
}

constexpr Builtin kFilters[] = {
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, ToJson},
    {"trim", "chars", 0, AsMethod<kStrip>},
    {"string", "", 0, String},
    {"safe", "", 0, Safe},
    {"upper", "", 0, AsMethod<kUpper>},
    {"lower", "", 0, AsMethod<kLower>},
    {"capitalize", "", 0, AsMethod<kCapitalize>},
    {"title", "", 0, Title},
    {"replace", "old,new,count", 2, Replace},
    {"escape", "", 0, Escape},
    {"e", "", 0, Escape},
    {"forceescape", "", 0, ForceEscape},
    {"indent", "width,first,blank", 0, Indent},
    {"truncate", "length,killwords,end,leeway", 0, Truncate},
    {"format", "*", 0, Format},
    {"int", "default,base", 0, ToInt},
    {"float", "default", 0, ToFloat},
    {"abs", "", 0, Absolute},
    {"round", "precision,method", 0, Round},
};

}  // namespace

const Builtin* FindTextFilter(std::string_view name) {
  return FindIn(kFilters, name);
}

}  // namespace kuiper::jinja
