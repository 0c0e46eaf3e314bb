// What --help prints about flags.
#include <algorithm>

#include "demo/args.h"

namespace kuiper::demo {
namespace {

constexpr size_t kWidth = 80;  // of a terminal

bool IsOn(const Flag& flag) {
  return IsSwitch(flag.variable) && VariableText(flag.variable) == "true";
}

// The text in lines that end before column 80; those behind the first begin at `column`.
std::string Wrapped(const std::string& text, size_t column) {
  std::string lines;
  size_t at = column;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (at > column && at + end - begin >= kWidth) {
      lines.back() = '\n';  // instead of the blank
      lines.append(column, ' ');
      at = column;
    }
    lines += text.substr(begin, end - begin) + ' ';
    at += end - begin + 1;
    begin = end + 1;
  }
  if (!lines.empty()) lines.pop_back();
  return lines;
}

// "-n, --max-tokens N, --other-name"
std::string FlagHead(const FlagTable& table, const Flag& flag) {
  std::string head = flag.short_name.empty() ? "  " : "  -" + flag.short_name + ", ";
  head += "--" + flag.name;
  if (!flag.value_name.empty()) head += " " + flag.value_name;
  if (IsOn(flag)) head += ", --no-" + flag.name;
  for (const FlagAlias& alias : table.aliases) {
    const char* dashes = alias.alias.starts_with('-') ? ", " : ", --";
    if (alias.name == flag.name) head += dashes + alias.alias;
  }
  return head;
}

// What the description does not say itself.
std::string DefaultText(const Flag& flag) {
  if (flag.help.find("default") != std::string::npos) return "";
  if (IsSwitch(flag.variable)) return IsOn(flag) ? " (default on)" : "";
  const std::string value = VariableText(flag.variable, flag.limits);
  return value.empty() ? "" : " (default " + value + ")";
}

std::string FlagHelp(const FlagTable& table, const Flag& flag) {
  constexpr size_t kColumn = 34;
  std::string text = FlagHead(table, flag);
  text += text.size() < kColumn ? std::string(kColumn - text.size(), ' ')
                                : "\n" + std::string(kColumn, ' ');
  const std::string what =
      flag.use == FlagUse::kNoEffect ? "accepted, has no effect" : flag.help + DefaultText(flag);
  return text + Wrapped(what, kColumn) + "\n";
}

}  // namespace

std::string FlagsHelp(const FlagTable& table, bool all) {
  std::string text, group;
  for (const Flag& flag : table.flags) {
    if (flag.use == FlagUse::kUnavailable || !(all || flag.is_common)) continue;
    const std::string title = all ? flag.group : "Most used";
    if (title != group) text += "\n" + title + ":\n";
    group = title;
    text += FlagHelp(table, flag);
  }
  text += all ? "  -h, --help                      this text\n"
              : "  -h, --help                      this text; --help all: every option\n";
  return text + "  --version                       version and compiled devices\n";
}

}  // namespace kuiper::demo
