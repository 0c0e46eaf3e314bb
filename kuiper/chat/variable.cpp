#include "kuiper/chat/variable.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr char kAuto[] = "auto";
constexpr double kAllOnes = -1;  // Limits::min of a uint64 that stores negative numbers as 2^64-1

// A value with its name, for messages.
struct Input {
  const std::string& spelled;
  const std::string& text;
  const Limits& limits;
};

Status Bad(const Input& input, const std::string& what) {
  return Status(StatusCode::kInvalidArgument, input.spelled + ": " + what);
}

// Quotes a text for a message; shows at most kMaxShown bytes.
std::string Quoted(const std::string& text) {
  constexpr size_t kMaxShown = 80;
  return std::string("'")
      .append(ReplaceInvalidUtf8(text.substr(0, kMaxShown)))
      .append(text.size() > kMaxShown ? "...'" : "'");
}

// Drops ".0": programs that only have floats write whole numbers as 3.0.
std::string_view WithoutZeroFraction(std::string_view text) {
  const size_t dot = text.find('.');
  const bool is_zero = dot != std::string_view::npos && dot + 1 < text.size() &&
                       text.find_first_not_of('0', dot + 1) == std::string_view::npos;
  return is_zero ? text.substr(0, dot) : text;
}

template <typename T>
bool ParseNumber(std::string_view text, T* out) {
  if constexpr (std::is_integral_v<T>) text = WithoutZeroFraction(text);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *out);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

// Formats without trailing zeros: "8", "0.5", "1e+15".
std::string Short(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    return std::to_string(static_cast<int64_t>(value));
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

Status CheckRange(const Input& input, double number, const char* also = "") {
  const Limits& limits = input.limits;
  if (number >= limits.min && number <= limits.max && !(limits.above_min && number == limits.min)) {
    return OkStatus();
  }
  std::string range = "at least " + Short(limits.min) + also;
  if (limits.max < INT32_MAX) {
    range = (limits.above_min ? "more than " : "from ") + Short(limits.min) +
            (limits.above_min ? " and at most " : " to ") + Short(limits.max);
  }
  return Bad(input, input.text + " is out of range (must be " + range + ")");
}

Status Parse(const Input& input, bool* out) {
  for (const char* yes : {"true", "on", "yes", "1"}) {
    if (input.text == yes) return *out = true, OkStatus();
  }
  for (const char* no : {"false", "off", "no", "0"}) {
    if (input.text == no) return *out = false, OkStatus();
  }
  return Bad(input, Quoted(input.text) + " is not one of true, false");
}

Status Parse(const Input& input, int64_t* out) {
  int64_t number = 0;
  if (!ParseNumber(input.text, &number)) {
    constexpr size_t kManyDigits = 19;  // fewer fit 64 bits
    const bool is_large = input.text.size() >= kManyDigits &&
                          input.text.find_first_not_of("0123456789", 1) == std::string::npos;
    return Bad(input,
               Quoted(input.text) + (is_large ? " is out of range" : " is not a whole number"));
  }
  const Limits& limits = input.limits;
  const char* also = limits.minus_one.has_value() ? " and at most 2147483647, or -1 for no limit"
                                                  : " and at most 2147483647";
  KU_RETURN_IF_ERROR(CheckRange(input, static_cast<double>(number), also));
  if (limits.power_of_two && (number & (number - 1)) != 0) {
    return Bad(input, input.text + " is not a power of two from " + Short(limits.min) + " to " +
                          Short(limits.max));
  }
  *out = number;
  return OkStatus();
}

Status Parse(const Input& input, int* out) {
  if (input.limits.automatic.has_value() && input.text == kAuto) {
    return *out = *input.limits.automatic, OkStatus();
  }
  if (input.limits.minus_one.has_value() && WithoutZeroFraction(input.text) == "-1") {
    return *out = *input.limits.minus_one, OkStatus();
  }
  int64_t number = 0;
  KU_RETURN_IF_ERROR(Parse(input, &number));
  *out = static_cast<int>(number);
  return OkStatus();
}

Status ParseBytes(const Input& input, uint64_t* out) {
  std::string_view digits = input.text;
  if (digits.ends_with('B') || digits.ends_with('b')) digits.remove_suffix(1);
  if (digits.size() > 1 && digits.ends_with('i')) digits.remove_suffix(1);
  double unit = 1;
  constexpr std::string_view kUnits = "KMGkmg";
  if (!digits.empty() && kUnits.find(digits.back()) != std::string_view::npos) {
    unit = std::pow(1024.0, static_cast<double>(kUnits.find(digits.back()) % 3 + 1));
    digits.remove_suffix(1);
  }
  double number = 0;
  if (!ParseNumber(digits, &number) || !std::isfinite(number)) {
    return Bad(input, Quoted(input.text) + " is not a size (examples: 512M, 2G)");
  }
  constexpr double kMax = 1e15;
  const double bytes = std::floor(number * unit);
  if (bytes < 1 || bytes > kMax) {
    return Bad(input, input.text + " is out of range (must be at least 1 byte and at most 1 PB)");
  }
  *out = static_cast<uint64_t>(bytes);
  return OkStatus();
}

Status Parse(const Input& input, uint64_t* out) {
  if (input.limits.bytes) return ParseBytes(input, out);
  const bool may_be_negative = input.limits.min == kAllOnes;
  int64_t negative = 0;
  if (may_be_negative && ParseNumber(input.text, &negative) && negative < 0) {
    return *out = UINT64_MAX, OkStatus();
  }
  uint64_t number = 0;
  if (ParseNumber(input.text, &number) && !(may_be_negative && number == UINT64_MAX)) {
    return *out = number, OkStatus();
  }
  return Bad(input, Quoted(input.text) + " is not a whole number from " +
                        (may_be_negative ? "-2^63 to 2^64-2" : "0 to 2^64-1"));
}

Status Parse(const Input& input, double* out) {
  double number = 0;
  if (!ParseNumber(input.text, &number) || !std::isfinite(number)) {
    return Bad(input, Quoted(input.text) + " is not a number");
  }
  KU_RETURN_IF_ERROR(CheckRange(input, number));
  *out = number;
  return OkStatus();
}

Status Parse(const Input& input, float* out) {
  double number = 0;
  KU_RETURN_IF_ERROR(Parse(input, &number));
  *out = static_cast<float>(number);
  return OkStatus();
}

Status Parse(const Input& input, std::string* out) {
  *out = input.text;
  return OkStatus();
}

Status Parse(const Input& input, std::vector<std::string>* out) {
  out->push_back(input.text);
  return OkStatus();
}

Status Parse(const Input& input, std::vector<int>* out) {
  std::vector<int> numbers;
  for (size_t begin = 0; begin <= input.text.size();) {
    const size_t end = std::min(input.text.find(',', begin), input.text.size());
    const std::string item = input.text.substr(begin, end - begin);
    begin = end + 1;
    KU_RETURN_IF_ERROR(Parse({input.spelled, item, input.limits}, &numbers.emplace_back()));
  }
  *out = std::move(numbers);
  return OkStatus();
}

Status Parse(const Input& input, std::map<int, float>* out) {
  std::map<int, float> entries;
  for (size_t begin = 0; begin <= input.text.size();) {
    const size_t end = std::min(input.text.find(',', begin), input.text.size());
    const std::string item = input.text.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = std::min(item.find(':'), item.size());
    const std::string key = item.substr(0, colon),
                      value = item.substr(std::min(colon + 1, item.size()));
    int number = 0;
    KU_RETURN_IF_ERROR(Parse({input.spelled, key, Limits{}}, &number));
    const auto [entry, is_new] = entries.try_emplace(number);
    if (!is_new) return Bad(input, "'" + key + "' is there twice");
    KU_RETURN_IF_ERROR(Parse({input.spelled, value, input.limits}, &entry->second));
  }
  *out = std::move(entries);
  return OkStatus();
}

Status Parse(const Input& input, Device* out) {
  const std::string_view text = input.text;
  int index = 0;
  const bool has_index = text.starts_with("cuda:") && ParseNumber(text.substr(5), &index) &&
                         index >= 0 && index < 1024;
  if (text == "cuda" || has_index) {
    *out = {DeviceType::kCUDA, index};
  } else if (text == "cpu" || text == "simt") {
    *out = {text == "cpu" ? DeviceType::kCPU : DeviceType::kSimt, 0};
  } else {
    return Bad(input, Quoted(input.text) + " is not one of cpu, simt, cuda:N");
  }
  return OkStatus();
}

template <typename T>
Status Parse(const Input& input, std::optional<T>* out) {
  if (input.limits.absent != nullptr && input.text == input.limits.absent) {
    out->reset();
    return OkStatus();
  }
  T value{};
  KU_RETURN_IF_ERROR(Parse(input, &value));
  *out = std::move(value);
  return OkStatus();
}

Status Parse(const Input& input, const NamedValues& named) {
  std::string list;
  for (size_t i = 0; i < named.names.size(); ++i) {
    if (input.text == named.names[i]) return named.set(i), OkStatus();
    list.append(i == 0 ? "" : ", ").append(named.names[i]);
  }
  for (const std::string& name : named.refused) {
    if (input.text == name) {
      return Status(StatusCode::kInvalidArgument,
                    input.spelled + " " + name + " is not available in this version");
    }
    list += ", " + name;
  }
  return Bad(input, Quoted(input.text) + " is not one of " + list);
}

std::string Text(bool value) {
  return value ? "true" : "false";
}
std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}
template <typename T>
requires std::is_integral_v<T> std::string Text(T value) {
  return std::to_string(value);
}
std::string Text(Device value) {
  return DeviceName(value);
}
std::string Text(const std::string& value) {
  return value;
}
template <typename T>
std::string Text(const std::vector<T>& values) {
  std::string list;
  for (const T& value : values) list.append(list.empty() ? "" : ",").append(Text(value));
  return list;
}
std::string Text(const std::map<int, float>& values) {
  std::string list;
  for (const auto& [key, value] : values) {
    list.append(list.empty() ? "" : ",").append(Text(key)).append(":").append(Text(double{value}));
  }
  return list;
}
template <typename T>
std::string Text(const std::optional<T>& value) {
  return value.has_value() ? Text(*value) : "";
}

// Formats as "512M"; a size that no unit divides stays a plain number.
std::string SizeText(uint64_t bytes) {
  constexpr std::pair<const char*, int> kUnits[] = {{"G", 30}, {"M", 20}, {"K", 10}};
  for (const auto& [unit, shift] : kUnits) {
    if (bytes > 0 && (bytes >> shift) << shift == bytes) return Text(bytes >> shift) + unit;
  }
  return Text(bytes);
}

std::string Joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list.append(list.empty() ? "" : "|").append(name);
  return list;
}

template <typename... T>
bool Holds(const Variable& variable) {
  return (std::holds_alternative<T*>(variable) || ...);
}

}  // namespace

Status SetVariable(const Variable& variable, const Limits& limits, const std::string& spelled,
                   const std::string& text) {
  const Input input{spelled, text, limits};
  return std::visit([&](const auto& to) { return Parse(input, to); }, variable);
}

std::string VariableText(const Variable& variable, const Limits& limits) {
  if (int* const* number = std::get_if<int*>(&variable)) {
    if (limits.automatic == **number) return kAuto;
    if (limits.minus_one == **number) return "-1";
  }
  if (uint64_t* const* number = std::get_if<uint64_t*>(&variable)) {
    if (limits.min == kAllOnes && **number == UINT64_MAX) return "-1";
    if (limits.bytes) return SizeText(**number);
  }
  if (const auto* named = std::get_if<NamedValues>(&variable)) return named->names[named->get()];
  std::string text = std::visit(
      [](const auto& of) -> std::string {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(of)>>) return Text(*of);
        return "";
      },
      variable);
  return text.empty() && limits.absent != nullptr ? limits.absent : text;
}

bool IsSwitch(const Variable& variable) {
  return Holds<bool, std::optional<bool>>(variable);
}

std::string ValueName(const Variable& variable, const Limits& limits) {
  using Text = std::string;
  if (const auto* named = std::get_if<NamedValues>(&variable)) return Joined(named->names);
  if (IsSwitch(variable) || Holds<Text, std::optional<Text>, std::vector<Text>>(variable))
    return "";
  if (Holds<Device, std::optional<Device>>(variable)) return "cpu|simt|cuda:N";
  if (Holds<std::vector<int>>(variable)) return "LIST";
  if (Holds<std::map<int, float>>(variable)) return "ID:F,...";
  if (Holds<float, double, std::optional<double>>(variable)) return "F";
  if (limits.absent != nullptr) return std::string("N|") + limits.absent;
  return limits.bytes ? "SIZE" : limits.automatic.has_value() ? "N|auto" : "N";
}

}  // namespace kuiper
