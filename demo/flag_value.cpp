#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "demo/flag_table.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

Status Bad(const std::string& message) {
  return Status(StatusCode::kInvalidArgument, message);
}

// Values are user text: a message shows at most this much of one, and no line breaks.
std::string Quoted(const std::string& value) {
  constexpr size_t kMaxShown = 80;
  std::string shown = ReplaceInvalidUtf8(value.substr(0, kMaxShown));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return "'" + shown + (value.size() > kMaxShown ? "...'" : "'");
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

template <typename T>
bool ParseNumber(const std::string& text, T* out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *out);
  return result.ec == std::errc() && result.ptr == end;
}

// "8", "0.5", "1e+15" without trailing zeros.
std::string Short(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    return std::to_string(static_cast<int64_t>(value));
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string Range(const FlagSpec& flag) {
  if (flag.max >= std::numeric_limits<int32_t>::max()) return "at least " + Short(flag.min);
  return (flag.open_min ? "more than " : "from ") + Short(flag.min) +
         (flag.open_min ? " and at most " : " to ") + Short(flag.max);
}

StatusOr<std::string> CheckInt(const FlagSpec& flag, const std::string& spelled,
                               const std::string& value) {
  int64_t number = 0;
  if (!ParseNumber(value, &number)) {
    return Bad(spelled + ": " + Quoted(value) + " is not a whole number");
  }
  if (number < flag.min || number > flag.max) {
    return Bad(spelled + ": " + value + " is out of range (must be " + Range(flag) +
               (flag.max >= std::numeric_limits<int32_t>::max() ? " and fit into 31 bits" : "") +
               ")");
  }
  if (flag.kind == FlagKind::kPowerOfTwo && (number & (number - 1)) != 0) {
    return Bad(spelled + ": " + value + " is not a power of two from " + Short(flag.min) + " to " +
               Short(flag.max));
  }
  return value;
}

StatusOr<std::string> CheckFloat(const FlagSpec& flag, const std::string& spelled,
                                 const std::string& value) {
  double number = 0;
  if (!ParseNumber(value, &number) || !std::isfinite(number)) {
    return Bad(spelled + ": " + Quoted(value) + " is not a number");
  }
  if (number < flag.min || number > flag.max || (flag.open_min && number == flag.min)) {
    return Bad(spelled + ": " + value + " is out of range (must be " + Range(flag) + ")");
  }
  return value;
}

StatusOr<std::string> CheckSize(const FlagSpec& flag, const std::string& spelled,
                                const std::string& value) {
  std::string digits = value;
  double unit = 1;
  if (!digits.empty() && (digits.back() == 'B' || digits.back() == 'b')) digits.pop_back();
  if (digits.size() > 1 && (digits.back() == 'i')) digits.pop_back();
  if (!digits.empty()) {
    const char suffix = digits.back();
    if (suffix == 'K' || suffix == 'k') unit = 1024.0;
    if (suffix == 'M' || suffix == 'm') unit = 1024.0 * 1024;
    if (suffix == 'G' || suffix == 'g') unit = 1024.0 * 1024 * 1024;
    if (unit != 1) digits.pop_back();
  }
  double number = 0;
  if (!ParseNumber(digits, &number) || !std::isfinite(number)) {
    return Bad(spelled + ": " + Quoted(value) + " is not a size (examples: 512M, 2G)");
  }
  const double bytes = std::floor(number * unit);
  if (bytes < flag.min || bytes > flag.max) {
    return Bad(spelled + ": " + value + " is out of range (must be at least 1 byte and at most " +
               "1 PB)");
  }
  return std::to_string(static_cast<uint64_t>(bytes));
}

StatusOr<std::string> CheckBool(const std::string& spelled, const std::string& value) {
  for (const char* yes : {"true", "on", "yes", "1"}) {
    if (value == yes) return std::string("true");
  }
  for (const char* no : {"false", "off", "no", "0"}) {
    if (value == no) return std::string("false");
  }
  return Bad(spelled + ": " + Quoted(value) + " is not one of true, false");
}

StatusOr<std::string> CheckChoice(const FlagSpec& flag, const std::string& spelled,
                                  const std::string& value) {
  std::string list;
  for (const std::string& choice : Split(flag.choices, '|')) {
    if (value == choice) return value;
    list += (list.empty() ? "" : ", ") + choice;
  }
  return Bad(spelled + ": " + Quoted(value) + " is not one of " + list);
}

StatusOr<std::string> CheckDevice(const std::string& spelled, const std::string& value) {
  if (value == "cpu" || value == "simt") return value;
  if (value == "cuda") return std::string("cuda:0");
  int index = -1;
  if (value.starts_with("cuda:") && ParseNumber(value.substr(5), &index) && index >= 0 &&
      index < 1024) {
    return value;
  }
  return Bad(spelled + ": " + Quoted(value) + " is not one of cpu, simt, cuda:N");
}

StatusOr<std::string> CheckByKind(const FlagSpec& flag, const std::string& spelled,
                                  const std::string& value) {
  switch (flag.kind) {
    case FlagKind::kBool:
      return CheckBool(spelled, value);
    case FlagKind::kInt:
    case FlagKind::kPowerOfTwo:
      return CheckInt(flag, spelled, value);
    case FlagKind::kIntList:
      for (const std::string& item : Split(value, ',')) {
        auto checked = CheckInt(flag, spelled, item);
        if (!checked.ok()) return checked;
      }
      return value;
    case FlagKind::kUint64: {
      uint64_t number = 0;
      if (ParseNumber(value, &number)) return value;
      return Bad(spelled + ": " + Quoted(value) + " is not a whole number from 0 to 2^64-1");
    }
    case FlagKind::kFloat:
      return CheckFloat(flag, spelled, value);
    case FlagKind::kSize:
      return CheckSize(flag, spelled, value);
    case FlagKind::kText:
    case FlagKind::kTextList:
      return value;
    case FlagKind::kChoice:
      return CheckChoice(flag, spelled, value);
    case FlagKind::kDevice:
      return CheckDevice(spelled, value);
  }
  return value;
}

}  // namespace

StatusOr<std::string> CheckFlagValue(const FlagSpec& flag, const std::string& spelled,
                                     const std::string& value) {
  KU_ASSIGN_OR_RETURN(std::string checked, CheckByKind(flag, spelled, value));
  const bool some_work = flag.harmless[0] != '\0';
  if (flag.use == FlagUse::kUnavailable && !(some_work && checked == flag.harmless)) {
    // The bare option for flags that cannot work at all, with the value where others can.
    return Bad(spelled + (some_work ? " " + checked : "") + " " + flag.why);
  }
  return checked;
}

}  // namespace kuiper::demo
