#include "kuiper/command_line/config_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "kuiper/base/text.h"
#include "kuiper/base/trim.h"
#include "kuiper/io/text_input.h"

namespace kuiper {
namespace {

// "NAME = VALUE" -> "--NAME=VALUE"
std::string ArgumentOf(const std::string& line) {
  const size_t equals = line.find('=');
  const std::string name = "--" + std::string(Trimmed(line.substr(0, equals)));
  return equals == std::string::npos ? name
                                     : name + "=" + std::string(Trimmed(line.substr(equals + 1)));
}

// Checks that the line is one flag that is allowed in a file.
Status CheckLine(const std::string& argument, const FlagTable& table, const std::string& flag) {
  KU_ASSIGN_OR_RETURN(const ParsedArgs parsed, ParseArgs({argument}, table));
  if (!parsed.in_order.empty() && !parsed.given(flag)) return OkStatus();
  return Status(StatusCode::kInvalidArgument, argument + " is not allowed in a file");
}

}  // namespace

StatusOr<std::vector<std::string>> WithConfigFile(const std::vector<std::string>& arguments,
                                                  const FlagTable& table, const std::string& flag) {
  const auto parsed = ParseArgs(arguments, table);
  // The caller parses the arguments again and reports the error.
  if (!parsed.ok() || !parsed->given(flag)) return arguments;
  const std::string& path = parsed->values.at(flag);
  std::ifstream file(path);
  if (!file) {
    return Status(StatusCode::kInput, "cannot open " + path + ": " + std::strerror(errno));
  }
  std::vector<std::string> all;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = std::string(Trimmed(number == 1 ? WithoutByteOrderMark(line) : line));
    if (line.empty() || line[0] == '#') continue;
    all.push_back(ArgumentOf(line));
    const Status checked = CheckLine(all.back(), table, flag);
    if (checked.ok()) continue;
    return Status(checked.code(),
                  path + ", line " + std::to_string(number) + ": " + checked.message(Param),
                  checked.hint(Param));
  }
  if (!file.eof()) return Status(StatusCode::kInput, "cannot read " + Quoted(path));
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

}  // namespace kuiper
