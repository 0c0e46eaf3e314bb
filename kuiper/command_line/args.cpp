#include "kuiper/command_line/args.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

// One spelling of an option.
struct Spelling {
  std::string name;         // without dashes
  const Flag* flag;         // nullptr: --help and --version
  std::string fixed;        // not empty: takes no value and sets this one
  bool takes_bool = false;  // an alias for on|off that is written true|false
};

using Spellings = std::vector<Spelling>;

Spellings LongSpellings(const FlagTable& table) {
  Spellings list = {{"help", nullptr, ""}, {"version", nullptr, ""}};
  for (const Flag& flag : table.flags) {
    list.push_back({flag.name, &flag, ""});
    const std::string negated = IsSwitch(flag.variable) ? "false" : flag.negated_value;
    if (!negated.empty()) list.push_back({"no-" + flag.name, &flag, negated});
  }
  for (const FlagAlias& alias : table.aliases) {
    const Flag* flag = alias.alias.starts_with('-') ? nullptr : table.Find(alias.name);
    if (flag != nullptr) list.push_back({alias.alias, flag, alias.fixed, alias.takes_bool});
  }
  return list;
}

// "error: unknown option --page-attention; did you mean --paged-attention?"
Status UnknownOption(const Spellings& spellings, const std::string& spelled,
                     const std::string& name) {
  constexpr size_t kMostShown = 42;
  std::vector<std::string_view> names;
  for (const Spelling& spelling : spellings) names.emplace_back(spelling.name);
  const std::string nearest = DidYouMean(name, names, "--");
  return InvalidArgument(
      "unknown option " + ReplaceInvalidUtf8(spelled.substr(0, kMostShown)) + nearest,
      nearest.empty() ? FlagName("help") + " all lists all options" : "");
}

// Exact names come first, then prefixes that match only one flag.
StatusOr<const Spelling*> FindLong(const Spellings& spellings, const std::string& spelled,
                                   std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<const Spelling*> matches;
  for (const Spelling& spelling : spellings) {
    if (spelling.name == name) return &spelling;
    if (!name.empty() && spelling.name.starts_with(name)) matches.push_back(&spelling);
  }
  if (matches.empty()) return UnknownOption(spellings, spelled, name);
  // Flags without effect and unavailable flags match only if no working flag does.
  const auto is_there = [](const Spelling* s) {
    return s->flag == nullptr || s->flag->use == FlagUse::kWorks;
  };
  if (std::any_of(matches.begin(), matches.end(), is_there))
    std::erase_if(matches, std::not_fn(is_there));
  const auto same = [&](const Spelling* s) {
    return s->flag != nullptr && s->flag == matches[0]->flag && s->fixed == matches[0]->fixed &&
           s->takes_bool == matches[0]->takes_bool;
  };
  if (matches.size() == 1 || std::all_of(matches.begin(), matches.end(), same)) return matches[0];
  std::string list;
  for (const Spelling* match : matches) list += (list.empty() ? "--" : ", --") + match->name;
  return InvalidArgument("option " + spelled + " is ambiguous: " + list);
}

std::optional<Spelling> FindShort(const FlagTable& table, const std::string& name) {
  if (name == "h") return Spelling{"help", nullptr, ""};
  for (const Flag& flag : table.flags) {
    if (!name.empty() && name == flag.short_name) return Spelling{flag.name, &flag, ""};
  }
  for (const FlagAlias& alias : table.aliases) {
    const Flag* flag = alias.alias == "-" + name ? table.Find(alias.name) : nullptr;
    if (flag != nullptr) return Spelling{flag->name, flag, ""};
  }
  return std::nullopt;
}

StatusOr<bool> ParseSwitch(const std::string& spelled, const std::string& value) {
  bool on = false;
  KU_RETURN_IF_ERROR(SetVariable(&on, {}, spelled, value));
  return on;
}

class Parser {
 public:
  Parser(const std::vector<std::string>& args, const FlagTable& table)
      : args_(args), table_(table), spellings_(LongSpellings(table)) {}

  StatusOr<ParsedArgs> Run() {
    bool options_ended = false;
    while (next_ < args_.size() && !parsed_.help && !parsed_.version) {
      const std::string& arg = args_[next_++];
      if (options_ended || arg.size() < 2 || arg[0] != '-') {
        parsed_.positionals.push_back(arg);
      } else if (arg == "--") {
        options_ended = true;
      } else {
        KU_RETURN_IF_ERROR(ParseOption(arg));
      }
    }
    return std::move(parsed_);
  }

 private:
  Status ParseOption(const std::string& arg) {
    const size_t equals = arg.find('=');
    const std::string spelled = arg.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = arg.substr(equals + 1);

    Spelling spelling;
    if (spelled.starts_with("--")) {
      KU_ASSIGN_OR_RETURN(const Spelling* found, FindLong(spellings_, spelled, spelled.substr(2)));
      spelling = *found;
    } else {
      const std::optional<Spelling> found = FindShort(table_, spelled.substr(1));
      if (!found.has_value()) return UnknownOption(spellings_, spelled, spelled.substr(1));
      spelling = *found;
    }
    if (spelling.flag == nullptr) {
      if (value.has_value()) return InvalidArgument(spelled + " takes no value");
      (spelling.name == "help" ? parsed_.help : parsed_.version) = true;
      parsed_.help_all = next_ < args_.size() && args_[next_] == "all";
      return OkStatus();
    }
    return Assign(spelling, spelled, value);
  }

  Status Assign(const Spelling& spelling, const std::string& spelled,
                std::optional<std::string> value) {
    const Flag& flag = *spelling.flag;
    const bool is_switch = IsSwitch(flag.variable);
    if (!spelling.fixed.empty()) {
      bool apply = true;  // --no-stream=false means --stream
      if (value.has_value() && !is_switch) return InvalidArgument(spelled + " takes no value");
      if (value.has_value()) {
        KU_ASSIGN_OR_RETURN(apply, ParseSwitch(spelled, *value));
      }
      value = apply ? spelling.fixed : "true";
    } else if (!value.has_value() && is_switch) {
      value = "true";
    } else if (!value.has_value() && !flag.bare_value.empty()) {
      value =
          next_ < args_.size() && IsNamed(flag, args_[next_]) ? args_[next_++] : flag.bare_value;
    } else if (!value.has_value()) {
      KU_ASSIGN_OR_RETURN(value, NextValue(spelled, flag.value_name == "FLAGS"));
    }
    if (spelling.takes_bool) {
      KU_ASSIGN_OR_RETURN(const bool on, ParseSwitch(spelled, *value));
      value = on ? "on" : "off";
    } else if (is_switch) {
      KU_ASSIGN_OR_RETURN(const bool on, ParseSwitch(spelled, *value));
      value = on ? "true" : "false";
    }
    const bool names_file = flag.value_name == "PATH" || flag.value_name == "FILE";
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(flag.variable);
    if (names_file && !is_list && value->empty()) {
      return InvalidArgument(spelled + ": the path is empty");
    }
    KU_RETURN_IF_ERROR(SetVariable(flag.variable, flag.limits, spelled, *value));
    const bool some_work = !flag.harmless.empty();
    if (flag.use == FlagUse::kUnavailable && !(some_work && *value == flag.harmless)) {
      // The message names the bare option if the flag never works, and option and value if others
      // work.
      return InvalidArgument(spelled + (some_work ? " " + *value : "") + " " + flag.why);
    }
    parsed_.in_order.emplace_back(flag.name, *value);
    parsed_.values[flag.name] = std::move(*value);
    return OkStatus();
  }

  static bool IsNamed(const Flag& flag, const std::string& value) {
    const auto* named = std::get_if<NamedValues>(&flag.variable);
    return named != nullptr &&
           std::find(named->names.begin(), named->names.end(), value) != named->names.end();
  }

  // Returns the next argument, unless it is clearly another option, so that the value was
  // forgotten.
  StatusOr<std::string> NextValue(const std::string& spelled, bool takes_options) {
    if (next_ == args_.size() || args_[next_] == "--")
      return InvalidArgument(spelled + " needs a value");
    const std::string& value = args_[next_];
    const std::string name = value.substr(0, value.find('='));
    if (!takes_options && IsOption(name)) {
      return InvalidArgument(spelled + " needs a value, but " + name + " follows",
                             "write " + spelled + "=" + value + " if that is the value");
    }
    ++next_;
    return value;
  }

  // True if `spelled` is an option in full.
  bool IsOption(const std::string& spelled) const {
    if (!spelled.starts_with("-")) return false;
    if (!spelled.starts_with("--")) return FindShort(table_, spelled.substr(1)).has_value();
    return std::any_of(spellings_.begin(), spellings_.end(),
                       [&](const Spelling& s) { return s.name == spelled.substr(2); });
  }

  const std::vector<std::string>& args_;
  const FlagTable& table_;
  Spellings spellings_;
  size_t next_ = 0;
  ParsedArgs parsed_;
};

}  // namespace

Flag MakeFlag(const std::string& names, Variable variable, std::string help, Limits limits,
              std::string value_name) {
  const size_t comma = names.find(',');
  Flag flag{.name = names.substr(comma + 1), .variable = std::move(variable)};
  if (comma != std::string::npos) flag.short_name = names.substr(0, comma);
  flag.value_name = value_name.empty() ? ValueName(flag.variable, limits) : std::move(value_name);
  flag.help = std::move(help);
  flag.limits = limits;
  return flag;
}

const Flag* FlagTable::Find(std::string_view name) const {
  for (const Flag& flag : flags) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

bool ParsedArgs::on(std::string_view name) const {
  const auto it = values.find(name);
  return it != values.end() && it->second != "false";
}

StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args, const FlagTable& table) {
  return Parser(args, table).Run();
}

Status CheckOneOf(const ParsedArgs& args, const std::string& names) {
  std::vector<std::string> given;
  std::string name;
  for (std::istringstream words(names); words >> name;) {
    if (args.on(name)) given.push_back(name);
  }
  if (given.size() < 2) return OkStatus();
  return InvalidArgument("--" + given[0] + " and --" + given[1] + " exclude each other");
}

StatusOr<std::vector<std::string>> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (const char c : text) {
    const bool is_blank = quote == '\0' && (c == ' ' || c == '\t' || c == '\n');
    if (is_blank) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = '\0';
    } else {
      words.back() += c;
    }
  }
  if (quote != '\0') return InvalidArgument("a quotation mark is missing");
  return words;
}

}  // namespace kuiper
