// Parses argv into variables. Supports abbreviations, aliases, short options, positionals anywhere,
// and suggests the nearest match for typing errors. The program provides the table of flags;
// nothing here depends on what a flag means.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/chat/variable.h"

namespace kuiper {

enum class FlagUse {
  kWorks,
  kNoEffect,     // accepted for old command lines; --help does not list it
  kUnavailable,  // known, but this program cannot do it: an error
};

struct Flag {
  std::string name;             // without dashes, e.g. "prompt"
  std::string short_name = {};  // without dash, e.g. "p"; may be empty
  std::string value_name = {};  // the value's name in --help, e.g. "TEXT"; FLAGS have dashes
  Variable variable;
  std::string help = {};
  Limits limits = {};
  std::string bare_value = {};     // named values: meaning of the flag without a value
  std::string negated_value = {};  // named values: the value that --no-NAME sets
  FlagUse use = FlagUse::kWorks;
  std::string group = {};     // the title under which --help lists the flag
  bool is_common = false;     // --help lists it; the others come with --help all
  std::string why = {};       // kNoEffect, kUnavailable: the end of the message
  std::string harmless = {};  // kUnavailable: the value that is still accepted
};

// Makes a flag spelled `names`: "prompt", or with a short name "p,prompt". `value_name` is for
// variables whose type does not describe their values.
Flag MakeFlag(const std::string& names, Variable variable, std::string help, Limits limits = {},
              std::string value_name = "");

// Another spelling of a flag: a long one, or a short one with its dash. It takes the values of that
// flag unless `fixed` is set.
struct FlagAlias {
  std::string alias;
  std::string name;
  std::string fixed = {};   // takes no value; sets this one
  bool takes_bool = false;  // takes true and false for on and off
  bool is_listed = true;    // --help names it
};

struct FlagTable {
  std::vector<Flag> flags;  // flags of one group are adjacent
  std::vector<FlagAlias> aliases;

  // Returns nullptr if there is none.
  const Flag* Find(std::string_view name) const;
};

struct ParsedArgs {
  std::vector<std::string> positionals;
  std::map<std::string, std::string, std::less<>> values;     // the last value of each given flag
  std::vector<std::pair<std::string, std::string>> in_order;  // all given flags and values
  bool help = false;
  bool help_all = false;  // --help all
  bool version = false;

  bool given(std::string_view name) const { return values.contains(name); }
  // True if the flag was given and not switched off.
  bool on(std::string_view name) const;
};

// Stores the values in the variables of `table`. `args` exclude the program's name. Stops at the
// first --help or --version. Errors are kInvalidArgument.
StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args, const FlagTable& table);

// Checks that at most one of the flags in `names` (separated by blanks) is on.
Status CheckOneOf(const ParsedArgs& args, const std::string& names);

// Splits at blanks as a shell does; quoted text is one word.
StatusOr<std::vector<std::string>> SplitWords(const std::string& text);

// Returns the --help lines of all usable flags, or of the common ones, within 80 columns. The
// stored values are printed as the defaults.
std::string FlagsHelp(const FlagTable& table, bool all = true);

}  // namespace kuiper
