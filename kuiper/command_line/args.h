// argv -> variables: abbreviations, aliases, short options, positionals anywhere, nearest match for
// typing errors. A program hands over its table of flags; nothing here knows what a flag means.
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
  kNoEffect,     // accepted for old command lines; --help lists those of a group
  kUnavailable,  // known, but this program cannot do it: an error
};

struct Flag {
  std::string name;             // without dashes, e.g. "prompt"
  std::string short_name = {};  // without dash, e.g. "p"; may be empty
  std::string value_name = {};  // what --help calls the value, e.g. "TEXT"; FLAGS have dashes
  Variable variable;
  std::string help = {};
  Limits limits = {};
  std::string bare_value = {};     // named values: meaning of the flag without one
  std::string negated_value = {};  // named values: what --no-NAME stands for
  FlagUse use = FlagUse::kWorks;
  std::string group = {};     // the title under which --help lists the flag
  bool is_common = false;     // --help lists it; the others come with --help all
  std::string why = {};       // kNoEffect, kUnavailable: the end of the sentence
  std::string harmless = {};  // kUnavailable: the value that asks for nothing
};

// A flag with the spellings `names`: "prompt", or with a short name "p,prompt". `value_name` is for
// variables whose type does not say what their values are.
Flag MakeFlag(const std::string& names, Variable variable, std::string help, Limits limits = {},
              std::string value_name = "");

// Another spelling of a flag, a long one or, with its dash, a short one; it takes the values of
// that flag unless `fixed` says otherwise.
struct FlagAlias {
  std::string alias;
  std::string name;
  std::string fixed = {};   // takes no value and stands for this one
  bool takes_bool = false;  // true and false stand for on and off
  bool is_listed = true;    // --help names it
};

struct FlagTable {
  std::vector<Flag> flags;  // those of one group stand together
  std::vector<FlagAlias> aliases;

  // nullptr when there is none.
  const Flag* Find(std::string_view name) const;
};

struct ParsedArgs {
  std::vector<std::string> positionals;
  std::map<std::string, std::string, std::less<>> values;     // the last one of each flag given
  std::vector<std::pair<std::string, std::string>> in_order;  // flags and values, all of them
  bool help = false;
  bool help_all = false;  // --help all
  bool version = false;

  bool given(std::string_view name) const { return values.contains(name); }
  // Given, and not switched off.
  bool on(std::string_view name) const;
};

// Stores the values where `table` says. `args` come without the program's name. Stops at the first
// --help or --version. kInvalidArgument.
StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args, const FlagTable& table);

// At most one of the flags, of which `names` has the names with blanks between them, may be on.
Status CheckOneOf(const ParsedArgs& args, const std::string& names);

// Words between blanks, as a shell splits them; what stands in quotes is one word.
StatusOr<std::vector<std::string>> SplitWords(const std::string& text);

// The lines of --help about all flags that can be used, or the common ones, within 80 columns; the
// defaults are what is stored.
std::string FlagsHelp(const FlagTable& table, bool all = true);

}  // namespace kuiper
