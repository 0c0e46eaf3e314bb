// Formats the --help text of flags.
#include <iterator>
#include <sstream>

#include "kuiper/base/terminal_text.h"
#include "kuiper/command_line/args.h"
#include "kuiper/command_line/exit_code.h"

namespace kuiper {
namespace {

bool IsOn(const Flag& flag) {
  return IsSwitch(flag.variable) && VariableText(flag.variable) == "true";
}

// "-n, --max-tokens N, --other-name"
std::string FlagHead(const FlagTable& table, const Flag& flag) {
  std::string head = flag.short_name.empty() ? "  " : "  -" + flag.short_name + ", ";
  head += "--" + flag.name;
  if (!flag.value_name.empty()) head += " " + flag.value_name;
  if (IsOn(flag)) head += ", " + FlagName("no-" + flag.name);
  for (const FlagAlias& alias : table.aliases) {
    const char* dashes = alias.alias.starts_with('-') ? ", " : ", --";
    if (alias.name == flag.name && alias.is_listed) head += dashes + alias.alias;
  }
  return head;
}

// Returns the default, unless the description already states it.
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
  std::istringstream words(flag.help + DefaultText(flag));
  return text + Wrapped({std::istream_iterator<std::string>(words), {}}, kColumn) + "\n";
}

}  // namespace

std::string FlagsHelp(const FlagTable& table, bool all) {
  std::string text, group;
  for (const Flag& flag : table.flags) {
    if (flag.use != FlagUse::kWorks || !(all || flag.is_common)) continue;
    const std::string title = all ? flag.group : "Most used";
    if (title != group) text += "\n" + title + ":\n";
    group = title;
    text += FlagHelp(table, flag);
  }
  const std::string help = FlagName("help");
  text += "  -h, " + help + "                      this text";
  text += all ? "\n" : "; " + help + " all: every option\n";
  return text + "  " + FlagName("version") +
         "                       version and compiled devices\n";
}

}  // namespace kuiper
