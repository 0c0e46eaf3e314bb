#include "demo/config_file.h"

#include <fstream>

#include "demo/flags.h"
#include "kuiper/base/text.h"
#include "kuiper/base/trim.h"

namespace kuiper::demo {
namespace {

// "NAME = VALUE" -> "--NAME=VALUE"
std::string ArgumentOf(const std::string& line) {
  const size_t equals = line.find('=');
  const std::string name = "--" + std::string(Trimmed(line.substr(0, equals)));
  return equals == std::string::npos ? name
                                     : name + "=" + std::string(Trimmed(line.substr(equals + 1)));
}

// Whether the line is a flag of its own, of those that a file may have.
Status CheckLine(const std::string& argument, FlagPrograms program) {
  Options scratch;
  KU_ASSIGN_OR_RETURN(const ParsedArgs parsed, ParseArgs({argument}, FlagsOf(program, scratch)));
  if (!parsed.in_order.empty() && !parsed.given("config")) return OkStatus();
  return Status(StatusCode::kInvalidArgument, argument + " cannot stand in a file");
}

}  // namespace

StatusOr<std::vector<std::string>> WithConfigFile(const std::vector<std::string>& arguments,
                                                  FlagPrograms program) {
  Options scratch;
  const auto parsed = ParseArgs(arguments, FlagsOf(program, scratch));
  const std::string& path = scratch.serve.config_file;
  if (!parsed.ok() || path.empty()) return arguments;  // who reads them tells what is wrong
  std::ifstream file(path);
  std::vector<std::string> all;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = std::string(Trimmed(line));
    if (line.empty() || line[0] == '#') continue;
    all.push_back(ArgumentOf(line));
    const Status checked = CheckLine(all.back(), program);
    if (checked.ok()) continue;
    return Status(checked.code(),
                  path + ", line " + std::to_string(number) + ": " + checked.message(Param),
                  checked.hint(Param));
  }
  if (!file.eof()) return Status(StatusCode::kInput, "cannot read " + Quoted(path));
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

}  // namespace kuiper::demo
